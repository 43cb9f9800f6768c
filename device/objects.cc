// SPDX-License-Identifier: Apache-2.0
//
// Each class calls the driver to make one object and to give it back. A constructor that fails has
// nothing to give back; a destructor ignores errors, which are those of earlier work.
#include "device/objects.h"

#include <fmt/format.h>
#include <sched.h>

#include "base/clock.h"
#include "base/text.h"
#include "device/pointer.h"

namespace rondo::device {
namespace {

// Flags of cuda.h.
constexpr unsigned event_disable_timing = 2, stream_non_blocking = 1, host_portable = 1;
constexpr int minimum_granularity = 0;
// CUdevice_attribute
constexpr int virtual_memory_management = 102, descriptor_handles = 103;

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

SharedMemory::SharedMemory(const Gpu& gpu, std::size_t bytes) : gpu_(&gpu) {
  const Current current(gpu);
  const CudaDriver& driver = gpu.driver();
  AllocationProperties properties;
  properties.handle_types = posix_descriptor;
  properties.location.id = gpu.ordinal();
  std::size_t page = 0;
  gpu.check(driver.allocation_granularity(&page, &properties, minimum_granularity),
            "cuMemGetAllocationGranularity");
  bytes_ = (bytes + page - 1) / page * page;
  if (const Status status = driver.allocation_create(&handle_, bytes_, &properties, 0);
      status != success)
    gpu.check(status, fmt::format("cuMemCreate of {}", base::describe_bytes(bytes_)));
  own_ = true;
  map();
}

// A descriptor is passed by its value.
SharedMemory::SharedMemory(const Gpu& gpu, int descriptor, std::size_t bytes)
    : gpu_(&gpu), bytes_(bytes) {
  const Current current(gpu);
  gpu.check(gpu.driver().allocation_import(
                &handle_, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                posix_descriptor),
            "cuMemImportFromShareableHandle");
  map();
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : gpu_(other.gpu_),
      handle_(std::exchange(other.handle_, 0)),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapped_(std::exchange(other.mapped_, false)),
      own_(other.own_) {}

SharedMemory::~SharedMemory() {
  release();
}

// Called by the constructors, when the handle is there.
void SharedMemory::map() {
  const CudaDriver& driver = gpu_->driver();
  try {
    gpu_->check(driver.address_reserve(&address_, bytes_, 0, 0, 0), "cuMemAddressReserve");
    gpu_->check(driver.memory_map(address_, bytes_, 0, handle_, 0), "cuMemMap");
    mapped_ = true;
    give_access(*gpu_);
  } catch (...) {
    release();
    throw;
  }
}

void SharedMemory::release() noexcept {
  if (handle_ == 0) return;
  give_back(*gpu_, [this](const CudaDriver& driver) {
    // cuMemFree waits, and cuMemUnmap does not.
    if (mapped_ && own_) driver.context_synchronize();
    if (mapped_) driver.memory_unmap(address_, bytes_);
    if (address_ != 0) driver.address_free(address_, bytes_);
    driver.allocation_release(handle_);
  });
  handle_ = 0;
}

void SharedMemory::give_access(const Gpu& other) {
  const Current current(*gpu_);
  AccessDescription access;
  access.location.id = other.ordinal();
  if (const Status status = gpu_->driver().memory_set_access(address_, bytes_, &access, 1);
      status != success)
    gpu_->check(status, fmt::format("cuMemSetAccess for GPU {}", other.ordinal()));
}

int SharedMemory::export_descriptor() const {
  const Current current(*gpu_);
  int descriptor = -1;
  gpu_->check(gpu_->driver().allocation_export(&descriptor, handle_, posix_descriptor, 0),
              "cuMemExportToShareableHandle");
  return descriptor;
}

OpenedMemory::OpenedMemory(const Gpu& gpu, const IpcMemoryHandle& handle) : gpu_(&gpu) {
  constexpr unsigned lazy_enable_peer_access = 1;
  const Current current(gpu);
  gpu.check(gpu.driver().ipc_open_memory_handle(&address_, handle, lazy_enable_peer_access),
            "cuIpcOpenMemHandle");
  try {
    const AddressRange range = range_of(gpu, address_);
    bytes_ = range.bytes - static_cast<std::size_t>(address_ - range.begin);
  } catch (...) {
    close();
    throw;
  }
}

OpenedMemory::OpenedMemory(OpenedMemory&& other) noexcept
    : gpu_(other.gpu_),
      address_(std::exchange(other.address_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}

OpenedMemory::~OpenedMemory() {
  close();
}

void OpenedMemory::close() noexcept {
  if (address_ == 0) return;
  give_back(*gpu_, [this](const CudaDriver& driver) { driver.ipc_close_memory_handle(address_); });
}

IpcMemoryHandle handle_of(const Gpu& gpu, Address begin) {
  constexpr Status invalid_value = 1, not_supported = 801;
  const Current current(gpu);
  IpcMemoryHandle handle{};
  const Status status = gpu.driver().ipc_get_memory_handle(&handle, begin);
  if (status == invalid_value || status == not_supported)
    throw Error(Errc::unsupported,
                gpu.text(status, "cuIpcGetMemHandle") +
                    ": other processes cannot open this memory; CUDA can share memory of "
                    "cudaMalloc, but none of pools (cudaMallocAsync) or of cuMemCreate (expandable "
                    "segments of PyTorch): use cudaMalloc or Communicator::allocate");
  gpu.check(status, "cuIpcGetMemHandle");
  return handle;
}

void enable_access(const Gpu& gpu, const Gpu& other) {
  constexpr Status already_enabled = 704;
  if (gpu.ordinal() == other.ordinal()) return;
  const Current current(gpu);
  const Status status = gpu.driver().context_enable_peer_access(other.context(), 0);
  if (status != already_enabled)
    gpu.check(status, fmt::format("cuCtxEnablePeerAccess for GPU {}", other.ordinal()));
}

std::string why_not_shared(const Gpu& gpu) {
  const auto has = [&](int attribute) {
    int value = 0;
    gpu.check(gpu.driver().device_get_attribute(&value, attribute, gpu.ordinal()),
              "cuDeviceGetAttribute");
    return value != 0;
  };
  if (!has(virtual_memory_management)) return "its driver has no virtual memory management";
  return has(descriptor_handles) ? "" : "its driver exports no memory as descriptors";
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
  const base::TimePoint until = base::after(base::Clock::now(), time);
  while ((status = event.query()) == not_ready && base::Clock::now() < until) ::sched_yield();
  return status;
}

void set_to_zero(const Gpu& gpu, Address memory, std::size_t bytes) {
  constexpr std::chrono::seconds most_time{60};
  const Stream stream(gpu);
  Event zeroed(gpu);
  const Current current(gpu);
  gpu.check(gpu.driver().set_bytes(memory, 0, bytes, stream.get()), "cuMemsetD8Async");
  gpu.check(zeroed.record(stream.get()), "cuEventRecord");
  if (const Status status = wait_for(zeroed, most_time); status != success)
    gpu.check(status, "cuMemsetD8Async of " + base::describe_bytes(bytes));
}

}  // namespace rondo::device
