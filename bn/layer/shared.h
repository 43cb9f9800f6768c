// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <rondo/communicator.h>

#include "bn/layer/late_check.h"
#include "bn/layer/pool.h"
#include "bn/statistics/position.h"
#include "lib/inner.h"

namespace rondo::layer {

struct Model;

// Things that the layers of one communicator share: threads, GPUs, names, notes of local calls. The
// first layer attaches it to the communicator. When the communicator ends, it tells the layers that
// remain (Model::orphan). Thread-bound.
class Shared final : public lib::Attachment {
 public:
  static Shared& of(Communicator& communicator);

  explicit Shared(const Communicator& communicator);
  ~Shared() override;
  Pool& pool() noexcept { return pool_; }
  statistics::LayerNames& names() noexcept { return names_; }
  // Cores of this host for each of the communicator's ranks on it, at least 1.
  int threads_per_rank() const noexcept { return threads_; }

  void join(Model& layer) { layers_.push_back(&layer); }
  void leave(Model& layer) {
    std::erase(layers_, &layer);
    late_check_.forget(layer);
  }

  LateCheck& late_check() noexcept { return late_check_; }
  // The kernels on a GPU. Throws Error, as GpuKernels.
  std::shared_ptr<GpuKernels> kernels_on(int ordinal);

  statistics::LocalCalls& local_calls() noexcept { return local_calls_; }

 private:
  Pool pool_;
  statistics::LayerNames names_;
  int threads_;
  std::vector<Model*> layers_;
  statistics::LocalCalls local_calls_;
  std::map<int, std::shared_ptr<GpuKernels>> gpus_;
  LateCheck late_check_;
};

}  // namespace rondo::layer
