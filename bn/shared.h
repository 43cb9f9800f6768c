// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/communicator.h>

#include "bn/late_check.h"
#include "bn/local_calls.h"
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

// What the layers of one communicator share: threads, GPUs, names, and notes of local calls. The
// first layer attaches it to the communicator. When the communicator ends, it tells the layers that
// remain (Layer::orphan). Thread-bound.
class Shared final : public Attachment {
 public:
  static Shared& of(Communicator& communicator);

  explicit Shared(const Communicator& communicator);
  ~Shared() override;
  Pool& pool() noexcept { return pool_; }
  LayerNames& names() noexcept { return names_; }
  // Cores of this host for each of the communicator's ranks on it, at least 1.
  int threads_per_rank() const noexcept { return threads_; }

  void join(Layer& layer) { layers_.push_back(&layer); }
  void leave(Layer& layer) {
    std::erase(layers_, &layer);
    late_check_.forget(layer);
  }

  LateCheck& late_check() noexcept { return late_check_; }
  // The kernels on a GPU. Throws Error, as GpuKernels.
  std::shared_ptr<GpuKernels> kernels_on(int ordinal);

  LocalCalls& local_calls() noexcept { return local_calls_; }
  // The layers of the call under way; kept, so that later calls need no memory.
  std::vector<Layer*> list;

 private:
  Pool pool_;
  LayerNames names_;
  int threads_;
  std::vector<Layer*> layers_;
  LocalCalls local_calls_;
  std::map<int, std::shared_ptr<GpuKernels>> gpus_;
  LateCheck late_check_;
};

}  // namespace rondo::bn
