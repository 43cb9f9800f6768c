// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <rondo/error.h>

#include "base/own_descriptors.h"
#include "device/driver.h"

namespace rondo::device {

// A GPU as this process uses it. Keeps the primary context, which is the one of the CUDA runtime
// and so of PyTorch. Thread-safe. In a child made by fork() CUDA cannot be used: here() is false,
// and no destructor of this room calls the driver.
class Gpu {
 public:
  // driver outlives the object. Throws Error(invalid_argument) where there is no such GPU, and
  // Error(system) with the driver's words.
  Gpu(const CudaDriver& driver, Ordinal ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const CudaDriver& driver() const noexcept { return driver_; }
  Ordinal ordinal() const noexcept { return ordinal_; }
  ContextHandle context() const noexcept { return context_; }
  bool here() const noexcept { return generation_ == base::process_generation(); }

  // "cuMemAlloc of 1 MiB on GPU 0: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". what: the function
  // and what it was to do.
  std::string text(Status status, std::string_view what) const;
  // Throws Error(system) with that text unless the status is success.
  void check(Status status, std::string_view what) const {
    if (status != success) fail(status, what);
  }

 private:
  [[noreturn]] void fail(Status status, std::string_view what) const;

  const CudaDriver& driver_;
  const Ordinal ordinal_;
  const unsigned generation_ = base::process_generation();
  ContextHandle context_ = nullptr;
};

// Makes the GPU's context the current one of this thread, until the object is destroyed. Meanwhile
// the thread's calls disturb no capture of a stream by another thread. Thread-bound.
class Current {
 public:
  // Throws Error(system).
  explicit Current(const Gpu& gpu);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const Gpu& gpu_;
  int capture_mode_ = relaxed_capture;  // then the one before
};

// Why operations cannot come after this stream: it is being captured into a graph. Empty: they can.
// Throws Error(system) where the GPU refuses the stream.
std::string problem_of_stream(const Gpu& gpu, StreamHandle stream);
// Throws Error(unsupported) where there is a problem. who: what the message begins with.
void refuse_capture(const Gpu& gpu, StreamHandle stream, std::string_view who);
// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
std::string describe(const CudaDriver& driver, Status status);
// How many GPUs the driver has. Throws Error(system).
int gpu_count(const CudaDriver& driver);

}  // namespace rondo::device
