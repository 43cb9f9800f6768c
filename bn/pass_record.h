// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <rondo/batch_norm.h>

#include "bn/device/gpu_record.h"
#include "bn/lines.h"

namespace rondo::bn {

// Whose statistics a forward pass used: those of all ranks' batches, the running ones, which do not
// depend on x, or those of this rank's batch alone.
enum class Source : std::uint8_t { all_ranks, running, own_batch };

// What a backward pass needs of its forward pass, except x.
struct PassRecord {
  explicit PassRecord(std::size_t channels)
      : mean(channels), rest(channels), m2(channels), gamma(channels) {}
  Statistics statistics() const noexcept { return {mean.data(), rest.data(), m2.data(), count}; }

  Source source = Source::all_ranks;
  bool ready = false;         // the forward pass has ended well
  bool in_place = false;      // y lay over x
  bool relu = false;          // y was put through a ReLU
  std::uint64_t step = 0;     // the layer's forward passes in training, this one included
  std::uint64_t history = 0;  // Layer::history() after the forward pass
  std::size_t samples = 0, spatial = 0;  // of this rank
  TensorLayout layout = TensorLayout::nchw;
  std::uint64_t x_fingerprint = 0;
  double count = 0;                           // 1 for running statistics
  std::vector<double> mean, rest, m2, gamma;  // empty for a layer on a GPU
  std::unique_ptr<GpuRecord> gpu;             // null: not yet used there
};

// The records of one layer that no pass holds. Thread-safe: its mutex protects the list.
class PassPool {
 public:
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

}  // namespace rondo::bn
