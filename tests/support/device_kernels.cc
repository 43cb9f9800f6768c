// SPDX-License-Identifier: Apache-2.0
#include "support/device_kernels.h"

#include <type_traits>

#include "bn/layer/device/kernels.h"
#include "collectives/kernels/device/kernels.h"
#include "grad/device/kernels.h"

namespace rondo::testing {

namespace {

template <class Kernel>
void run(const void* given, unsigned blocks, unsigned threads, const TranslateAddress& translate) {
  auto arguments = *static_cast<const typename Kernel::Arguments*>(given);
  Kernel::for_each_pointer(arguments, [&](auto& pointer, std::size_t bytes) {
    using Pointer = std::remove_cvref_t<decltype(pointer)>;
    pointer =
        reinterpret_cast<Pointer>(translate(reinterpret_cast<std::uintptr_t>(pointer), bytes));
  });
  // The last block runs first: blocks have no order.
  for (unsigned block = blocks; block-- > 0;) {
    typename Kernel::Shared shared;
    for (int phase = 0; phase < Kernel::phases; ++phase)
      for (unsigned index = 0; index < threads; ++index)
        Kernel::run(phase, arguments, shared, {index, threads, block, blocks});
  }
}

#define RONDO_ENTRY(name, ...) HostKernel{#name, sizeof(__VA_ARGS__::Arguments), &run<__VA_ARGS__>},

std::vector<HostKernel> reductions() {
  using namespace rondo::kernels;
  return {RONDO_DEVICE_KERNELS(RONDO_ENTRY)};
}

std::vector<HostKernel> batch_norm() {
  using namespace rondo::layer;
  return {RONDO_BN_KERNELS(RONDO_ENTRY)};
}

std::vector<HostKernel> gradient_buckets() {
  using namespace rondo::grad;
  return {RONDO_GRAD_KERNELS(RONDO_ENTRY)};
}

#undef RONDO_ENTRY

std::vector<HostKernel> all() {
  std::vector<HostKernel> kernels = reductions();
  for (const HostKernel& kernel : batch_norm()) kernels.push_back(kernel);
  for (const HostKernel& kernel : gradient_buckets()) kernels.push_back(kernel);
  return kernels;
}

}  // namespace

const std::vector<HostKernel>& host_kernels() noexcept {
  static const std::vector<HostKernel> kernels = all();
  return kernels;
}

const HostKernel* find_host_kernel(std::string_view name) noexcept {
  for (const HostKernel& kernel : host_kernels())
    if (kernel.name == name) return &kernel;
  return nullptr;
}

std::byte* same_address(std::uint64_t address, std::size_t) noexcept {
  return reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(address));
}

}  // namespace rondo::testing
