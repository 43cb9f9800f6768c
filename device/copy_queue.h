// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/gpu.h"
#include "device/objects.h"

namespace rondo::device {

// Copies between a GPU and pinned host memory, and kernels, on a stream of its own, in order. They
// come in batches, and the host learns when each batch has ended.
//
// Threads: as in objects.h. Failures: the functions throw Error(system), which names the GPU, the
// copy and the driver's error.
class CopyQueue {
 public:
  static constexpr std::size_t most_batches = 32;  // under way

  explicit CopyQueue(const Gpu& gpu, bool urgent = false);

  bool has_room() const noexcept { return count_ < most_batches; }
  bool idle() const noexcept { return count_ == 0; }
  // The copies of a batch come between two calls of end_batch(), which requires has_room().
  void to_host(std::byte* to, Address from, std::size_t bytes);
  void to_device(Address to, const std::byte* from, std::size_t bytes);
  void on_device(Address to, Address from, std::size_t bytes);
  // A kernel with a grid of one dimension. name: for messages.
  void launch(FunctionHandle kernel, const char* name, unsigned blocks, unsigned threads,
              void** parameters);
  void end_batch();
  // Records the event after everything that has been enqueued.
  void record(Event& event);
  // Whether there is a batch that has ended, or that the GPU has failed to do.
  bool has_ended() const noexcept { return count_ != 0 && events_[oldest_].query() != not_ready; }
  // Whether the oldest batch has ended. If so, forgets it. Requires !idle().
  bool take_ended();
  // Runs the function on a thread of the driver when the oldest batch has ended, unless it is
  // already to be run for that one. True when it will run once more. The function must not use
  // CUDA. Requires !idle().
  bool call_when_ended(void (*function)(void*), void* argument);
  // Forgets the batches that have ended, and those that never will because the GPU has failed. True
  // when nothing is under way, copies of a batch that could not be ended included.
  bool drain() noexcept;
  // Whether the GPU has failed. Then functions that were to be called never are.
  bool failed() const noexcept;

 private:
  void forget_oldest() noexcept;

  const Gpu& gpu_;
  Stream stream_, watch_;      // watch_ only waits, so that no copy waits for a function
  std::vector<Event> events_;  // used in turn, one for each batch
  std::size_t oldest_ = 0, count_ = 0;
  bool open_ = false;     // copies have been enqueued since the last batch ended
  bool watched_ = false;  // a function is called when the oldest batch has ended
};

}  // namespace rondo::device
