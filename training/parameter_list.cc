// SPDX-License-Identifier: Apache-2.0
#include "training/parameter_list.h"

#include <fmt/format.h>

#include <string.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"

namespace rondo::training {

namespace {

std::optional<ListedParameter> take_parameter(base::Reader& reader) {
  ListedParameter parameter;
  parameter.name = reader.get_string(reader.left());
  parameter.type = static_cast<DType>(reader.get<std::uint8_t>());
  const auto dimensions = reader.get<std::uint32_t>();
  if (!reader.ok() || !is_valid(parameter.type)) return std::nullopt;
  if (dimensions > reader.left() / sizeof(std::uint64_t)) return std::nullopt;
  for (std::uint32_t i = 0; i < dimensions; ++i)
    parameter.shape.push_back(reader.get<std::uint64_t>());
  return parameter;
}

bool holds(std::span<const ListedParameter> list, const std::string& name) {
  return std::any_of(list.begin(), list.end(),
                     [&](const ListedParameter& each) { return each.name == name; });
}

}  // namespace

std::vector<ListedParameter> list_of(std::span<const Parameter> parameters) {
  std::vector<ListedParameter> list;
  list.reserve(parameters.size());
  for (const Parameter& each : parameters)
    list.push_back({each.name, {each.shape.begin(), each.shape.end()}, each.type});
  return list;
}

std::vector<std::uint8_t> encode_list(std::span<const ListedParameter> list) {
  base::Writer writer;
  for (const ListedParameter& each : list) {
    writer.put_string(each.name);
    writer.put(static_cast<std::uint8_t>(each.type));
    writer.put(static_cast<std::uint32_t>(each.shape.size()));
    for (const std::uint64_t dimension : each.shape) writer.put(dimension);
  }
  const std::vector<std::byte> bytes = writer.take();
  std::vector<std::uint8_t> list_bytes(bytes.size());
  std::ranges::transform(bytes, list_bytes.begin(),
                         [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return list_bytes;
}

std::optional<std::vector<ListedParameter>> decode_list(std::span<const std::uint8_t> bytes) {
  std::vector<ListedParameter> list;
  base::Reader reader(std::as_bytes(bytes));
  while (reader.left() != 0) {
    auto parameter = take_parameter(reader);
    if (!parameter) return std::nullopt;
    list.push_back(std::move(*parameter));
  }
  return list;
}

std::string describe(const ListedParameter& parameter) {
  std::string text = fmt::format("{} [", name_of(parameter.type));
  for (std::size_t i = 0; i < parameter.shape.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ", ", parameter.shape[i]);
  text += ']';
  return text;
}

Report first_difference(std::span<const ListedParameter> theirs,
                        std::span<const ListedParameter> mine) {
  using Kind = Report::Kind;
  const auto [their, own] = std::mismatch(theirs.begin(), theirs.end(), mine.begin(), mine.end());
  const auto index = static_cast<std::uint64_t>(their - theirs.begin());
  if (their == theirs.end() && own == mine.end()) return {};
  const auto found = [&](Kind kind, const ListedParameter& parameter) {
    return Report{kind, index, Errc::mismatch, parameter.name, describe(parameter)};
  };
  if (their == theirs.end()) return found(Kind::extra, *own);
  if (own == mine.end() || !holds(mine, their->name)) return found(Kind::missing, *their);
  if (own->name == their->name) return found(Kind::differs, *own);
  return found(holds(theirs, own->name) ? Kind::order : Kind::extra, *own);
}

// ---- reports ----

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

// Describes the first difference: the parameter of `ranks`, and that of `others`.
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
