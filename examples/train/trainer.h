// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>
#include <rondo/gradients.h>
#include <rondo/sampler.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "examples/train/network.h"
#include "examples/train/sgd.h"

namespace train {

struct TrainerOptions {
  NetworkShape network;
  double momentum = 0.9;
  double clip = 0;  // the most that the norm of all gradients may be; 0: any
  std::size_t bucket_bytes = 4096;
  std::optional<rondo::DType> wire;
};

// What gradients' communication has cost, in microseconds summed over steps.
struct Overlap {
  double step_us = 0;     // from begin_step() until the end of finish()
  double exposed_us = 0;  // of it, while the step had nothing else to do
};

// A network, its gradients and its optimizer: one rank's part of data-parallel training.
// Thread-bound; all ranks make the same calls.
template <class T>
class Trainer {
 public:
  // Collective: rank 0's initial values become everybody's.
  Trainer(rondo::Communicator& communicator, const TrainerOptions& options);

  // One step on this rank's part of a batch, which may be empty; global_samples: how many all ranks
  // have together. Collective. The result is that of the whole batch, the same on all ranks.
  Result step(const Batch<T>& batch, std::size_t global_samples, double rate);
  // Of a whole data set, each rank taking its share. Collective; the same result on all ranks.
  Result evaluate(const Digits& digits);

  // All that a checkpoint needs: parameters, state of the optimizer, statistics of batch norm.
  std::vector<rondo::Parameter> state();
  Network<T>& network() noexcept { return network_; }
  rondo::GradientBuckets& buckets() noexcept { return buckets_; }
  const Overlap& overlap() const noexcept { return overlap_; }

 private:
  Result reduced(Result result);

  rondo::Communicator& communicator_;
  TrainerOptions options_;
  Network<T> network_;
  rondo::GradientBuckets buckets_;
  Sgd<T> optimizer_;
  Overlap overlap_;
};

extern template class Trainer<float>;
extern template class Trainer<double>;

}  // namespace train
