// SPDX-License-Identifier: Apache-2.0
//
// A layer as all ranks must know it: its name, number, channels and options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <rondo/batch_norm.h>

namespace rondo::statistics {

// The names in use on a communicator. Layers with the same name, or without one, get a number each:
// the lowest that is free when the layer is made. Ranks that make the same layers in the same order
// number them alike. Thread-bound.
class LayerNames {
 public:
  // Holds the number of one layer, from 0 on, while the layer lives.
  class Use {
   public:
    Use(LayerNames& names, std::string_view name);
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    ~Use() { names_->used_.erase(used_); }
    std::size_t number() const noexcept { return used_->second; }

   private:
    LayerNames* names_;
    std::set<std::pair<std::string, std::size_t>>::iterator used_;
  };

 private:
  std::set<std::pair<std::string, std::size_t>> used_;
};

struct Identity {
  Identity(const BatchNormOptions& of, std::size_t number, std::size_t channels);
  Identity(const Identity& before, const BatchNormOptions& now);  // options have changed

  std::string title;  // "layer bn3"; "layer bn3 (2nd of this name)"; "unnamed layer 1"
  BatchNormOptions options;
  // Hashes of name, number and channels, and of these and the options that must be the same on all
  // ranks: type, layout, epsilon, momentum, affine, bias, track_running, and whether it is on a
  // GPU.
  std::uint64_t name_hash, hash;
};

// Collective, on every rank. Returns this rank's values of the options that differ between ranks: "
// with epsilon 0.001". Empty if the names differ, because then ranks are at different layers.
// Throws Error.
std::string differing_options(Communicator& communicator, const Identity& layer);

}  // namespace rondo::statistics
