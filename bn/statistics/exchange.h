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
// On a GPU its kernels write and read the section. Thread-bound; it has no locks. One collective is
// under way at a time.
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

  // Where this rank puts its section, and after join() finds the sums over all ranks. Its memory is
  // that of the layer's device, and allocated by the first call.
  double* section() { return memory() + (on_gpu() ? 1 : 0); }
  // A word for the layer: whether K was too far from the mean. On a GPU it lies before the section.
  double* far_word() { return on_gpu() ? memory() : &far_; }

  // Starts the collective; on a GPU behind what is on the stream.
  void send(const Position& position, void* stream);
  // On the processor waits for the collective; on a GPU orders it on the stream. Throws Error.
  void join(void* stream);
  // On the processor, after join(). Throws Error(mismatch) on all ranks if they are not at the same
  // place.
  void check();

  // Waits for a collective under way and forgets it: for a destructor.
  void dissolve() noexcept;
  // Never frees the memory: a GPU may still use it.
  void lose_memory() noexcept;

 private:
  bool on_gpu() const noexcept { return device_ >= 0; }
  double* memory();
  std::size_t memory_elements() const noexcept { return elements_ + (on_gpu() ? 1 : 0); }

  Communicator* communicator_;
  const LocalCalls* calls_;
  std::size_t elements_;  // of a section
  int device_;
  Memory memory_;  // from the first pass on
  double far_ = 0;
  Work work_;
  Position position_;          // of the collective that was sent last
  std::uint64_t history_ = 0;  // on the processor
};

}  // namespace rondo::statistics
