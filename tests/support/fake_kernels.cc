// SPDX-License-Identifier: Apache-2.0
#include "support/fake_kernels.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "support/device_kernels.h"

namespace rondo::testing {

namespace {

constexpr int illegal_address = 700;  // CUDA_ERROR_ILLEGAL_ADDRESS
constexpr std::size_t most_kernels = 64;

int run_on_host(const HostKernel& kernel, const RondoFakeLaunch* launch) {
  try {
    kernel.run(launch->parameters[0], launch->grid[0], launch->block[0],
               [](std::uint64_t address, std::size_t bytes) {
                 void* const storage = FakeCuda().storage(address, bytes);
                 if (storage == nullptr) throw std::runtime_error("no memory there");
                 return static_cast<std::byte*>(storage);
               });
    return 0;
  } catch (const std::runtime_error&) {
    return illegal_address;
  }
}

// The fake calls a function without a context: one for each kernel.
template <std::size_t which>
int run_kernel(const RondoFakeLaunch* launch) {
  return run_on_host(host_kernels()[which], launch);
}

template <std::size_t... which>
constexpr std::array<RondoFakeKernel*, sizeof...(which)> functions_of(
    std::index_sequence<which...>) {
  return {&run_kernel<which>...};
}

}  // namespace

void register_device_kernels(const FakeCuda& fake) {
  static constexpr auto functions = functions_of(std::make_index_sequence<most_kernels>());
  const auto& kernels = host_kernels();
  if (kernels.size() > most_kernels) throw std::logic_error("more kernels than functions");
  for (std::size_t i = 0; i < kernels.size(); ++i)
    fake.register_kernel(std::string(kernels[i].name).c_str(), functions[i], 1,
                         &kernels[i].argument_bytes);
}

}  // namespace rondo::testing
