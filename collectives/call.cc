// SPDX-License-Identifier: Apache-2.0
#include "collectives/call.h"

#include <fmt/format.h>

#include <array>

namespace rondo {

std::string describe_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, units[unit]);
}

std::string describe_arguments(const Signature& s) {
  if (s.operation == Collective::barrier) return "no data";
  const std::uint64_t bytes = s.count * size_of(s.type);
  std::string text = bytes >= 1024 && bytes % 1024 == 0
                         ? fmt::format("{} {}", describe_bytes(bytes), name_of(s.type))
                         : fmt::format("{} {}", s.count, name_of(s.type));
  if (is_reducing(s.operation)) text += fmt::format(" {}", name_of(s.op));
  if (is_reducing(s.operation) && s.scale != 1) text += fmt::format(" times {}", s.scale);
  if (has_root(s.operation)) text += fmt::format(", root {}", s.root);
  return text;
}

std::string describe_call(const Signature& s, std::uint64_t number, Priority lane, std::string_view tag,
                          std::string_view transport) {
  std::string text = fmt::format("{} #{}", name_of(s.operation), number);
  if (lane == Priority::urgent) text = "urgent " + text;
  if (!tag.empty()) text += fmt::format(" \"{}\"", tag);
  text += fmt::format(" ({}", describe_arguments(s));
  if (!transport.empty()) text += fmt::format(", {} over {}", name_of(s.algorithm), transport);
  return text + ")";
}

}  // namespace rondo
