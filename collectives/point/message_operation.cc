// SPDX-License-Identifier: Apache-2.0
#include "collectives/point/message_operation.h"

#include <fmt/format.h>

#include "base/text.h"
#include "collectives/operation/recorder.h"

namespace rondo::point {

namespace {

std::string amount(std::uint64_t count, DType type) {
  schedules::Signature signature;
  signature.operation = Collective::send;
  signature.count = count;
  signature.type = type;
  return schedules::describe_arguments(signature);
}

void outline_shape(const PointShape& shape, DType type, std::uint64_t count,
                   operation::Record& record) noexcept {
  record.signature = {};
  record.signature.operation = shape.operation;
  record.signature.type = type;
  record.signature.count = count;
  record.signature.root = static_cast<std::uint32_t>(shape.peer);
  record.signature.plan = shape.tag;
  record.batch = shape.batch;
  record.bytes = shape.bytes;
}

}  // namespace

std::string describe_transfer(bool sending, std::uint64_t number, std::uint64_t count, DType type,
                              int peer, const PointKey& key) {
  if (key.space != 0)
    return fmt::format("all_to_all_v #{} with {} {} rank {}", number, amount(count, type),
                       sending ? "for" : "from", peer);
  return fmt::format("{} #{} ({} {} {}, tag {})", sending ? "send" : "receive", number,
                     amount(count, type), sending ? "to" : "from",
                     peer == any_rank ? "any rank" : fmt::format("rank {}", peer), key.tag);
}

void MessageOperation::start(const PointCall& call, std::uint64_t its_number) {
  shape_ = call.shape;
  type_ = call.transfers.front().type;
  count_ = call.transfers.front().count;
  transfers_left = call.transfers.size();
  source_ = -1;
  Operation::start(transports::Lane::messages, its_number, call.time_limit, call.tag);
}

void MessageOperation::outline(operation::Record& record) const noexcept {
  outline_shape(shape_, type_, count_, record);
  if (source_ >= 0) record.signature.root = static_cast<std::uint32_t>(source_);
  record.signature.on_device = memory != nullptr;
}

void record_sent(const PointCall& call, std::uint64_t number, base::TimePoint now,
                 operation::Record& record) noexcept {
  outline_shape(call.shape, call.transfers.front().type, call.transfers.front().count, record);
  record.lane = transports::Lane::messages;
  record.state = operation::RecordState::done;
  record.number = number;
  record.times = {};
  record.times.sent = record.ended = now;
  operation::keep_tag(call.tag, record.tag);
}

std::string MessageOperation::describe(std::string_view transport) const {
  std::string text;
  if (shape_.batch) {
    text = fmt::format("batch #{} ({} transfers, {})", number, shape_.transfers,
                       base::describe_bytes(shape_.bytes));
  } else if (shape_.operation == Collective::all_to_all_v) {
    text = fmt::format("all_to_all_v #{} ({} here)", number, base::describe_bytes(shape_.bytes));
  } else {
    text = describe_transfer(shape_.operation == Collective::send, number, count_, type_,
                             shape_.peer, {shape_.tag, 0});
  }
  if (!transport.empty()) text.insert(text.size() - 1, fmt::format(" over {}", transport));
  if (tag[0] != '\0') text.insert(text.find(" ("), fmt::format(" \"{}\"", tag));
  return text;
}

}  // namespace rondo::point
