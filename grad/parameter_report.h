// SPDX-License-Identifier: Apache-2.0
//
// What each rank tells all others of its model once something is wrong, and the error that all make
// of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "grad/parameter_list.h"

namespace rondo::grad {

struct Report {
  enum class Kind : std::uint8_t { none, differs, missing, extra, order, problem };
  Kind kind = Kind::none;
  std::uint64_t index = 0;  // of the parameter
  Errc code = Errc::mismatch;
  std::string name, what;  // the first 240 bytes of each travel; of a problem, name is its text
};

inline constexpr std::size_t report_bytes = 512;
using ReportBytes = std::array<std::uint8_t, report_bytes>;
ReportBytes encode(const Report& report);
Report decode(const ReportBytes& bytes);  // of any bytes

Report report_of(const ListDifference& difference);

// By rank; at least one has a problem. Names those with the problem of the lowest rank.
[[noreturn]] void throw_problem(const std::vector<Report>& reports);
// By rank, in comparison with `theirs`. Names the first parameter at which a rank differs.
[[noreturn]] void throw_difference(const std::vector<Report>& reports,
                                   std::span<const ListedParameter> theirs);

}  // namespace rondo::grad
