// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "support/gpu_memory.h"
#include "transports/transport.h"

namespace rondo::testing {

// One call of a collective.
struct Case {
  Collective operation = Collective::all_reduce;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  std::size_t count =
      1;  // of one block, where there are blocks; counts_of() varies it where counts differ
  int root = 0;
  bool in_place = false;
  std::optional<double> scale{};
  Priority priority = Priority::bulk;
};
// Returns one of the operations that all ranks call together.
Collective some_operation(std::uint64_t number) noexcept;
// The count of each rank's block. Where an operation allows different counts they are from 0 to 1.5
// times the count of the case.
std::vector<std::size_t> counts_of(const Case& what, int size);
// "all_reduce of 7 f32 max in place", for messages.
std::string describe(const Case& what);

// One rank's part of a call. It makes buffers with known contents, starts the call, and checks the
// buffers afterwards. Margins around the buffers must not change.
class Trial {
 public:
  Trial(const Case& what, int rank, int size);
  // Registers the buffers until the trial ends.
  void register_memory(Communicator& communicator);
  // Moves the buffers to the GPU. problem() and damage() then look at them there. The copier must
  // outlive the trial.
  void place_on(GpuCopier& copier);
  // Moves the buffers into memory that the caller keeps, of the GPU or of the host. It must have at
  // least bytes().
  void place_at(GpuCopier& copier, device::Address memory);
  void place_at(std::byte* memory);
  std::size_t bytes() const noexcept { return in_.size() + out_.size(); }
  void start(Communicator& communicator);
  // The options of the call. start() sets the scale and the priority of the case.
  OpOptions& options() noexcept { return options_; }
  Work& work() noexcept { return work_; }
  // Returns what is wrong after a successful call; empty when nothing is.
  std::string problem();
  // Returns what is wrong even after a failed call: an input that is not the output has changed, or
  // the margins have. Empty when nothing is.
  std::string damage();
  // Does start, wait and problem. Throws std::runtime_error with the problem.
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
  // A buffer of the call that begins at this byte of `memory`.
  Buffer buffer(transports::Blob& memory, std::size_t offset, std::size_t count) noexcept;
  void fetch();
  std::string what_is_damaged() const;
  std::string wrong_output() const;
  std::string wrong_blocks(const std::byte* out) const;

  Case case_;
  int rank_, size_;
  bool in_place_;              // false where this rank ignores one of the buffers
  transports::Blob in_, out_;  // with their margins; in place both are out_
  Registration in_registration_, out_registration_;
  GpuCopier* copier_ = nullptr;
  std::optional<device::DeviceMemory> gpu_memory_;
  std::byte *placed_in_ = nullptr, *placed_out_ = nullptr;  // where in_ and out_ are copied to
  OpOptions options_;
  std::vector<std::size_t> counts_;  // of each rank's block
  std::size_t before_ = 0;           // elements of the blocks before this rank's
  std::size_t in_count_ = 0, out_count_ = 0;
  std::size_t in_offset_ = 0,
              out_offset_ = 0;  // elements, where one buffer is a block of the other
  Work work_;
};

}  // namespace rondo::testing
