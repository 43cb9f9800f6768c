// SPDX-License-Identifier: Apache-2.0
//
// Objects of the driver with one owner each. The GPU outlives them. Constructors throw
// Error(system). Constructors and destructors make the GPU's context current themselves and may
// block, so they must not run under the engine's lock. The other functions need it current
// (Current), never block, and return the driver's status.
//
// Threads: each object is thread-bound to whoever holds the lock of its owner.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "device/gpu.h"

namespace rondo::device {

// An event that only says when work before it has ended; it measures no time.
class Event {
 public:
  explicit Event(const Gpu& gpu);
  Event(Event&& other) noexcept
      : gpu_(other.gpu_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  ~Event();

  EventHandle get() const noexcept { return handle_; }
  Status record(StreamHandle stream) noexcept {
    return gpu_->driver().event_record(handle_, stream);
  }
  // success, not_ready, or the error of work that came before.
  Status query() const noexcept { return gpu_->driver().event_query(handle_); }

 private:
  const Gpu* gpu_;
  EventHandle handle_ = nullptr;
};

// A stream that does not wait for the default stream. urgent: its work comes first.
class Stream {
 public:
  explicit Stream(const Gpu& gpu, bool urgent = false);
  Stream(Stream&& other) noexcept
      : gpu_(other.gpu_), handle_(std::exchange(other.handle_, nullptr)) {}
  Stream& operator=(Stream&&) = delete;
  ~Stream();  // work under way goes on to its end

  StreamHandle get() const noexcept { return handle_; }
  Status wait(const Event& event) noexcept {
    return gpu_->driver().stream_wait_event(handle_, event.get(), 0);
  }

 private:
  const Gpu* gpu_;
  StreamHandle handle_ = nullptr;
};

// Host memory that the GPU reads and writes by itself, from any context of this process.
class PinnedMemory {
 public:
  PinnedMemory(const Gpu& gpu, std::size_t bytes);
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) = delete;
  ~PinnedMemory();

  std::byte* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const Gpu* gpu_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Memory of the GPU that only this process reaches.
class DeviceMemory {
 public:
  DeviceMemory(const Gpu& gpu, std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&&) = delete;
  ~DeviceMemory();

  Address address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  const Gpu* gpu_;
  Address address_ = 0;
  std::size_t bytes_ = 0;
};

// Memory of a GPU that several processes can map. It lives until the last of them has let go of it,
// so an importer does not depend on the process that made it. It takes whole pages of the GPU.
class SharedMemory {
 public:
  // Makes memory, which the GPU can use. It is not zeroed.
  SharedMemory(const Gpu& gpu, std::size_t bytes);
  // Maps memory that this process or another one has exported, of a GPU that this process sees. The
  // descriptor stays the caller's. bytes: those of the memory, or fewer whole pages.
  SharedMemory(const Gpu& gpu, int descriptor, std::size_t bytes);
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  // For memory that this process has made, waits for the GPU's work, which may use it.
  ~SharedMemory();

  Address address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }
  // Lets another GPU of this process use it too. May block, as the constructors.
  void give_access(const Gpu& other);
  // A descriptor for importers; the caller closes it. May block, as the constructors.
  int export_descriptor() const;

 private:
  void map();
  void release() noexcept;

  const Gpu* gpu_;
  AllocationHandle handle_ = 0;
  Address address_ = 0;  // reserved
  std::size_t bytes_ = 0;
  bool mapped_ = false;
  bool own_ = false;  // this process has made it
};

// Memory that another process has allocated (cudaMalloc), opened by its handle. That process must
// not free it before this object has closed it; CUDA leaves undefined what happens then.
class OpenedMemory {
 public:
  // Opens it for this GPU. CUDA counts how often a context opens one handle; the primary contexts
  // of several GPUs each have an address of their own. It refuses a handle that this process has
  // made itself.
  OpenedMemory(const Gpu& gpu, const IpcMemoryHandle& handle);
  OpenedMemory(OpenedMemory&& other) noexcept;
  OpenedMemory& operator=(OpenedMemory&&) = delete;
  ~OpenedMemory();

  Address address() const noexcept { return address_; }
  std::size_t bytes() const noexcept { return bytes_; }  // as CUDA says
  const Gpu& gpu() const noexcept { return *gpu_; }      // the only one that reaches it there

 private:
  void close() noexcept;

  const Gpu* gpu_;
  Address address_ = 0;
  std::size_t bytes_ = 0;
};

// The handle by which other processes open the allocation that begins at this address. May block,
// as constructors. Throws Error: unsupported if such memory has no handle, with the remedy; system.
IpcMemoryHandle handle_of(const Gpu& gpu, Address begin);
// Lets the GPU use all memory that this process allocates on the other one (cudaMalloc). May block,
// as constructors. Throws Error(system). There is no way back.
void enable_access(const Gpu& gpu, const Gpu& other);

// Why the GPU can make no SharedMemory; empty when it can. Throws Error(system).
std::string why_not_shared(const Gpu& gpu);

// Kernels that have been loaded. They are loaded whole, because loading one at its first launch may
// synchronize.
class Module {
 public:
  // image: a fat binary.
  Module(const Gpu& gpu, const void* image);
  Module(Module&& other) noexcept
      : gpu_(other.gpu_), handle_(std::exchange(other.handle_, nullptr)) {}
  Module& operator=(Module&&) = delete;
  ~Module();

  // Loads the kernel whole. Makes the context current itself and may block. Throws Error(system)
  // when the image has no such kernel.
  FunctionHandle function(const char* name) const;

 private:
  const Gpu* gpu_;
  ModuleHandle handle_ = nullptr;
};

// Waits until the event is reached, but not longer than this. Returns its last status. Needs the
// GPU's context current.
Status wait_for(const Event& event, std::chrono::milliseconds time) noexcept;
// Sets memory of the GPU to zero, and waits until that is done.
void set_to_zero(const Gpu& gpu, Address memory, std::size_t bytes);
inline void set_to_zero(const Gpu& gpu, const DeviceMemory& memory) {
  set_to_zero(gpu, memory.address(), memory.bytes());
}

}  // namespace rondo::device
