// SPDX-License-Identifier: Apache-2.0
#include "training/value_copies.h"

#include <fmt/format.h>

#include <chrono>

#include <rondo/error.h>

#include "device/pointer.h"
#include "training/gpu_wait.h"

namespace rondo::training {

namespace {

device::Address address_of(const Parameter& parameter) noexcept {
  return reinterpret_cast<device::Address>(parameter.value);
}

}  // namespace

std::optional<OwnProblem> ValueCopies::problem_of(const Parameter& parameter) {
  const std::size_t bytes = element_count(parameter) * size_of(parameter.type);
  try {
    const device::Gpu& gpu = gpus_.gpu(parameter.device);
    const device::Current current(gpu);
    std::string problem = device::problem_of_stream(gpu, nullptr);
    if (!problem.empty())
      return OwnProblem{Errc::unsupported, fmt::format("broadcast_parameters: {}", problem)};
    problem = device::problem_of_memory(gpu, parameter.value, bytes, "it should be");
    if (problem.empty()) return std::nullopt;
    return OwnProblem{Errc::invalid_argument,
                      fmt::format("parameter '{}' {}", parameter.name, problem)};
  } catch (const Error& error) {
    return OwnProblem{static_cast<Errc>(error.code().value()),
                      fmt::format("parameter '{}' is on GPU {}: {}", parameter.name,
                                  parameter.device, error.what())};
  }
}

device::PinnedMemory ValueCopies::pinned(int device, std::size_t bytes) {
  return {gpus_.gpu(device), bytes};
}

void ValueCopies::to_host(std::byte* to, const Parameter& parameter, std::size_t bytes) {
  const device::Gpu& gpu = gpus_.gpu(parameter.device);
  const device::Current current(gpu);
  gpu.check(gpu.driver().copy_to_host(to, address_of(parameter), bytes, nullptr),
            "cuMemcpyDtoHAsync");
}

void ValueCopies::to_gpu(const Parameter& parameter, const std::byte* from, std::size_t bytes) {
  const device::Gpu& gpu = gpus_.gpu(parameter.device);
  const device::Current current(gpu);
  gpu.check(gpu.driver().copy_to_device(address_of(parameter), from, bytes, nullptr),
            "cuMemcpyHtoDAsync");
}

void ValueCopies::wait(int device) {
  const device::Gpu& gpu = gpus_.gpu(device);
  device::Event copied(gpu);
  const device::Current current(gpu);
  gpu.check(copied.record(nullptr), "cuEventRecord");
  await_gpu(gpu, copied, gpu_wait(communicator_, "broadcast_parameters"), "the parameters' copies");
}

bool ValueCopies::settle(int device) noexcept {
  constexpr std::chrono::milliseconds patience{500};
  try {
    const device::Gpu& gpu = gpus_.gpu(device);
    device::Event copied(gpu);
    const device::Current current(gpu);
    gpu.check(copied.record(nullptr), "cuEventRecord");
    return device::wait_for(copied, patience) != device::not_ready;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace rondo::training
