// SPDX-License-Identifier: Apache-2.0
//
// The output of rank 0: a table, and a progress line on a terminal.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "tools/measure/row.h"
#include "tools/records/write.h"

namespace rondo::tools {

// The form of the table. narrow: a line for each row, at most 120 columns. wide: a line for each
// size, as nccl-tests prints it.
enum class Form : unsigned char { narrow, wide };

// The rows of one operation follow. Each throws OutputLost.
void print_header(const Setting& setting, Form form, const Operation& operation,
                  CeilingOf ceiling_of);
void print_rows(const Setting& setting, Form form, const Row& out_of_place,
                const std::optional<Row>& in_place);
void print_summary(const Setting& setting, const std::vector<Row>& rows);
// The ranks in the order in which they were late, over all rows.
void print_stragglers(const Setting& setting, const std::vector<Row>& rows);

// Describes the calls, for the title: ", 70 calls in a row, inputs written anew".
std::string describe_calls(const Setting& setting);

// A number with fewer decimals the larger it is, so that all fit into one column.
std::string short_number(double value);
// "3 97% 5.1ms": the rank that was last most often, how often, and by how much; "-": not known.
std::string describe_late(const Row& row);
// The number of wrong elements, or "N/A".
std::string wrong_of(const Setting& setting, const Row& row);
// "12 s", "3 min", "2 h 10 min"
std::string describe_time_left(double seconds);

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
