// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/call.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace rondo::schedules {

bool same_arguments(const Signature& a, const Signature& b) noexcept {
  return a.operation == b.operation && a.type == b.type && a.op == b.op && a.root == b.root &&
         a.count == b.count && a.scale == b.scale && a.on_device == b.on_device;
}

bool is_input_scale(DType type, double scale) noexcept {
  if (type == DType::f64 || scale == 0) return std::isfinite(scale);
  return std::abs(scale) >= static_cast<double>(std::numeric_limits<float>::min()) &&
         std::abs(scale) <= static_cast<double>(std::numeric_limits<float>::max());
}

std::string describe_arguments(const Signature& s) {
  if (s.operation == Collective::barrier) return "no data";
  // KiB or MiB only where they are exact: two calls with different counts must read differently.
  const std::uint64_t bytes = s.count * size_of(s.type);
  std::string text;
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) {
    text = fmt::format("{} MiB {}", bytes >> 20, name_of(s.type));
  } else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) {
    text = fmt::format("{} KiB {}", bytes >> 10, name_of(s.type));
  } else {
    text = fmt::format("{} {}", s.count, name_of(s.type));
  }
  if (is_reducing(s.operation)) text += fmt::format(" {}", name_of(s.op));
  if (is_reducing(s.operation) && s.scale != 1) text += fmt::format(" times {}", s.scale);
  if (has_counts(s.operation)) text += fmt::format(" in blocks of counts {:08x}", s.root);
  if (has_root(s.operation)) text += fmt::format(", root {}", s.root);
  if (s.on_device) text += ", on a GPU";
  return text;
}

std::string describe_call(const Signature& s, std::uint64_t number, Priority lane,
                          std::string_view tag, std::string_view transport) {
  std::string text = fmt::format("{} #{}", name_of(s.operation), number);
  if (lane == Priority::urgent) text = "urgent " + text;
  if (!tag.empty()) text += fmt::format(" \"{}\"", tag);
  text += fmt::format(" ({}", describe_arguments(s));
  if (!transport.empty()) text += fmt::format(", {} over {}", name_of(s.algorithm), transport);
  return text + ")";
}

}  // namespace rondo::schedules
