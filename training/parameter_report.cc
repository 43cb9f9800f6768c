// SPDX-License-Identifier: Apache-2.0
//
// A report: u8 kind, u8 code, u64 index little endian, from byte 16 on the name and from byte 264
// on what it is, both ended by a zero.
#include "training/parameter_report.h"

#include <fmt/format.h>

#include <string.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"

namespace rondo::training {

namespace {

constexpr std::size_t index_at = 2, name_at = 16, what_at = 264, text_bytes = 240;

void put_text(ReportBytes& bytes, std::size_t at, const std::string& text) {
  std::copy_n(text.begin(), std::min(text.size(), text_bytes),
              bytes.begin() + static_cast<std::ptrdiff_t>(at));
}

std::string text_at(const ReportBytes& bytes, std::size_t at) {
  const char* const text = reinterpret_cast<const char*>(bytes.data() + at);
  return std::string(text, ::strnlen(text, text_bytes));
}

// Says what `ranks` have at the first difference, and what `others` have there.
std::string clause_of(const Report& report, const std::string& ranks, const std::string& others,
                      std::span<const ListedParameter> theirs) {
  const bool listed = report.index < theirs.size();
  const ListedParameter common =
      listed ? theirs[static_cast<std::size_t>(report.index)] : ListedParameter{};
  switch (report.kind) {
    case Report::Kind::differs:
      return fmt::format("parameter '{}' is {} on {}, but {} on {}", report.name, describe(common),
                         others, report.what, ranks);
    case Report::Kind::missing:
      return fmt::format("parameter '{}' ({}) of {} is missing on {}", report.name, report.what,
                         others, ranks);
    case Report::Kind::extra:
      return fmt::format("parameter '{}' ({}) of {} is missing on {}", report.name, report.what,
                         ranks, others);
    default:
      return fmt::format(
          "parameter {} is '{}' on {}, but '{}' on {}; all ranks must list parameters in the same "
          "order",
          report.index, common.name, others, report.name, ranks);
  }
}

}  // namespace

ReportBytes encode(const Report& report) {
  ReportBytes bytes{};
  bytes[0] = static_cast<std::uint8_t>(report.kind);
  bytes[1] = static_cast<std::uint8_t>(report.code);
  base::store_little(std::as_writable_bytes(std::span(bytes)).data() + index_at, report.index);
  put_text(bytes, name_at, report.name);
  put_text(bytes, what_at, report.what);
  return bytes;
}

Report decode(const ReportBytes& bytes) {
  Report report;
  report.kind = bytes[0] <= static_cast<std::uint8_t>(Report::Kind::problem)
                    ? static_cast<Report::Kind>(bytes[0])
                    : Report::Kind::none;
  report.code = bytes[1] == static_cast<std::uint8_t>(Errc::unsupported) ? Errc::unsupported
                : bytes[1] == static_cast<std::uint8_t>(Errc::invalid_argument)
                    ? Errc::invalid_argument
                    : Errc::mismatch;
  report.index =
      base::load_little<std::uint64_t>(std::as_bytes(std::span(bytes)).data() + index_at);
  report.name = text_at(bytes, name_at);
  report.what = text_at(bytes, what_at);
  return report;
}

Report report_of(const ListDifference& difference) {
  return {static_cast<Report::Kind>(difference.kind), difference.index, Errc::mismatch,
          difference.name, difference.what};
}

void throw_problem(const std::vector<Report>& reports) {
  const auto is_problem = [](const Report& report) { return report.kind == Report::Kind::problem; };
  const auto first = std::find_if(reports.begin(), reports.end(), is_problem);
  if (first == reports.end())
    throw Error(Errc::corrupt,
                "some rank found a problem with its parameters, but no rank sent the problem");
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < reports.size(); ++rank)
    if (is_problem(reports[rank]) && reports[rank].name == first->name)
      ranks.push_back(static_cast<int>(rank));
  throw Error(first->code, fmt::format("on {}: {}", base::list_of_ranks(ranks), first->name));
}

void throw_difference(const std::vector<Report>& reports, std::span<const ListedParameter> theirs) {
  std::uint64_t first = theirs.size() + 1;
  for (const Report& each : reports)
    if (each.kind != Report::Kind::none) first = std::min(first, each.index);
  std::vector<int> others;  // have at `first` what most have there
  std::map<std::pair<Report::Kind, std::pair<std::string, std::string>>, std::vector<int>> groups;
  for (std::size_t rank = 0; rank < reports.size(); ++rank) {
    const Report& each = reports[rank];
    if (each.kind == Report::Kind::none || each.index > first)
      others.push_back(static_cast<int>(rank));
    else
      groups[{each.kind, {each.name, each.what}}].push_back(static_cast<int>(rank));
  }
  std::string message;
  for (const auto& [key, ranks] : groups) {
    const Report& report = reports[static_cast<std::size_t>(ranks.front())];
    const std::string clause =
        clause_of(report, base::list_of_ranks(ranks), base::list_of_ranks(others), theirs);
    message += message.empty() ? clause : fmt::format("; {}", clause);
  }
  throw Error(Errc::mismatch,
              message.empty()
                  ? std::string("models differ between ranks, but no rank sent the difference")
                  : message);
}

}  // namespace rondo::training
