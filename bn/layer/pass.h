// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rondo/batch_norm.h>

#include "bn/layer/device/objects.h"
#include "bn/layer/kernels/coefficients.h"

namespace rondo::layer {

// One forward pass as its backward passes need it, except x.
struct PassRecord {
  explicit PassRecord(std::size_t channels)
      : mean(channels), rest(channels), m2(channels), gamma(channels) {}
  ChannelStatistics at(std::size_t channel) const noexcept {
    return {mean[channel], rest[channel], m2[channel], count};
  }

  std::uint64_t step = 0;     // the layer's forward passes in training, this one included
  std::uint64_t history = 0;  // a hash of the point of the sums that the pass left
  std::size_t samples = 0, spatial = 0;  // of this rank
  TensorLayout layout = TensorLayout::nchw;
  bool in_place = false;  // y lay over x
  std::uint64_t x_fingerprint = 0;
  double count = 0;                           // of all ranks; 1 for running statistics
  std::vector<double> mean, rest, m2, gamma;  // empty for a layer on a GPU
  std::unique_ptr<GpuRecord> gpu;             // null: not yet used there
};

// The records of one layer that no pass holds. Thread-safe: its mutex protects the list.
class PassPool {
 public:
  // channels: those of a record's vectors.
  PassPool(std::string title, std::size_t channels) noexcept;

  const std::string& title() const noexcept { return title_; }  // of the layer
  std::unique_ptr<PassRecord> take();                           // throws std::bad_alloc
  void give(std::unique_ptr<PassRecord> record) noexcept;
  // The layer has gone: from now on records are freed.
  void close() noexcept;
  bool closed() const noexcept;

 private:
  const std::string title_;
  const std::size_t channels_;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<PassRecord>> free_;  // has room for all records
  std::size_t made_ = 0;
  bool closed_ = false;
};

}  // namespace rondo::layer
