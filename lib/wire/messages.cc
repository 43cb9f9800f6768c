// SPDX-License-Identifier: Apache-2.0
//
// Payloads of the frames (lib/wire/stream.h) between the other ranks and rank 0, little endian:
//
//   text    = length:u32 bytes                 ; at most 4096, cut by the sender;
//                                              ; control characters, and bytes that are not
//                                              ; UTF-8, become blanks
//   failure = code:u32 cause:text              ; code: the values of rondo::Errc
//   cause   = failure lost:u32 seen_by:u32 culprits:u32 rank:u32 * culprits link:text
//                                              ; lost, seen_by: a rank, or 0xffffffff for none;
//                                              ; culprits <= 64
//   lane    = started:u64 finished:u64 current:text last:text waiting:u32 rank:u32 * waiting
//             tag:text waited_ns:u64 gpu:text  ; waiting <= 2048
//
//    1 record    = milliseconds_left:u64 bytes ; to rank 0; at most 64 KiB
//    2 members   = job:u64 size:u32            ; from rank 0
//    3 member    = rank:u32 bytes              ; from rank 0; at most 64 KiB
//    4 refusal   = failure                     ; from rank 0
//    5 unable    = failure                     ; to rank 0, instead of a record
//   16 report    = cause                       ; to rank 0; seen_by does not count
//   17 deadline  = lane:u8 operation:u64 deadline_ns:u64 what:text warning:u8  ; to rank 0
//   18 status    = query:u64 lane lane lane    ; to rank 0; bulk, urgent, messages
//   19 leaving   = finished:u64 finished:u64   ; to rank 0; bulk, urgent
//   20 verdict   = cause                       ; from rank 0
//   21 query     = query:u64                   ; from rank 0
//   22 left      = rank:u32 finished:u64 finished:u64                          ; from rank 0
//   23 constants = f64 * 7                     ; from rank 0: what links cost (constants.cc)
//   24 ready     =                             ; to rank 0: this rank's connect() has done its part
//   25 go        =                             ; from rank 0: connect() of all ranks has
//   26 alone     = cause                       ; to rank 0: this rank's own verdict, because none
//                                              ; came in time
#include "lib/wire/messages.h"

#include <algorithm>
#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "lib/wire/constants.h"

namespace rondo::wire {
namespace {

std::string_view cut(std::string_view text) {
  return base::first_bytes(text, most_text_bytes);
}

// For each kind of field: put() writes it, get() reads it and returns false for a value that put()
// cannot have written.

void put(base::Writer& writer, std::unsigned_integral auto number) {
  writer.put(number);
}

bool get(base::Reader& reader, std::unsigned_integral auto& number) {
  number = reader.get<std::remove_reference_t<decltype(number)>>();
  return true;
}

bool get(base::Reader& reader, bool& flag) {
  const auto value = reader.get<std::uint8_t>();
  flag = value != 0;
  return value <= 1;
}

void put(base::Writer& writer, Priority lane) {
  writer.put(static_cast<std::uint8_t>(lane));
}

bool get(base::Reader& reader, Priority& lane) {
  const auto value = reader.get<std::uint8_t>();
  lane = static_cast<Priority>(value);
  return value < lane_count;
}

// -1: no rank.
void put(base::Writer& writer, int rank) {
  writer.put(static_cast<std::uint32_t>(rank));
}

bool get(base::Reader& reader, int& rank) {
  rank = static_cast<int>(reader.get<std::uint32_t>());
  return rank >= -1;
}

void put(base::Writer& writer, const std::string& text) {
  writer.put_string(cut(text));
}

// The text ends up on terminals and in logs, one line each.
bool get(base::Reader& reader, std::string& text) {
  text = base::printable(reader.get_string(most_text_bytes));
  return true;
}

void put(base::Writer& writer, const operation::Failure& failure) {
  writer.put(static_cast<std::uint32_t>(failure.code));
  put(writer, failure.cause);
}

bool get(base::Reader& reader, operation::Failure& failure) {
  const auto code = reader.get<std::uint32_t>();
  failure.code = static_cast<Errc>(code);
  return get(reader, failure.cause) && code >= static_cast<std::uint32_t>(Errc::invalid_argument) &&
         code <= static_cast<std::uint32_t>(Errc::system);
}

void put_ranks(base::Writer& writer, const std::vector<int>& ranks, std::size_t most) {
  const std::size_t count = std::min(ranks.size(), most);
  writer.put(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) put(writer, ranks[i]);
}

bool get_ranks(base::Reader& reader, std::vector<int>& ranks, std::size_t most) {
  const auto count = reader.get<std::uint32_t>();
  if (count > most) return false;
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) {
    int rank = -1;
    if (!get(reader, rank) || rank < 0) return false;
    ranks.push_back(rank);
  }
  return true;
}

// Ranks that an operation waits for.
void put(base::Writer& writer, const std::vector<int>& ranks) {
  put_ranks(writer, ranks, most_waited_ranks);
}

bool get(base::Reader& reader, std::vector<int>& ranks) {
  return get_ranks(reader, ranks, most_waited_ranks);
}

void put(base::Writer& writer, const Whole<const operation::Failure>& whole) {
  const operation::Failure& failure = whole.failure;
  put(writer, failure);
  put(writer, failure.lost);
  put(writer, failure.seen_by);
  put_ranks(writer, failure.culprits, most_culprits);
  put(writer, failure.link);
}

bool get(base::Reader& reader, const Whole<operation::Failure>& whole) {
  operation::Failure& failure = whole.failure;
  return get(reader, failure) && get(reader, failure.lost) && get(reader, failure.seen_by) &&
         get_ranks(reader, failure.culprits, most_culprits) && get(reader, failure.link);
}

void put(base::Writer& writer, const std::uint64_t (&finished)[lane_count]) {
  for (const std::uint64_t number : finished) writer.put(number);
}

bool get(base::Reader& reader, std::uint64_t (&finished)[lane_count]) {
  for (std::uint64_t& number : finished) number = reader.get<std::uint64_t>();
  return true;
}

// The rest of the message.
void put(base::Writer& writer, const transports::Blob& record) {
  writer.put_bytes(record);
}

bool get(base::Reader& reader, transports::Blob& record) {
  if (reader.left() > most_record_bytes) return false;
  const auto bytes = reader.get_bytes(reader.left());
  record.assign(bytes.begin(), bytes.end());
  return true;
}

void put(base::Writer& writer, const PlanConstants& constants) {
  put_constants(writer, constants);
}

bool get(base::Reader& reader, PlanConstants& constants) {
  constants = get_constants(reader);
  return is_sane(constants);
}

void put(base::Writer& writer, const operation::RankStatus& status);
bool get(base::Reader& reader, operation::RankStatus& status);

void put_all(base::Writer& writer, const auto& fields) {
  std::apply([&](const auto&... field) { (put(writer, field), ...); }, fields);
}

bool get_all(base::Reader& reader, const auto& fields) {
  return std::apply([&](auto&... field) { return (get(reader, field) && ...); }, fields);
}

auto fields_of(auto& lane) {
  return std::tie(lane.started, lane.finished, lane.current, lane.last, lane.waiting_for, lane.tag,
                  lane.waited_ns, lane.device);
}

void put(base::Writer& writer, const operation::RankStatus& status) {
  for (const operation::LaneStatus& lane : status.lanes) put_all(writer, fields_of(lane));
  put_all(writer, fields_of(status.messages));
}

bool get(base::Reader& reader, operation::RankStatus& status) {
  for (operation::LaneStatus& lane : status.lanes)
    if (!get_all(reader, fields_of(lane))) return false;
  return get_all(reader, fields_of(status.messages));
}

// Reads the message if it has this type. Nothing is found if the payload is not valid.
template <class Message>
bool read(std::uint16_t type, std::span<const std::byte> payload,
          std::optional<ControlMessage>& found) {
  if (type != Message::type) return false;
  base::Reader reader(payload);
  Message message;
  if (get_all(reader, Message::fields(message)) && reader.ok() && reader.left() == 0)
    found = std::move(message);
  return true;
}

template <class... Messages>
std::optional<ControlMessage> read_any(std::uint16_t type, std::span<const std::byte> payload,
                                       const std::variant<Messages...>*) {
  std::optional<ControlMessage> found;
  static_cast<void>((read<Messages>(type, payload, found) || ...));
  return found;
}

}  // namespace

operation::Failure as_told(operation::Failure failure) {
  for (std::string* const text : {&failure.cause, &failure.link})
    *text = base::printable(std::string(cut(*text)));
  failure.culprits.resize(std::min(failure.culprits.size(), most_culprits));
  return failure;
}

std::vector<std::byte> encode(const ControlMessage& message) {
  base::Writer writer;
  const auto write = [&](const auto& m) {
    put_all(writer, m.fields(m));
    return m.type;
  };
  const std::uint16_t type = std::visit(write, message);
  return make_frame(type, writer.take());
}

std::optional<ControlMessage> decode(std::uint16_t type, std::span<const std::byte> payload) {
  return read_any(type, payload, static_cast<const ControlMessage*>(nullptr));
}

}  // namespace rondo::wire
