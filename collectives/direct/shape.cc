// SPDX-License-Identifier: Apache-2.0
#include "collectives/direct/shape.h"

#include <algorithm>

namespace rondo::direct {

namespace {

constexpr std::size_t line = 64;  // parts start on cache lines

std::size_t round_up(std::size_t value, std::size_t step) noexcept {
  return (value + step - 1) / step * step;
}

}  // namespace

DirectShape::DirectShape(const schedules::Signature& s, std::size_t ranks,
                         std::span<const schedules::Range> blocks, std::size_t most_bytes) noexcept
    : count_(schedules::cut_elements(s.operation, s.count, ranks)),
      element_(size_of(s.type)),
      parts_(ranks),
      blocked_(schedules::is_blocked(s.operation)),
      own_slot_(base::traits_of(s.operation).gathers()),
      blocks_(blocks) {
  if (s.operation == Collective::broadcast) parts_ = 1;
  if (!blocks_.empty()) {
    count_ = 0;
    for (const schedules::Range& block : blocks_) count_ = std::max(count_, block.count);
  }
  const std::size_t in_slot = blocked_ && !own_slot_ ? std::max<std::size_t>(parts_, 1) : 1;
  const std::size_t most = std::max(line, most_bytes / in_slot / line * line) / element_;
  chunk_ = std::min(most, std::max<std::size_t>(count_, 1));
  chunks_ = count_ == 0 ? 0 : (count_ - 1) / chunk_ + 1;
}

std::size_t DirectShape::packed_offset(std::size_t index) const noexcept {
  if (blocks_.empty()) return index * count_;
  std::size_t elements = 0;
  for (const schedules::Range& block : blocks_.first(index)) elements += block.count;
  return elements;
}

std::size_t DirectShape::end() const noexcept {
  if (blocks_.empty()) return total();
  std::size_t end = 0;
  for (const schedules::Range& block : blocks_) end = std::max(end, block.offset + block.count);
  return end;
}

DirectPart DirectShape::part(std::uint64_t chunk, std::size_t index) const noexcept {
  const std::size_t whole = block_count(index), start = std::min(whole, chunk * chunk_);
  const std::size_t length = std::min(chunk_, whole - start);
  if (blocked_)
    return {block_offset(index) + start, start,
            own_slot_ ? 0 : index * round_up(chunk_ * element_, line), length};
  const std::size_t share = round_up((length + parts_ - 1) / parts_ * element_, line) / element_;
  const std::size_t first = std::min(length, index * share);
  return {start + first, start + first, first * element_, std::min(share, length - first)};
}

}  // namespace rondo::direct
