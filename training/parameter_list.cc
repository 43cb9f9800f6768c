// SPDX-License-Identifier: Apache-2.0
#include "training/parameter_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"

namespace rondo::training {

namespace {

std::optional<Parameter> take_parameter(base::Reader& reader) {
  Parameter parameter;
  parameter.name = reader.get_string(reader.left());
  parameter.type = static_cast<DType>(reader.get<std::uint8_t>());
  const auto dimensions = reader.get<std::uint32_t>();
  if (!reader.ok() || !is_valid(parameter.type)) return std::nullopt;
  if (dimensions > reader.left() / sizeof(std::uint64_t)) return std::nullopt;
  for (std::uint32_t i = 0; i < dimensions; ++i)
    parameter.shape.push_back(static_cast<std::size_t>(reader.get<std::uint64_t>()));
  return parameter;
}

bool holds(std::span<const Parameter> list, const std::string& name) {
  return std::ranges::find(list, name, &Parameter::name) != list.end();
}

bool is_same(const Parameter& a, const Parameter& b) {
  return a.name == b.name && a.shape == b.shape && a.type == b.type;
}

}  // namespace

std::vector<std::byte> encode_list(std::span<const Parameter> list) {
  base::Writer writer;
  for (const Parameter& each : list) {
    writer.put_string(each.name);
    writer.put(static_cast<std::uint8_t>(each.type));
    writer.put(static_cast<std::uint32_t>(each.shape.size()));
    for (const std::size_t dimension : each.shape) writer.put(std::uint64_t{dimension});
  }
  return writer.take();
}

std::optional<std::vector<Parameter>> decode_list(std::span<const std::byte> bytes) {
  std::vector<Parameter> list;
  base::Reader reader(bytes);
  while (reader.left() != 0) {
    auto parameter = take_parameter(reader);
    if (!parameter) return std::nullopt;
    list.push_back(std::move(*parameter));
  }
  return list;
}

std::string describe(const Parameter& parameter) {
  return fmt::format("{} [{}]", name_of(parameter.type), base::join(parameter.shape, ", "));
}

Difference first_difference(std::span<const Parameter> theirs, std::span<const Parameter> mine) {
  using Kind = Difference::Kind;
  const auto [their, own] =
      std::mismatch(theirs.begin(), theirs.end(), mine.begin(), mine.end(), is_same);
  const auto index = static_cast<std::uint64_t>(their - theirs.begin());
  if (their == theirs.end() && own == mine.end()) return {};
  const auto found = [&](Kind kind, const Parameter& parameter) {
    return Difference{index, kind, parameter.name, describe(parameter)};
  };
  if (their == theirs.end()) return found(Kind::extra, *own);
  if (own == mine.end() || !holds(mine, their->name)) return found(Kind::missing, *their);
  if (own->name == their->name) return found(Kind::differs, *own);
  return found(holds(theirs, own->name) ? Kind::order : Kind::extra, *own);
}

std::string describe(const Difference& difference, const std::vector<int>& ranks,
                     const std::vector<int>& others, std::span<const Parameter> theirs) {
  const auto& [index, kind, name, what] = difference;
  const std::string here = base::list_of_ranks(ranks), there = base::list_of_ranks(others);
  const bool extra = kind == Difference::Kind::extra;
  if (extra || kind == Difference::Kind::missing)
    return fmt::format("parameter '{}' ({}) of {} is missing on {}", name, what,
                       extra ? here : there, extra ? there : here);
  const Parameter& common = theirs[static_cast<std::size_t>(index)];
  if (kind == Difference::Kind::differs)
    return fmt::format("parameter '{}' is {} on {}, but {} on {}", name, describe(common), there,
                       what, here);
  return fmt::format(
      "parameter {} is '{}' on {}, but '{}' on {}; all ranks must list parameters in the same "
      "order",
      index, common.name, there, name, here);
}

}  // namespace rondo::training
