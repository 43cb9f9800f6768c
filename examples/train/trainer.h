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
  double clip = 0;  // the largest norm of all gradients together; 0: no limit
  std::size_t bucket_bytes = 4096;
  std::optional<rondo::DType> wire;
};

// The cost of communicating gradients, in microseconds summed over steps.
struct Overlap {
  double step_us = 0;     // from begin_step() until the end of finish()
  double exposed_us = 0;  // the part of it in which the step only waited
};

// A network, its gradients and its optimizer: one rank's part of data-parallel training.
// Thread-bound; all ranks make the same calls.
template <class T>
class Trainer {
 public:
  // Collective: all ranks get the initial values of rank 0.
  Trainer(rondo::Communicator& communicator, const TrainerOptions& options);

  // Does one step with this rank's part of a batch, which may be empty. global_samples: the samples
  // of all ranks together. Collective. Returns the result of the whole batch, the same on all
  // ranks.
  Result step(const Batch<T>& batch, std::size_t global_samples, double rate);
  // Tests a whole data set; each rank takes a share. Collective. All ranks get the same result.
  Result evaluate(const Digits& digits);

  // All that a checkpoint needs: parameters, state of the optimizer, statistics of batch norm.
  std::vector<rondo::Parameter> state();
  Network<T>& network() noexcept { return network_; }
  const rondo::GradientBuckets& buckets() const noexcept { return buckets_; }
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
