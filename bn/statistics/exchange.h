// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <rondo/agreement.h>
#include <rondo/communicator.h>

#include "bn/statistics/position.h"

namespace rondo::statistics {

// The collective of a layer's pass: an urgent all_reduce of f64 with this payload.
//
//     section = n, agreement(place), agreement(layer), agreement(history),
//               first[channels], second[channels]
//
//     n:        the number of elements of a channel on this rank
//     place:    see Position
//     layer:    a hash of its name, number, channels and options: see Identity
//     history:  a hash of the common point K; backward: of the one that the forward pass left
//     first, second:  forward: see moments.h; backward: the sums of dy and of dy * (x - mean)
//
// If an agreement fails, the ranks tell each other where they are.
//
// On a GPU the kernels write and read the section, and a word comes before it, which says whether K
// was too far from the mean. Thread-bound; it has no locks. One collective is under way at a time.
class Exchange {
 public:
  // How many elements of a section come before the sums.
  static constexpr std::size_t head = 1 + 3 * agreement_elements;

  // device: -1 on the processor. calls: live as long as the communicator.
  Exchange(Communicator& communicator, const LocalCalls& calls, std::size_t channels,
           int device) noexcept
      : communicator_(&communicator),
        calls_(&calls),
        elements_(head + 2 * channels),
        device_(device) {}

  // Where this rank puts its sums, and after wait() finds those of all ranks.
  std::span<double> sums() { return section().subspan(head); }
  void send(const Position& position, double count, std::uint64_t history);
  // Throws Error.
  void wait();
  // Throws Error(mismatch) on all ranks if they are not at the same place.
  void check() const;
  double count() const noexcept { return static_cast<const double*>(memory_.data())[0]; }

  // On a GPU: the address of the section, and a collective that is ordered on the stream.
  std::uintptr_t address();
  void send_on(const Position& position, void* stream);
  void join(void* stream);

  // Waits for a collective under way and forgets it: for a destructor.
  void dissolve() noexcept;
  // Never frees the memory: a GPU may still use it.
  void lose_memory() noexcept;

 private:
  bool on_gpu() const noexcept { return device_ >= 0; }
  std::span<double> section();
  void start(const Position& position, OpOptions options);
  template <class Wait>
  void finish(Wait wait);

  Communicator* communicator_;
  const LocalCalls* calls_;
  std::size_t elements_;
  int device_;
  Memory memory_;  // from the first pass on
  Work work_;
  Position position_;          // of the collective that was sent last
  std::uint64_t history_ = 0;  // on the processor
};

}  // namespace rondo::statistics
