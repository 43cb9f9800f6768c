// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/gradients.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "examples/train/digits.h"
#include "examples/train/head.h"
#include "examples/train/stage.h"

namespace train {

// The samples of batch norm's statistics: of all ranks together, or of each rank alone; or no batch
// norm.
enum class NormMode : std::uint8_t { sync, local, none };

template <class T>
struct Batch {
  std::vector<T> pixels;  // [samples, image_pixels], from -2 to 2
  std::vector<int> labels;
  std::vector<double> weights;  // of the samples in metrics; empty: all are 1

  std::size_t samples() const noexcept { return labels.size(); }
  void clear() noexcept {
    pixels.clear();
    labels.clear();
    weights.clear();
  }
  void add(const Digits& digits, std::size_t index);
};

struct NetworkShape {
  std::vector<std::size_t> channels = {
      8, 16, 32};  // of the stages; the first keeps the side, the others halve it
  NormMode norms = NormMode::sync;
  std::uint64_t seed = 1;
};

// A convolutional network for pictures of digits. Thread-bound.
template <class T>
class Network {
 public:
  // Collective when norms are local (it splits the communicator).
  Network(rondo::Communicator& communicator, const NetworkShape& shape);
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  std::vector<rondo::Parameter> parameters();  // trained, in the order of the forward pass
  std::vector<rondo::Parameter> buffers();     // not trained: the statistics for evaluation
  std::vector<std::uint64_t> norm_batches();
  void set_norm_batches(const std::vector<std::uint64_t>& batches);

  // A batch may have no samples: batch norm is collective, so this rank must still take part. The
  // batch must stay until backward.
  Result forward(const Batch<T>& batch, bool training);
  // Call it after forward(batch, true). Adds the gradients of scale * (sum of losses) to the views
  // of the buckets in backward order, and marks each ready as soon as it is complete.
  void backward(const Batch<T>& batch, double scale, rondo::GradientBuckets& buckets);

 private:
  std::optional<rondo::Communicator> alone_;  // of one rank, for local norms
  std::vector<Stage<T>> stages_;
  std::optional<Head<T>> head_;
  std::vector<const T*> inputs_;        // of each stage, in the last forward
  std::vector<std::vector<T>> passed_;  // gradients of the output of each stage
};

extern template struct Batch<float>;
extern template struct Batch<double>;
extern template class Network<float>;
extern template class Network<double>;

}  // namespace train
