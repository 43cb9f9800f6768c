// SPDX-License-Identifier: Apache-2.0
//
// What rank 0 prints: a table in the form of nccl-tests, and a progress line on a terminal.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/ceilings/ceiling.h"
#include "tools/measure/gpu.h"
#include "tools/measure/measure.h"
#include "tools/ranks/bind.h"

namespace rondo::tools {

// The same for all rows.
struct Setting {
  Operation operation = Collective::all_reduce;
  std::string transport;
  int ranks = 1;
  Bound bound = Bound::none;      // rank 0, by its affinity mask
  base::ProcessorSet processors;  // of this mask
  bool reduces = true;
  bool checked = true;
  std::uint64_t in_a_row = 1;  // calls of one iteration; in one direction the window
  bool fresh = true;           // inputs are written before every iteration
  bool allocated = false;
  bool direct = false;            // the algorithm was set
  const BenchGpu* gpu = nullptr;  // of rank 0; null: the buffers are in host memory
  CeilingOf ceiling_of = CeilingOf::none;
  bool table = true;  // false: the standard output is one of the files

  bool one_way() const { return operation == Operation::one_way(); }
};

// Each throws OutputLost.
void print_header(const Setting& setting);
void print_rows(const Setting& setting, const Row& out_of_place,
                const std::optional<Row>& in_place);
void print_summary(const Setting& setting, const std::vector<Row>& rows);

// Percent of the ceiling; 0 when it is not known.
double percent_of_ceiling(const Setting& setting, const Row& row);
// The ceiling of this row; none if it is not known.
CeilingOf ceiling_of(const Setting& setting, const Row& row);
// "none" where nothing is reduced.
std::string op_name(const Setting& setting, const Row& row);
// How many calls an iteration has, for the title: ", 70 calls in a row"; empty for one.
std::string describe_calls(const Setting& setting);
// How operations move bytes of a GPU.
inline std::string_view gpu_staging(const Setting& setting) noexcept {
  if (!setting.direct) return "pinned host memory";
  return setting.allocated ? "pinned host memory up to 16 KiB"
                           : "pinned host memory up to 16 KiB and slots of the GPU";
}
// "all_reduce 64 MiB f32 sum, in place"
std::string describe_row(const Setting& setting, const Row& row);

// Shows one line on standard error, only where that is a terminal; erase() removes it.
class Progress {
 public:
  explicit Progress(bool wanted);
  void show(const std::string& text);  // at most ten times a second
  void erase();
  bool active() const noexcept { return active_; }

 private:
  bool active_, shown_ = false;
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace rondo::tools
