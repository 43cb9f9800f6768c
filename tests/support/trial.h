// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "transports/transport.h"

namespace rondo::testing {

// One call of a collective.
struct Case {
  Collective operation = Collective::all_reduce;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count =
      1;  // of one block, where there are blocks; about that where each rank has a count of its own
  int root = 0;
  bool in_place = false;
  std::optional<double> scale{};
  Priority priority = Priority::bulk;
};
// One of the operations that all ranks call together.
Collective some_operation(std::uint64_t number) noexcept;
// What each rank's block of such an operation has: from nothing to half as much again as the case
// says.
std::vector<std::size_t> counts_of(const Case& what, int size);
// "all_reduce of 7 f32 max in place", for messages.
std::string describe(const Case& what);

// One rank's part of a call: its buffers with known contents, the call, and what must have become
// of the buffers. Buffers are surrounded by bytes that nobody may touch.
class Trial {
 public:
  Trial(const Case& what, int rank, int size);
  void start(Communicator& communicator);
  Work& work() noexcept { return work_; }
  // What is wrong after success; empty when nothing is.
  std::string problem() const;
  // What must hold even after a failure: an input that is not the output is as it was, and nothing
  // around the buffers has changed.
  std::string damage() const;
  // start, wait and problem; throws std::runtime_error.
  static void run(Communicator& communicator, const Case& what);

 private:
  void count_elements();
  bool gathers() const noexcept;
  std::size_t element_bytes() const noexcept { return size_of(case_.type); }
  bool is_root() const noexcept { return rank_ == case_.root; }
  bool has_input() const noexcept;
  bool has_output() const noexcept;
  Buffer input() noexcept;
  Buffer output() noexcept;
  std::string wrong_output() const;
  std::string wrong_blocks(const std::byte* out) const;

  Case case_;
  int rank_, size_;
  bool in_place_;  // here: where one of the buffers is ignored there is nothing to share
  transports::Blob in_, out_;        // with their margins; in place both are out_
  std::vector<std::size_t> counts_;  // of each rank's block
  std::size_t before_ = 0;           // elements of the blocks before this rank's
  std::size_t in_count_ = 0, out_count_ = 0;
  std::size_t in_offset_ = 0,
              out_offset_ = 0;  // elements, where one buffer is a block of the other
  Work work_;
};

}  // namespace rondo::testing
