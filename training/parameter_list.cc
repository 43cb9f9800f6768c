// SPDX-License-Identifier: Apache-2.0
#include "training/parameter_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/bytes.h"

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

ListDifference first_difference(std::span<const ListedParameter> theirs,
                                std::span<const ListedParameter> mine) {
  using Kind = ListDifference::Kind;
  const auto [their, own] = std::mismatch(theirs.begin(), theirs.end(), mine.begin(), mine.end());
  const auto index = static_cast<std::uint64_t>(their - theirs.begin());
  if (their == theirs.end() && own == mine.end()) return {};
  const auto found = [&](Kind kind, const ListedParameter& parameter) {
    return ListDifference{kind, index, parameter.name, describe(parameter)};
  };
  if (their == theirs.end()) return found(Kind::extra, *own);
  if (own == mine.end() || !holds(mine, their->name)) return found(Kind::missing, *their);
  if (own->name == their->name) return found(Kind::differs, *own);
  return found(holds(theirs, own->name) ? Kind::order : Kind::extra, *own);
}

}  // namespace rondo::training
