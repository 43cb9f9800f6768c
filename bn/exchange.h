// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/agreement.h>
#include <rondo/batch_norm.h>

#include "bn/late_check.h"

namespace rondo::bn {

class GpuLayer;
class Layer;

// The collective of one pass of one or several layers. Its payload is f64, summed over ranks, with
// a section for each layer, one after the other:
//
//     section = n, agreement(place), agreement(layer), agreement(history),
//               first[channels], second[channels]
//
//     n:        the number of elements of a channel on this rank
//     place:    4 * step + pass (0 forward, 1 backward, 2 forward about the mean that the first
//               sums gave); step is the number of the forward pass, in backward too
//     layer:    a hash of its name, number, channels and options
//     history:  a hash of the common point K; backward: of the one that the forward pass left
//     first, second:  forward: see merge.h; backward: the sums of dy and of dy * (x - mean)
//
// Up to the first layer that differs, sections lie at the same places on all ranks: the hash of a
// layer covers its channels. If an agreement fails, the ranks tell each other where they are
// (throw_disagreement).
//
// On a GPU a word comes before each section, which says whether K was too far from the mean
// (bn/device/arguments.h). The host enqueues what follows without knowing the sums; LateCheck looks
// at them in the next pass. Only where K may well be too far does it wait for them: in a layer's
// first pass, and after one in which it was. All ranks see the same sums, so all do the same.
// Thread-bound; it has no locks.
class Exchange {
 public:
  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // How many elements of a section come before the sums.
  static constexpr std::size_t head = 1 + 3 * agreement_elements;

  // Packs the payload and starts the collective. The layers must have begun the pass. Throws Error.
  void start(std::span<Layer* const> layers, Pass pass);
  // Waits and gives the sums to the layers. Starts another collective if one of them asks for it.
  // Throws Error. Afterwards no layer is in it, also after an error.
  void finish();
  // Waits and forgets the layers: for the destructor of one of them.
  void dissolve() noexcept;
  // Never frees the memory: a GPU may still use it.
  void lose_memory() noexcept;

  std::span<Layer* const> layers() const noexcept { return layers_; }
  Pass pass() const noexcept { return pass_; }

 private:
  enum class Place : std::uint8_t { forward, backward, forward_again };

  GpuLayer* gpu() const noexcept;  // null on the processor
  void reserve(Communicator& communicator);
  void send(Place place);
  void put(Place place) const;
  void put_on_gpu(Place place);
  void finish_on_host();
  void finish_on_gpu();
  void finish_carefully_on_gpu(GpuReport& report);
  void check_agreement() const;
  bool agreed_in_report(const GpuReport& report) const;
  bool deliver();
  Position position(std::size_t index) const;
  std::vector<Position> positions() const;
  std::span<double> payload() const noexcept;
  void release() noexcept;
  struct Release {
    Exchange& exchange;
    ~Release() { exchange.release(); }
  };

  std::vector<Layer*> layers_;
  Pass pass_ = Pass::forward;
  Place place_ = Place::forward;
  Memory memory_;
  std::size_t elements_ = 0;
  std::vector<std::uintptr_t> sections_;  // on a GPU: their addresses
  Work work_;
};

}  // namespace rondo::bn
