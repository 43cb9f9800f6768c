// SPDX-License-Identifier: Apache-2.0
//
// What rank 0 shows: the table of nccl-tests, and the progress line on a terminal.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/measure.h"

namespace rondo::tools {

// The same for all rows.
struct Setting {
  Collective operation = Collective::all_reduce;
  std::string transport;
  int ranks = 1;
  bool reduces = true;
  bool checked = true;
  bool allocated = false;
  bool shared_memory = false;  // the ceilings are of memory traffic, else of bus bandwidth
  bool has_ceiling = false;
  bool table = true;  // else the standard output is for a file
};

// Each throws OutputLost.
void print_header(const Setting& setting);
void print_rows(const Setting& setting, const Row& out_of_place,
                const std::optional<Row>& in_place);
void print_summary(const Setting& setting, const std::vector<Row>& rows);

// Percent of the ceiling; 0 when it is not known.
double percent_of_ceiling(const Setting& setting, const Row& row);
// "none" where nothing is reduced.
std::string op_name(const Setting& setting, const Row& row);
// "64 MiB f32 sum, in place"
std::string describe_row(const Setting& setting, const Row& row);

// One line on standard error, only where that is a terminal; gone afterwards.
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
