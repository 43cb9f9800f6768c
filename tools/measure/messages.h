// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>
#include <rondo/gpu.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tools/measure/operation.h"
#include "tools/measure/pattern.h"

namespace rondo::tools {

// Memory for the operands of a benchmark, on the host or on a GPU. The host writes inputs and
// checks results in its own memory; for a GPU that is a copy, and the two functions at the end
// bring one to the other. Thread-bound.
class BenchMemory {
 public:
  BenchMemory() noexcept = default;
  explicit BenchMemory(Memory memory) noexcept : memory_(std::move(memory)) {}
  // Memory of the stream's GPU. The stream outlives the object. Throws Error(system).
  BenchMemory(Memory memory, GpuStream& gpu)
      : memory_(std::move(memory)), copy_(memory_.bytes()), gpu_(&gpu) {}

  // The memory that operations get.
  void* data() const noexcept { return memory_.data(); }
  std::size_t bytes() const noexcept { return memory_.bytes(); }
  bool holds(const std::byte* at) const noexcept {
    return at >= begin() && at < begin() + memory_.bytes();
  }
  // Where the host has the bytes at an address of data().
  std::byte* host(std::byte* at) const noexcept {
    return gpu_ == nullptr ? at : static_cast<std::byte*>(copy_.data()) + (at - begin());
  }
  // Both copy the first bytes, and throw as GpuStream does. For host memory they do nothing.
  void bring_to_gpu(std::size_t bytes) {
    if (gpu_ != nullptr) gpu_->copy_to_gpu(data(), copy_.data(), bytes);
  }
  void bring_to_host(std::size_t bytes) {
    if (gpu_ != nullptr) gpu_->copy_to_host(copy_.data(), data(), bytes);
  }

 private:
  std::byte* begin() const noexcept { return static_cast<std::byte*>(memory_.data()); }

  Memory memory_, copy_;
  GpuStream* gpu_ = nullptr;
};

// Messages between the two ranks of each pair: a window of them, and a ping-pong of one. All ranks
// make the same calls in the same order. A failure of the communicator throws.
class Messages {
 public:
  // The messages of a window. All are under way at once, so each has memory of its own: the first
  // ones are sent from `in` and received into `out`, each other one `distance` bytes behind.
  struct Window {
    Buffer in, out;
    std::size_t distance = 0;
    std::uint64_t count = 1;
  };
  // Where these buffers are. The two outlive the object.
  struct Place {
    BenchMemory& in;
    BenchMemory& out;
    OpOptions options{};  // of each message; on a GPU with its stream
  };
  // fresh: the data is written before every iteration. checked, which needs fresh: what an
  // iteration must bring is poisoned before it.
  Messages(Communicator& communicator, const Pattern& pattern, const Role& role,
           const Window& window, const Place& place, bool fresh, bool checked);

  // Each runs one iteration after a barrier, which is not timed, and returns microseconds; 0 on a
  // rank that times nothing.
  //
  // All receives are called before the barrier, all sends after it. A rank that receives answers
  // when it has every message, and a rank that sends times the iteration until this answer comes.
  // The time is that of one message, with its share of the answer.
  double window();
  // Half of the round trip of one message to the other rank and of another one back; the rank with
  // the smaller number times it.
  double ping_pong();
  // The wrong elements that the last iteration left on this rank.
  std::uint64_t count_wrong();

 private:
  Buffer place(const Buffer& first, std::size_t message) const;
  std::size_t bytes_of_first(std::size_t messages) const;
  void write(std::size_t messages, bool sends, bool receives);
  void round_trip(const Buffer& in, const Buffer& out);

  Communicator& communicator_;
  const Pattern& pattern_;
  const Role role_;
  const Window window_;
  const Place place_;
  const bool fresh_, checked_;
  std::vector<Work> sends_, receives_;  // of a window
  std::size_t received_ = 0;            // messages that the last iteration brought to this rank
  std::uint64_t written_ = 0;           // messages so far: each has its own data
};

}  // namespace rondo::tools
