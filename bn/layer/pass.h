// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <rondo/batch_norm.h>

#include "bn/layer/place.h"

namespace rondo::layer {

// One forward pass as its backward passes need it, except x.
struct PassRecord {
  std::uint64_t step = 0;  // the layer's forward passes in training, this one included
  std::size_t samples = 0, spatial = 0;  // of this rank
  TensorLayout layout = TensorLayout::nchw;
  bool in_place = false;                 // y lay over x
  std::uint64_t x_fingerprint = 0;       // on the processor
  std::unique_ptr<RecordMemory> memory;  // from the first use on
  std::unique_ptr<PassRecord> next;      // in a pool
};

// The records of one layer that no pass holds. Thread-safe: its mutex protects the list.
class PassPool {
 public:
  explicit PassPool(std::string title) noexcept : title_(std::move(title)) {}

  const std::string& title() const noexcept { return title_; }  // of the layer
  std::unique_ptr<PassRecord> take();                           // throws std::bad_alloc
  void give(std::unique_ptr<PassRecord> record) noexcept;
  // The layer has gone: from now on records are freed.
  void close() noexcept;
  bool closed() const noexcept;

 private:
  const std::string title_;
  mutable std::mutex mutex_;
  std::unique_ptr<PassRecord> free_;
  bool closed_ = false;
};

}  // namespace rondo::layer
