// SPDX-License-Identifier: Apache-2.0
//
// If models differ, each rank sends all others a report. All ranks make the same error from them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "training/parameter_list.h"

namespace rondo::training {

struct Report {
  enum class Kind : std::uint8_t { none, differs, missing, extra, order, problem };
  Kind kind = Kind::none;
  std::uint64_t index = 0;  // of the parameter
  Errc code = Errc::mismatch;
  // The first 240 bytes of each travel. For a problem, name is its text.
  std::string name, what;
};

inline constexpr std::size_t report_bytes = 512;
using ReportBytes = std::array<std::uint8_t, report_bytes>;
ReportBytes encode(const Report& report);
Report decode(const ReportBytes& bytes);  // accepts any bytes

Report report_of(const ListDifference& difference);

// Throws the problem of the lowest rank that has one, and names all ranks with that problem.
// `reports` is in the order of ranks.
[[noreturn]] void throw_problem(const std::vector<Report>& reports);
// Throws Error(mismatch) with the first parameter at which a rank differs from `theirs`. `reports`
// is in the order of ranks.
[[noreturn]] void throw_difference(const std::vector<Report>& reports,
                                   std::span<const ListedParameter> theirs);

}  // namespace rondo::training
