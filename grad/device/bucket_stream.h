// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "device/objects.h"
#include "grad/device/launches.h"

namespace rondo::grad {

// Gradients on a GPU: the stream on which kernels of buckets run (the bucket stream), its order
// with the program's streams, and memory. Each collective comes after the bucket stream, which then
// waits for its end. So what is on the bucket stream never meets copies of the communicator. Orders
// with the program's streams:
//
// - A bucket's load comes after the ready events of its parameters: then gradients are complete.
// - All loads of a step come after the stream of begin_step(), and after that of finish() where
//   gradients become unused there: the program uses none that nobody calls ready() for.
// - A copy to a view comes after the last use of gradients and after the stream of begin_step(),
//   where the program may still use those of the step before. Zeroing, norms and clipping, which
//   are in_order(), also come after the ready events of their step.
// - The bucket stream comes after zeroing and clipping: it finds their results.
// - The stream of finish() comes after the last use, and after ready events that no load waits for:
//   it finds the results, and may use what it has given.
//
// Threads: take() from any; run() and await_ready() on the thread that holds the launcher's role;
// everything else on the step thread (see Collector and Setup).
// Locks: one mutex, held while work is enqueued, which does not block. Only the constructor and
// allocate() allocate or make objects of CUDA.
// Failure: everything throws Error(system) where the GPU refuses it. Then kernels that wait for the
// program's streams may still be enqueued: settle() waits for them.
class BucketStream {
 public:
  // Throws as BucketKernels does.
  BucketStream(int ordinal, std::size_t parameters);

  const device::Gpu& gpu() const noexcept { return kernels_.gpu(); }
  device::StreamHandle get() const noexcept { return stream_.get(); }
  // Memory of the GPU that lives as long as this object. Null for no bytes.
  std::byte* allocate(std::size_t bytes);

  // The gradient is complete in `stream`. What lies elsewhere is copied to its view there at once
  // (an empty `to`: nothing does).
  void take(std::size_t parameter, const std::byte* from, std::span<std::byte> to,
            device::StreamHandle stream);

  // The bucket stream comes after this stream.
  void come_after(device::StreamHandle stream);
  // It comes after the ready event of a parameter, in this step. The context is current.
  void await_ready(std::size_t parameter);
  void run(const Pass& pass, std::span<const Piece> pieces, device::StreamHandle stream);
  // Lets the body enqueue work on the stream, behind what Rondo has enqueued for gradients so far
  // and before what it will enqueue. That also holds for what a body has enqueued that fails half
  // way: settle() waits for it.
  template <class Body>
  void in_order(device::StreamHandle stream, const Body& body);
  // Marks the last use of gradients so far. The stream comes after it.
  void end_step();
  void make_wait(device::StreamHandle stream);
  const device::Event& last() const noexcept { return last_; }

  // Waits until nothing of a step is under way any more, at most this long. False: something is.
  bool settle(std::chrono::milliseconds time) noexcept;

 private:
  void wait(device::StreamHandle stream, const device::Event& event);
  void record(device::Event& event, device::StreamHandle stream);
  void come_after_all(device::StreamHandle stream);
  void come_before_all(device::StreamHandle stream);

  const BucketKernels kernels_;
  device::Stream stream_;
  device::Event mark_;                  // in the stream that come_after() was called with last
  device::Event last_;                  // the last use of gradients by in_order() or end_step()
  std::vector<device::Event> readies_;  // by parameter
  std::vector<device::DeviceMemory> memory_;

  std::mutex mutex_;
  // By parameter: it became ready, and the bucket stream has not waited for its event. Bytes,
  // because threads write those of different parameters at once.
  std::vector<std::uint8_t> pending_;
};

template <class Body>
void BucketStream::in_order(device::StreamHandle stream, const Body& body) {
  const device::Current current(gpu());
  const std::lock_guard lock(mutex_);
  come_after_all(stream);
  try {
    body();
  } catch (...) {
    try {
      come_before_all(stream);
    } catch (const Error&) {  // the body's own error says why
    }
    throw;
  }
  come_before_all(stream);
}

}  // namespace rondo::grad
