// SPDX-License-Identifier: Apache-2.0
//
// Reads and writes what ranks tell each other over the connections to rank 0, while they join and
// afterwards. Pure functions between structs and frames; messages.cc and docs/reference/wire.md
// have the grammar. Senders cut texts to most_text_bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "collectives/operation/failure.h"
#include "collectives/plan/planner.h"
#include "lib/wire/stream.h"
#include "transports/transport.h"

namespace rondo::wire {

inline constexpr std::size_t most_text_bytes = 4096;
inline constexpr std::size_t most_waited_ranks = 2048;
inline constexpr std::size_t most_culprits = 64;

// Each message has its type on the wire, and its fields in the order of the wire.
template <std::uint16_t Type>
struct FailureMessage {
  static constexpr std::uint16_t type = Type;
  static auto fields(auto& m) { return std::tie(m.failure); }
  operation::Failure failure;
};
// The whole failure, with its ranks and link.
template <class Failure>
struct Whole {
  explicit Whole(Failure& its_failure) : failure(its_failure) {}
  Failure& failure;
};
template <std::uint16_t Type>
struct CauseMessage {
  static constexpr std::uint16_t type = Type;
  static auto fields(auto& m) { return std::tuple(Whole{m.failure}); }
  operation::Failure failure;
};
template <std::uint16_t Type>
struct EmptyMessage {
  static constexpr std::uint16_t type = Type;
  static auto fields(auto&) { return std::tie(); }
};

// While joining. To rank 0:
struct RecordMessage {
  static constexpr std::uint16_t type = 1;
  static auto fields(auto& m) { return std::tie(m.milliseconds_left, m.record); }
  std::uint64_t milliseconds_left = 0;  // until this rank's deadline for joining
  transports::Blob record;
};
// Instead of a record: this rank cannot take part, so the join ends for all.
using UnableMessage = FailureMessage<5>;
// From rank 0, when all are there: members, then one member for each rank in order.
struct MembersMessage {
  static constexpr std::uint16_t type = 2;
  static auto fields(auto& m) { return std::tie(m.job, m.size); }
  std::uint64_t job = 0;
  std::uint32_t size = 0;
};
struct MemberMessage {
  static constexpr std::uint16_t type = 3;
  static auto fields(auto& m) { return std::tie(m.rank, m.record); }
  std::uint32_t rank = 0;
  transports::Blob record;
};
// From rank 0: the join has failed.
using RefusalMessage = FailureMessage<4>;

// Afterwards. To rank 0:
// This rank's connect() has done its part.
using ReadyMessage = EmptyMessage<24>;
using ReportMessage = CauseMessage<16>;
// This rank got no verdict in time and has concluded this by itself.
using AloneMessage = CauseMessage<26>;
struct DeadlineMessage {
  static constexpr std::uint16_t type = 17;
  static auto fields(auto& m) {
    return std::tie(m.lane, m.operation, m.deadline_ns, m.what, m.warning);
  }
  Priority lane = Priority::bulk;
  std::uint64_t operation = 0;
  std::uint64_t deadline_ns = 0;  // 0: no deadline has passed, the operation only stalls
  std::string what;
  bool warning = false;  // no deadline has passed; deadline_ns is how long it has waited
};
struct StatusMessage {
  static constexpr std::uint16_t type = 18;
  static auto fields(auto& m) { return std::tie(m.query, m.status); }
  std::uint64_t query = 0;
  operation::RankStatus status;
};
struct LeavingMessage {
  static constexpr std::uint16_t type = 19;
  static auto fields(auto& m) { return std::tie(m.finished); }
  std::uint64_t finished[lane_count] = {};
};
// From rank 0:
// All ranks are ready: connect() returns.
using GoMessage = EmptyMessage<25>;
using VerdictMessage = CauseMessage<20>;
struct QueryMessage {
  static constexpr std::uint16_t type = 21;
  static auto fields(auto& m) { return std::tie(m.query); }
  std::uint64_t query = 0;
};
struct ConstantsMessage {
  static constexpr std::uint16_t type = 23;
  static auto fields(auto& m) { return std::tie(m.constants); }
  PlanConstants constants;
};
struct LeftMessage {
  static constexpr std::uint16_t type = 22;
  static auto fields(auto& m) { return std::tie(m.rank, m.finished); }
  std::uint32_t rank = 0;
  std::uint64_t finished[lane_count] = {};
};

using ControlMessage = std::variant<RecordMessage, MembersMessage, MemberMessage, RefusalMessage,
                                    ReportMessage, DeadlineMessage, StatusMessage, LeavingMessage,
                                    VerdictMessage, QueryMessage, LeftMessage, ConstantsMessage,
                                    UnableMessage, ReadyMessage, GoMessage, AloneMessage>;

// Returns the failure as the others get it: bounded, and with texts of one line.
operation::Failure as_told(operation::Failure failure);

// Returns the bytes of the whole frame.
std::vector<std::byte> encode(const ControlMessage& message);
// No value for anything that encode() cannot have made.
std::optional<ControlMessage> decode(std::uint16_t type, std::span<const std::byte> payload);

}  // namespace rondo::wire
