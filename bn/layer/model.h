// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <rondo/batch_norm.h>

#include "bn/layer/shared.h"
#include "bn/statistics/identity.h"
#include "bn/statistics/position.h"

namespace rondo::layer {

bool is_float_of_layer(DType type) noexcept;  // f64, f32, f16, bf16

// Where batches of different kinds alternate, the point is far again and again.
inline constexpr int doubts_after_far = 16;

// A layer's options and memory, wherever it computes. Thread-bound. It may outlive its
// communicator.
struct Model {
  // Throws Error(invalid_argument) for what cannot be.
  Model(Communicator& communicator, std::size_t channels, BatchNormOptions options);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();

  void orphan() noexcept;  // the communicator ends
  // The sums of a forward pass on a GPU, which the host sees later.
  void take_report(double count_of_all, bool far) noexcept;
  // Takes over momentum, threads and deadline. Throws Error(invalid_argument); then nothing
  // changes.
  void set_options(const BatchNormOptions& wanted);

  // "rank 2: batch norm layer bn3", for errors of this rank alone
  std::string who() const;
  bool has_gamma() const noexcept { return options.affine; }
  bool has_beta() const noexcept { return options.affine && options.bias; }
  TensorLayout layout_of(const Activations& x) const noexcept {
    return x.layout.value_or(options.layout);
  }
  std::size_t bytes_of(const Activations& x) const noexcept {
    return x.samples * x.spatial * channels * size_of(options.type);
  }
  // For the batch that was counted last.
  double momentum() const noexcept {
    return options.momentum.value_or(1 / static_cast<double>(batches));
  }
  statistics::Position position(statistics::Pass pass, std::uint64_t step,
                                bool again = false) const {
    return {identity, pass, step, again};
  }

  Communicator* communicator;  // null once it has gone, likewise shared and name
  Shared* shared;
  const int rank;
  const std::size_t channels;
  BatchNormOptions options;
  std::optional<statistics::LayerNames::Use> name;
  std::shared_ptr<const statistics::Identity> identity;  // another when options change
  BatchNormBuffers buffers;                              // the layer's own, unless bound elsewhere
  std::uint64_t batches = 0;                             // in the running statistics
  // On a GPU: `batches` includes a pass that the host has not looked at yet.
  bool counted_unseen = false;
  int doubts = 1;  // on a GPU: passes to come whose sums the host looks at before their end
  std::uint64_t steps = 0;  // forward passes begun
  double count = 0;         // of all ranks, in the last pass that was looked at
};

}  // namespace rondo::layer
