// SPDX-License-Identifier: Apache-2.0
//
// Payloads of the frames (lib/wire/stream.h) between the other ranks and rank 0, little endian:
//
//   text    = length:u32 bytes                 ; at most 4096, cut by the sender;
//                                              ; control characters, and bytes that are not
//                                              ; UTF-8, become blanks
//   failure = code:u32 cause:text              ; code: the values of rondo::Errc
//   lane    = started:u64 finished:u64 current:text last:text waiting:u32 rank:u32 * waiting
//             tag:text waited_ns:u64 gpu:text  ; waiting <= 2048
//
//    1 record    = milliseconds_left:u64 bytes ; to rank 0; at most 64 KiB
//    2 members   = job:u64 size:u32            ; from rank 0
//    3 member    = rank:u32 bytes              ; from rank 0; at most 64 KiB
//    4 refusal   = failure                     ; from rank 0
//    5 unable    = failure                     ; to rank 0, instead of a record
//   16 report    = failure lost:u32            ; to rank 0; lost: a rank, or 0xffffffff for none
//   17 deadline  = lane:u8 operation:u64 deadline_ns:u64 what:text warning:u8  ; to rank 0
//   18 status    = query:u64 lane lane lane    ; to rank 0; bulk, urgent, messages
//   19 leaving   = finished:u64 finished:u64   ; to rank 0; bulk, urgent
//   20 verdict   = failure                     ; from rank 0
//   21 query     = query:u64                   ; from rank 0
//   22 left      = rank:u32 finished:u64 finished:u64                          ; from rank 0
//   23 constants = f64 * 7                     ; from rank 0: what links cost (constants.cc)
//   24 ready     =                             ; to rank 0: this rank's connect() has done its part
//   25 go        =                             ; from rank 0: connect() of all ranks has
//   26 alone     = failure                     ; to rank 0: this rank's own verdict, because none
//                                              ; came in time
#include "lib/wire/messages.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/text.h"
#include "lib/wire/constants.h"

namespace rondo::wire {
namespace {

enum class Type : std::uint16_t {
  record = 1,
  members,
  member,
  refusal,
  unable,
  report = 16,
  deadline,
  status,
  leaving,
  verdict,
  query,
  left,
  constants,
  ready,
  go,
  alone,
};

std::string_view cut(std::string_view text) {
  return base::first_bytes(text, most_text_bytes);
}

// The text ends up on terminals and in logs, one line each.
std::string get_text(base::Reader& reader) {
  return base::printable(reader.get_string(most_text_bytes));
}

void put(base::Writer& writer, const operation::Failure& failure) {
  writer.put(static_cast<std::uint32_t>(failure.code));
  writer.put_string(cut(failure.cause));
}

bool get(base::Reader& reader, operation::Failure& failure) {
  const auto code = reader.get<std::uint32_t>();
  failure.code = static_cast<Errc>(code);
  failure.cause = get_text(reader);
  return code >= static_cast<std::uint32_t>(Errc::invalid_argument) &&
         code <= static_cast<std::uint32_t>(Errc::system);
}

void put(base::Writer& writer, const operation::LaneStatus& lane) {
  writer.put(lane.started);
  writer.put(lane.finished);
  writer.put_string(cut(lane.current));
  writer.put_string(cut(lane.last));
  const std::size_t count = std::min(lane.waiting_for.size(), most_waited_ranks);
  writer.put(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i)
    writer.put(static_cast<std::uint32_t>(lane.waiting_for[i]));
  writer.put_string(cut(lane.tag));
  writer.put(lane.waited_ns);
  writer.put_string(cut(lane.gpu));
}

bool get(base::Reader& reader, operation::LaneStatus& lane) {
  lane.started = reader.get<std::uint64_t>();
  lane.finished = reader.get<std::uint64_t>();
  lane.current = get_text(reader);
  lane.last = get_text(reader);
  const auto count = reader.get<std::uint32_t>();
  if (count > most_waited_ranks) return false;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto rank = reader.get<std::uint32_t>();
    if (rank > static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max())) return false;
    lane.waiting_for.push_back(static_cast<int>(rank));
  }
  lane.tag = get_text(reader);
  lane.waited_ns = reader.get<std::uint64_t>();
  lane.gpu = get_text(reader);
  return true;
}

void put(base::Writer& writer, const std::uint64_t (&finished)[lane_count]) {
  for (const std::uint64_t number : finished) writer.put(number);
}

bool get(base::Reader& reader, std::uint64_t (&finished)[lane_count]) {
  for (std::uint64_t& number : finished) number = reader.get<std::uint64_t>();
  return true;
}

bool get_blob(base::Reader& reader, transports::Blob& blob) {
  if (reader.left() > wire::most_record_bytes) return false;
  const auto bytes = reader.get_bytes(reader.left());
  blob.assign(bytes.begin(), bytes.end());
  return true;
}

struct Encoder {
  base::Writer& writer;

  Type operator()(const RecordMessage& message) const {
    writer.put(message.milliseconds_left);
    writer.put_bytes(message.record);
    return Type::record;
  }
  Type operator()(const MembersMessage& message) const {
    writer.put(message.job);
    writer.put(message.size);
    return Type::members;
  }
  Type operator()(const MemberMessage& message) const {
    writer.put(message.rank);
    writer.put_bytes(message.record);
    return Type::member;
  }
  Type operator()(const RefusalMessage& message) const {
    return put(writer, message.failure), Type::refusal;
  }
  Type operator()(const UnableMessage& message) const {
    return put(writer, message.failure), Type::unable;
  }
  Type operator()(const ReadyMessage&) const { return Type::ready; }
  Type operator()(const GoMessage&) const { return Type::go; }
  Type operator()(const ReportMessage& message) const {
    put(writer, message.failure);
    writer.put(static_cast<std::uint32_t>(message.failure.lost));
    return Type::report;
  }
  Type operator()(const AloneMessage& message) const {
    return put(writer, message.failure), Type::alone;
  }
  Type operator()(const DeadlineMessage& message) const {
    writer.put(static_cast<std::uint8_t>(message.lane));
    writer.put(message.operation);
    writer.put(message.deadline_ns);
    writer.put_string(cut(message.what));
    writer.put(static_cast<std::uint8_t>(message.warning));
    return Type::deadline;
  }
  Type operator()(const StatusMessage& message) const {
    writer.put(message.query);
    for (const operation::LaneStatus& lane : message.status.lanes) put(writer, lane);
    put(writer, message.status.messages);
    return Type::status;
  }
  Type operator()(const LeavingMessage& message) const {
    return put(writer, message.finished), Type::leaving;
  }
  Type operator()(const VerdictMessage& message) const {
    return put(writer, message.failure), Type::verdict;
  }
  Type operator()(const QueryMessage& message) const {
    return writer.put(message.query), Type::query;
  }
  Type operator()(const LeftMessage& message) const {
    writer.put(message.rank);
    put(writer, message.finished);
    return Type::left;
  }
  Type operator()(const ConstantsMessage& message) const {
    return wire::put_constants(writer, message.constants), Type::constants;
  }
};

bool read(base::Reader& reader, RecordMessage& message) {
  message.milliseconds_left = reader.get<std::uint64_t>();
  return get_blob(reader, message.record);
}
bool read(base::Reader& reader, MembersMessage& message) {
  message.job = reader.get<std::uint64_t>();
  message.size = reader.get<std::uint32_t>();
  return true;
}
bool read(base::Reader& reader, MemberMessage& message) {
  message.rank = reader.get<std::uint32_t>();
  return get_blob(reader, message.record);
}
bool read(base::Reader& reader, RefusalMessage& message) {
  return get(reader, message.failure);
}
bool read(base::Reader& reader, UnableMessage& message) {
  return get(reader, message.failure);
}
bool read(base::Reader&, ReadyMessage&) {
  return true;
}
bool read(base::Reader&, GoMessage&) {
  return true;
}
bool read(base::Reader& reader, ReportMessage& message) {
  const bool valid = get(reader, message.failure);
  const auto lost = reader.get<std::uint32_t>();
  const bool is_rank = lost <= static_cast<std::uint32_t>(std::numeric_limits<std::int32_t>::max());
  message.failure.lost = is_rank ? static_cast<int>(lost) : -1;
  return valid && (is_rank || lost == std::numeric_limits<std::uint32_t>::max());
}
bool read(base::Reader& reader, AloneMessage& message) {
  return get(reader, message.failure);
}
bool read(base::Reader& reader, DeadlineMessage& message) {
  const auto lane = reader.get<std::uint8_t>();
  message.lane = static_cast<Priority>(lane);
  message.operation = reader.get<std::uint64_t>();
  message.deadline_ns = reader.get<std::uint64_t>();
  message.what = get_text(reader);
  const auto warning = reader.get<std::uint8_t>();
  message.warning = warning != 0;
  return lane < lane_count && warning <= 1;
}
bool read(base::Reader& reader, StatusMessage& message) {
  message.query = reader.get<std::uint64_t>();
  for (operation::LaneStatus& lane : message.status.lanes)
    if (!get(reader, lane)) return false;
  return get(reader, message.status.messages);
}
bool read(base::Reader& reader, LeavingMessage& message) {
  return get(reader, message.finished);
}
bool read(base::Reader& reader, VerdictMessage& message) {
  return get(reader, message.failure);
}
bool read(base::Reader& reader, QueryMessage& message) {
  message.query = reader.get<std::uint64_t>();
  return true;
}
bool read(base::Reader& reader, LeftMessage& message) {
  message.rank = reader.get<std::uint32_t>();
  return get(reader, message.finished);
}

bool read(base::Reader& reader, ConstantsMessage& message) {
  message.constants = wire::get_constants(reader);
  return wire::is_sane(message.constants);
}

template <class Message>
std::optional<ControlMessage> read_whole(std::span<const std::byte> payload) {
  base::Reader reader(payload);
  Message message;
  if (!read(reader, message) || !reader.ok() || reader.left() != 0) return std::nullopt;
  return message;
}

}  // namespace

operation::Failure as_told(operation::Failure failure) {
  failure.cause = base::printable(std::string(cut(failure.cause)));
  return failure;
}

std::vector<std::byte> encode(const ControlMessage& message) {
  base::Writer writer;
  const Type type = std::visit(Encoder{writer}, message);
  return wire::make_frame(static_cast<std::uint16_t>(type), writer.take());
}

std::optional<ControlMessage> decode(std::uint16_t type, std::span<const std::byte> payload) {
  switch (static_cast<Type>(type)) {
    case Type::record:
      return read_whole<RecordMessage>(payload);
    case Type::members:
      return read_whole<MembersMessage>(payload);
    case Type::member:
      return read_whole<MemberMessage>(payload);
    case Type::refusal:
      return read_whole<RefusalMessage>(payload);
    case Type::unable:
      return read_whole<UnableMessage>(payload);
    case Type::ready:
      return read_whole<ReadyMessage>(payload);
    case Type::go:
      return read_whole<GoMessage>(payload);
    case Type::report:
      return read_whole<ReportMessage>(payload);
    case Type::deadline:
      return read_whole<DeadlineMessage>(payload);
    case Type::status:
      return read_whole<StatusMessage>(payload);
    case Type::leaving:
      return read_whole<LeavingMessage>(payload);
    case Type::verdict:
      return read_whole<VerdictMessage>(payload);
    case Type::query:
      return read_whole<QueryMessage>(payload);
    case Type::left:
      return read_whole<LeftMessage>(payload);
    case Type::constants:
      return read_whole<ConstantsMessage>(payload);
    case Type::alone:
      return read_whole<AloneMessage>(payload);
  }
  return std::nullopt;
}

}  // namespace rondo::wire
