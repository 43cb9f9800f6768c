// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include <rondo/types.h>

#include "base/clock.h"
#include "collectives/point/frame.h"

namespace rondo::point {

// Instead of a peer: a receive takes a message from whichever rank has one.
inline constexpr int any_rank = -1;

// One transfer as the caller asks for it.
struct PointTransfer {
  bool sending = false;
  int peer = 0;  // any_rank: only a receive that is alone in its call
  PointKey key;
  DType type = DType::u8;
  std::uint64_t count = 0;
  std::byte* data = nullptr;
};

// Returns what error messages say of the operation.
struct PointShape {
  Collective operation = Collective::send;  // a batch has send or receive here
  bool batch = false;
  int peer = 0;
  std::uint32_t tag = 0;
  std::uint64_t transfers = 0, bytes = 0;
};

struct PointCall {
  std::span<const PointTransfer> transfers;
  PointShape shape;
  nanoseconds time_limit{};
  std::string_view tag{};
  bool unattended = false;  // as in schedules::Call
};

}  // namespace rondo::point
