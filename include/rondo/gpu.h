// SPDX-License-Identifier: Apache-2.0
//
// Serves programs without CUDA's headers that use Rondo on a GPU: memory, a stream, copies and
// their speed. A program that has CUDA uses CUDA instead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rondo/communicator.h>
#include <rondo/export.h>

namespace rondo::lib {
class GpuStreamState;
}

namespace rondo {

// Memory of GPU `device`, zeroed, which no communicator knows: what cuMemAlloc gives. The CPU must
// not touch it. Throws Error: unsupported without a CUDA driver, invalid_argument if there is no
// such GPU, system in the driver's words.
RONDO_API Memory allocate_on_gpu(int device, std::size_t bytes);

// Between which memories a copy goes.
enum class GpuCopy : std::uint8_t { on_gpu, to_gpu, to_host };

// A CUDA stream of GPU `device`, which does not wait for the default stream. Thread-bound. Errors
// of the functions: Error(system) in the driver's words.
class RONDO_API GpuStream {
 public:
  // Throws as allocate_on_gpu() does.
  explicit GpuStream(int device);
  GpuStream(GpuStream&&) noexcept;
  GpuStream& operator=(GpuStream&&) noexcept;
  ~GpuStream();

  int device() const noexcept;
  // The CUstream: for OpOptions::stream and Work::join().
  void* get() const noexcept;
  // Copies after everything that is in the stream, and returns when the copy has ended. The host
  // memory may be any.
  void copy_to_gpu(void* to, const void* from, std::size_t bytes);
  void copy_to_host(void* to, const void* from, std::size_t bytes);
  // Returns how many bytes a second copies of `bytes` reach, one after the other: the best of five
  // rounds of ten milliseconds or more. They go between memories of the GPU, or between the GPU and
  // pinned host memory. It takes the memory itself, and gives it back.
  double measure(GpuCopy copy, std::size_t bytes);

 private:
  std::unique_ptr<lib::GpuStreamState> state_;
};

}  // namespace rondo
