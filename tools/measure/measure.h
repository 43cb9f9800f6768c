// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/traits.h"
#include "tools/measure/conditions.h"
#include "tools/measure/iterations.h"
#include "tools/measure/messages.h"
#include "tools/measure/pattern.h"
#include "tools/measure/row.h"

namespace rondo::tools {

// Measures calls of operations. All ranks make the same calls in the same order. A failure of
// the communicator throws and ends the measurement.
class Measurement {
 public:
  // Takes memory for the largest size and number of calls in flight: of the GPU, if there is one,
  // which outlives the object. Its stream then orders the operations.
  Measurement(Communicator& communicator, const Iterations::Context& context,
              std::uint64_t most_calls, IterationHook hook, GpuStream* gpu = nullptr);

  // Chooses the operation of the rows that follow. Call it before the first row.
  void choose(Operation operation, const Variant& variant);
  // iterations: how many to time, without warmups; 0: as the conditions say.
  Row measure(std::uint64_t bytes, bool in_place, std::uint64_t iterations = 0);
  // The row that measure() of this size returns, without its measurements.
  Row describe(std::uint64_t bytes, bool in_place) const;
  // The memory of all rows, where it is on the host; each row fills it anew.
  std::span<std::byte> in() { return {static_cast<std::byte*>(in_.data()), in_.bytes()}; }
  std::span<std::byte> out() { return {static_cast<std::byte*>(out_.data()), out_.bytes()}; }

 private:
  // Where the operands of a call are.
  struct Operands {
    Buffer in, out;
  };
  // Part of an output: elements first, first + 1, ... of what comes from rank `block`.
  struct Part {
    std::byte* data;
    std::size_t first, count;
    int block;
  };
  BenchMemory take(std::size_t bytes);
  std::byte* host(std::byte* data) const;
  void cut(std::size_t count);
  Operands place(std::size_t count, bool in_place) const;
  const base::Traits& traits() const { return call_.operation.traits(); }
  int device() const { return gpu_ != nullptr ? gpu_->device() : -1; }
  int sender() const;
  bool reads() const { return base::holds_some(traits().in, call_.rank == call_.root); }
  bool writes() const { return base::holds_some(traits().out, call_.rank == call_.root); }
  template <class Function>
  void for_each_part(const Operands& operands, Function function) const;
  Operands operands_of(std::size_t call, const Operands& first) const;
  void poison(const Operands& operands, bool in_place, std::uint64_t data);
  Work start(const Operands& operands);
  Work exchange(const Operands& operands);
  std::uint64_t check(const Operands& operands, std::uint64_t data) const;
  void write_all(const Operands& first, bool in_place);
  std::uint64_t check_all(const Operands& first);
  void be_late() const;
  Timed iterate(const Operands& first, bool in_place);
  void measure_calls(Row& row, const Operands& first);
  void measure_pairs(Row& row, const Operands& first);

  Communicator& communicator_;
  const Conditions& conditions_;
  Stop& stop_;
  Iterations iterations_;
  GpuStream* gpu_;  // null: the buffers are in host memory
  OpOptions call_options_;
  BenchMemory in_, out_;
  Call call_;
  Pattern pattern_;
  std::vector<std::size_t> counts_;  // of the blocks of the row that is being measured
  std::size_t before_ = 0;           // elements in the blocks before this rank's
  bool checked_ = false;
  bool fresh_ = false;  // inputs are written before every iteration, not only before the first
  std::size_t distance_ = 0;  // bytes from a call's buffers to those of the next in its iteration
  std::size_t used_ = 0;      // bytes of in_ and out_ that the calls of an iteration use
  std::vector<Work> works_;   // the calls of an iteration
  // Counts calls through all rows, so that each has its own data.
  std::uint64_t calls_ = 0;
};

}  // namespace rondo::tools
