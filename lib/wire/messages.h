// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes what ranks tell each other over the connections to rank 0, while they join and
// afterwards. Pure functions between structs and frames; messages.cc and docs/reference/wire.md
// have the grammar. Senders cut texts to most_text_bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "collectives/operation/failure.h"
#include "collectives/plan/planner.h"
#include "lib/wire/stream.h"
#include "transports/transport.h"

namespace rondo::wire {

inline constexpr std::size_t most_text_bytes = 4096;
inline constexpr std::size_t most_waited_ranks = 2048;

// While joining. To rank 0:
struct RecordMessage {
  std::uint64_t milliseconds_left = 0;  // until this rank's deadline for joining
  transports::Blob record;
};
// Instead of a record: this rank cannot take part, so the join ends for all.
struct UnableMessage {
  operation::Failure failure;
};
// From rank 0, when all are there: members, then one member for each rank in order.
struct MembersMessage {
  std::uint64_t job = 0;
  std::uint32_t size = 0;
};
struct MemberMessage {
  std::uint32_t rank = 0;
  transports::Blob record;
};
// From rank 0: the join has failed.
struct RefusalMessage {
  operation::Failure failure;
};

// Afterwards. To rank 0:
// This rank's connect() has done its part.
struct ReadyMessage {};
struct ReportMessage {
  operation::Failure failure;
};
// This rank got no verdict in time and has concluded this by itself.
struct AloneMessage {
  operation::Failure failure;
};
struct DeadlineMessage {
  Priority lane = Priority::bulk;
  std::uint64_t operation = 0;
  std::uint64_t deadline_ns = 0;  // 0: no deadline has passed, the operation only stalls
  std::string what;
  bool warning = false;  // no deadline has passed; deadline_ns is how long it has waited
};
struct StatusMessage {
  std::uint64_t query = 0;
  operation::RankStatus status;
};
struct LeavingMessage {
  std::uint64_t finished[lane_count] = {};
};
// From rank 0:
// All ranks are ready: connect() returns.
struct GoMessage {};
struct VerdictMessage {
  operation::Failure failure;
};
struct QueryMessage {
  std::uint64_t query = 0;
};
struct ConstantsMessage {
  PlanConstants constants;
};
struct LeftMessage {
  std::uint32_t rank = 0;
  std::uint64_t finished[lane_count] = {};
};

using ControlMessage = std::variant<RecordMessage, MembersMessage, MemberMessage, RefusalMessage,
                                    ReportMessage, DeadlineMessage, StatusMessage, LeavingMessage,
                                    VerdictMessage, QueryMessage, LeftMessage, ConstantsMessage,
                                    UnableMessage, ReadyMessage, GoMessage, AloneMessage>;

// Returns the failure with its text as the others get it: bounded, and in one line.
operation::Failure as_told(operation::Failure failure);

// Returns the bytes of the whole frame.
std::vector<std::byte> encode(const ControlMessage& message);
// No value for anything that encode() cannot have made.
std::optional<ControlMessage> decode(std::uint16_t type, std::span<const std::byte> payload);

}  // namespace rondo::wire
