// SPDX-License-Identifier: Apache-2.0
//
// One training run of the example's network, dealt to ranks in any way, and what it leaves.
#pragma once

#include <rondo/communicator.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "examples/train/trainer.h"
#include "support/ranks.h"

namespace rondo::testing {

struct Job {
  std::vector<std::size_t> split;  // samples of each rank in every batch
  std::size_t steps = 200;
  train::NormMode norms = train::NormMode::sync;
  std::size_t bucket_bytes = 4096;
  double clip = 0;
  std::uint64_t seed = 7;         // of pictures
  std::size_t least_buckets = 1;  // fewer would not test buckets: then the run fails
};

// A tensor at the end of a run: its values and their bits.
struct Tensor {
  std::string name;
  std::vector<double> values;
  std::string bits;
};
using Tensors = std::vector<Tensor>;

// Trains on this rank. The split does not change the pictures of a batch or their order.
template <class T>
Tensors train_job(Communicator& communicator, const Job& job);

// Trains on one thread for each rank of the job's split. Throws unless all ranks end with the same
// bits.
template <class T>
Tensors train_ranks(const Job& job, Setup setup = {});

// The largest difference of a value, divided by the largest value of its tensor, and the name of
// that tensor. The points about which batch norm sums are left out: they depend on the split.
struct Difference {
  double relative = 0;
  std::string tensor;
};
Difference difference(const Tensors& a, const Tensors& b);
bool same_bits(const Tensors& a, const Tensors& b);

}  // namespace rondo::testing
