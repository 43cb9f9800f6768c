// SPDX-License-Identifier: Apache-2.0
//
// Lists what the harness needs of a library that bench/hosts/overlap.py measures.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::overlap {

// One rank of a library that sums gradients over all ranks while the backward pass still runs. All
// calls come from one thread. A call that fails throws.
class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The algorithms for an all-reduce.
  virtual std::vector<std::string> algorithms() const = 0;
  // counts: elements of each tensor. Gradients become ready from the last tensor to the first, and
  // buckets hold at most bucket_bytes. The first bucket holds at most first_bucket_bytes.
  virtual void prepare(std::string_view algorithm, std::span<const std::size_t> counts,
                       std::size_t bucket_bytes) = 0;
  // The gradient's memory, valid until the next prepare(). finish() leaves the sum over all ranks
  // in it.
  virtual std::span<float> gradient(std::size_t tensor) = 0;
  virtual void begin_step() = 0;
  // The gradient is complete on this rank. Does not wait for communication.
  virtual void ready(std::size_t tensor) = 0;
  virtual void finish() = 0;
  virtual void barrier() = 0;
};

inline constexpr std::size_t first_bucket_bytes = std::size_t{1} << 20;

// Runs a rank: follows the driver's commands, which harness.cc describes, until "quit". Returns the
// exit status.
int run_rank(const std::string& control_path,
             const std::function<std::unique_ptr<Trainer>()>& make_trainer);

}  // namespace rondo::overlap
