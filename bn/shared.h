// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/communicator.h>

#include "bn/pool.h"

namespace rondo::bn {

class Layer;

// The names in use on a communicator. Layers with the same name, or without one, get a number each:
// the lowest that is free when the layer is made. Ranks that make the same layers in the same order
// number them alike. Thread-bound.
class LayerNames {
 public:
  // Holds the number of one layer while the layer lives.
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

// What the layers of one communicator share: threads, names, and a note of the layers that this
// rank only evaluated. The first layer attaches it to the communicator. Thread-bound.
class Shared final : public Attachment {
 public:
  static Shared& of(Communicator& communicator);

  explicit Shared(const Communicator& communicator);
  Pool& pool() noexcept { return pool_; }
  LayerNames& names() noexcept { return names_; }
  // Cores of this host for each of the communicator's ranks on it, at least 1.
  int threads_per_rank() const noexcept { return threads_; }

  void note_evaluation(std::string_view layer);
  void note_training() noexcept { evaluations_ = 0; }
  // "it evaluated bn1, bn2 and 3 others since it last trained"; empty when it did not.
  std::string evaluations() const;
  // The layers of the call under way; kept, so that later calls need no memory.
  std::vector<Layer*> list;

 private:
  static constexpr std::size_t most_named = 3;

  Pool pool_;
  LayerNames names_;
  int threads_;
  std::size_t evaluations_ = 0;
  std::string evaluated_[most_named];  // the first ones
};

}  // namespace rondo::bn
