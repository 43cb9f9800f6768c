// SPDX-License-Identifier: Apache-2.0
#include "grad/parameter_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace rondo::grad {

namespace {

template <class T>
void put(std::vector<std::uint8_t>& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i)
    out.push_back(static_cast<std::uint8_t>(value >> (8 * i)));
}

class Reader {
 public:
  explicit Reader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}

  bool at_end() const noexcept { return rest_.empty(); }
  std::size_t left() const noexcept { return rest_.size(); }
  template <class T>
  std::optional<T> take() {
    if (rest_.size() < sizeof(T)) return std::nullopt;
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::uint64_t{rest_[i]} << (8 * i);
    rest_ = rest_.subspan(sizeof(T));
    return static_cast<T>(value);
  }
  std::optional<std::string> take_text(std::size_t bytes) {
    if (rest_.size() < bytes) return std::nullopt;
    std::string text(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(bytes));
    rest_ = rest_.subspan(bytes);
    return text;
  }

 private:
  std::span<const std::uint8_t> rest_;
};

std::optional<ListedParameter> take_parameter(Reader& reader) {
  ListedParameter parameter;
  const auto name_bytes = reader.take<std::uint32_t>();
  if (!name_bytes) return std::nullopt;
  auto name = reader.take_text(*name_bytes);
  const auto type = reader.take<std::uint8_t>();
  const auto dimensions = reader.take<std::uint32_t>();
  if (!name || !type || !dimensions || !is_valid(static_cast<DType>(*type))) return std::nullopt;
  if (*dimensions > reader.left() / sizeof(std::uint64_t)) return std::nullopt;
  parameter.name = std::move(*name);
  parameter.type = static_cast<DType>(*type);
  for (std::uint32_t i = 0; i < *dimensions; ++i)
    parameter.shape.push_back(*reader.take<std::uint64_t>());
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
  std::vector<std::uint8_t> bytes;
  for (const ListedParameter& each : list) {
    put(bytes, static_cast<std::uint32_t>(each.name.size()));
    bytes.insert(bytes.end(), each.name.begin(), each.name.end());
    put(bytes, static_cast<std::uint8_t>(each.type));
    put(bytes, static_cast<std::uint32_t>(each.shape.size()));
    for (const std::uint64_t dimension : each.shape) put(bytes, dimension);
  }
  return bytes;
}

std::optional<std::vector<ListedParameter>> decode_list(std::span<const std::uint8_t> bytes) {
  std::vector<ListedParameter> list;
  Reader reader(bytes);
  while (!reader.at_end()) {
    auto parameter = take_parameter(reader);
    if (!parameter) return std::nullopt;
    list.push_back(std::move(*parameter));
  }
  return list;
}

// FNV-1a, whose upper bits are good, and the finalizer of splitmix64 for the lower ones.
std::uint64_t hash_of(std::span<const std::uint8_t> bytes) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const std::uint8_t byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebu;
  return hash ^ (hash >> 31);
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

}  // namespace rondo::grad
