// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::overlap {

// One rank of a library that averages gradients while the backward pass still runs. All calls come
// from one thread; a call that fails throws.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The ways in which it can run an all-reduce.
  virtual std::vector<std::string> algorithms() const = 0;
  // Tensors of so many elements each, whose gradients become ready from the last to the first, in
  // buckets of at most so many bytes.
  virtual void prepare(std::string_view algorithm, std::span<const std::size_t> counts,
                       std::size_t bucket_bytes) = 0;
  // Valid until the end of the step. Summed over all ranks by it.
  virtual std::span<float> gradient(std::size_t tensor) = 0;
  virtual void begin_step() = 0;
  // Returns before anything has travelled.
  virtual void ready(std::size_t tensor) = 0;
  virtual void finish() = 0;
  virtual void barrier() = 0;
};

inline constexpr std::size_t first_bucket_bytes = std::size_t{1} << 20;

// The whole life of a rank; see harness.cc for the lines that are exchanged with the driver.
// Returns the exit status.
int run_rank(const std::string& control_path,
             const std::function<std::unique_ptr<Trainer>()>& make_trainer);

}  // namespace rondo::overlap
