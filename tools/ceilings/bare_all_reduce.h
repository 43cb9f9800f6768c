// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace rondo::tools {

// One rank of an all-reduce (f32, sum) that does only what each all-reduce on ordinary memory must
// do. A rank copies what the others need of its input into shared memory. They read it while it is
// in a cache, and sum. It has no protocol, no safety and no sleep, so its time is what moving data
// between cores costs. Thread-bound. All ranks make the same calls in the same order. Each call but
// the constructor waits for other ranks, and throws what `look` throws. After that the object may
// only be destroyed.
class BareAllReduce {
 public:
  // Called again and again while this rank waits, with the time since the wait began: never in the
  // first microseconds. It throws to end the wait.
  using Look = std::function<void(std::chrono::steady_clock::duration waited)>;

  static std::size_t memory_bytes(int ranks) noexcept;

  // `memory` is memory_bytes(size) of zeros that all ranks have mapped, at the start of a page.
  BareAllReduce(int rank, int size, std::byte* memory, Look look);

  // Tries all ways to cut such a call, several times each. Takes the one with the fastest median on
  // rank 0, and returns that median in seconds: the same on all ranks. The buffers are those of the
  // calls that follow. Both have the same size, a multiple of 4.
  double prepare(std::span<const std::byte> input, std::span<std::byte> output);
  void all_reduce();
  void barrier();

 private:
  struct Slot;
  struct Shared;
  // How a call is cut. In one shot every rank sums everything. In two shots rank r sums part r of
  // each chunk, and the others copy the sum.
  struct Cut {
    bool two_shots;
    std::size_t chunk_bytes;
  };
  static const std::array<Cut, 6> cuts;
  struct Extent {
    std::size_t begin, bytes;
  };

  double median_seconds(int trials);
  void offer(std::size_t chunk);
  void sum(std::size_t chunk);
  void collect(std::size_t chunk);
  Shared& of(int rank) const;
  Extent chunk_at(std::size_t chunk) const;
  Extent part_of(const Extent& whole, int rank) const;
  bool has_a_core_for_each() const;
  template <class Atomic>
  void wait_for(const Atomic& value, std::uint64_t least) const;

  const int rank_, size_;
  Shared* const ranks_;
  const Look look_;
  bool yields_ = true;
  std::span<const std::byte> input_;
  std::span<std::byte> output_;
  Cut cut_;
  std::uint64_t barriers_ = 0;
  std::uint64_t done_ = 0;  // chunks of earlier calls
  std::vector<const std::byte*> sources_;
};

}  // namespace rondo::tools
