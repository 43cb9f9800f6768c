// SPDX-License-Identifier: Apache-2.0
#include "device/objects.h"

#include <fmt/format.h>
#include <sched.h>

#include "base/clock.h"
#include "base/text.h"

namespace rondo::device {
namespace {

// Flags of cuda.h.
constexpr unsigned event_disable_timing = 2, stream_non_blocking = 1, host_portable = 1;

// Calls release with the GPU's context current. Errors are dropped: the function may return one of
// earlier work, which its caller has seen, and a destructor can do nothing about its own.
template <class Release>
void give_back(const Gpu& gpu, Release release) noexcept {
  if (!gpu.here()) return;
  try {
    const Current current(gpu);
    release(gpu.driver());
  } catch (const Error&) {  // without the context nothing can be released
  }
}

}  // namespace

Event::Event(const Gpu& gpu) : gpu_(&gpu) {
  const Current current(gpu);
  gpu.check(gpu.driver().event_create(&handle_, event_disable_timing), "cuEventCreate");
}

Event::~Event() {
  if (handle_ == nullptr) return;
  give_back(*gpu_, [this](const CudaDriver& driver) { driver.event_destroy(handle_); });
}

Stream::Stream(const Gpu& gpu, bool urgent) : gpu_(&gpu) {
  const Current current(gpu);
  // A lower number is more urgent. The driver takes the nearest that the GPU has.
  gpu.check(
      gpu.driver().stream_create_with_priority(&handle_, stream_non_blocking, urgent ? -1 : 0),
      "cuStreamCreateWithPriority");
}

Stream::~Stream() {
  if (handle_ == nullptr) return;
  give_back(*gpu_, [this](const CudaDriver& driver) { driver.stream_destroy(handle_); });
}

PinnedMemory::PinnedMemory(const Gpu& gpu, std::size_t bytes) : gpu_(&gpu), bytes_(bytes) {
  const Current current(gpu);
  void* data = nullptr;
  if (const Status status = gpu.driver().host_allocate(&data, bytes, host_portable);
      status != success)
    gpu.check(status, fmt::format("cuMemHostAlloc of {}", base::describe_bytes(bytes)));
  data_ = static_cast<std::byte*>(data);
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : gpu_(other.gpu_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  give_back(*gpu_, [this](const CudaDriver& driver) { driver.host_free(data_); });
}

DeviceMemory::DeviceMemory(const Gpu& gpu, std::size_t bytes) : gpu_(&gpu), bytes_(bytes) {
  const Current current(gpu);
  if (const Status status = gpu.driver().memory_allocate(&address_, bytes); status != success)
    gpu.check(status, fmt::format("cuMemAlloc of {}", base::describe_bytes(bytes)));
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : gpu_(other.gpu_),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory::~DeviceMemory() {
  if (address_ == 0) return;
  give_back(*gpu_, [this](const CudaDriver& driver) { driver.memory_free(address_); });
}

Module::Module(const Gpu& gpu, const void* image) : gpu_(&gpu) {
  const Current current(gpu);
  gpu.check(gpu.driver().module_load_data(&handle_, image), "cuModuleLoadData");
}

Module::~Module() {
  if (handle_ == nullptr) return;
  give_back(*gpu_, [this](const CudaDriver& driver) { driver.module_unload(handle_); });
}

FunctionHandle Module::function(const char* name) const {
  const Current current(*gpu_);
  const CudaDriver& driver = gpu_->driver();
  FunctionHandle function = nullptr;
  Status status = driver.module_get_function(&function, handle_, name);
  if (status == success && driver.function_load != nullptr) status = driver.function_load(function);
  if (status != success) gpu_->check(status, fmt::format("cuModuleGetFunction of {}", name));
  return function;
}

Status wait_for(const Event& event, std::chrono::milliseconds time) noexcept {
  Status status = event.query();
  if (status != not_ready) return status;
  const base::TimePoint until = base::Clock::now() + time;
  while ((status = event.query()) == not_ready && base::Clock::now() < until) ::sched_yield();
  return status;
}

void set_to_zero(const Gpu& gpu, const DeviceMemory& memory) {
  constexpr std::chrono::seconds most_time{60};
  const Stream stream(gpu);
  Event zeroed(gpu);
  const Current current(gpu);
  gpu.check(gpu.driver().set_bytes(memory.address(), 0, memory.bytes(), stream.get()),
            "cuMemsetD8Async");
  gpu.check(zeroed.record(stream.get()), "cuEventRecord");
  if (const Status status = wait_for(zeroed, most_time); status != success)
    gpu.check(status, "cuMemsetD8Async of " + base::describe_bytes(memory.bytes()));
}

}  // namespace rondo::device
