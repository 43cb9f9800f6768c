// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/operation.h"

#include <algorithm>
#include <functional>

#include "collectives/operation/recorder.h"

namespace rondo::operation {

namespace {

// Compared by std::less: the two may belong to different objects.
bool overlap(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  const std::less<> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

}  // namespace

// A closed pool deletes the operation, and the last operation deletes the pool: give() does not
// touch the pool after that.
void Operation::give_back() noexcept {
  pool_->give(*this);
}

void Operation::start(transports::Lane its_lane, std::uint64_t its_number, nanoseconds limit,
                      std::string_view its_tag) {
  lane = its_lane;
  number = its_number;
  time_limit = limit;
  timed = false;
  deadline = base::TimePoint::max();
  times = {};
  keep_tag(its_tag, tag);
  code.clear();
  message.clear();
  callback = nullptr;
  earlier = later = next = nullptr;
  next_owner = nullptr;
  state_.store(State::running, std::memory_order_release);
}

void Operation::fail(std::error_code its_code, std::string its_message) {
  code = its_code;
  message = std::move(its_message);
  state_.store(State::failed, std::memory_order_release);
}

void CollectiveOperation::start(const schedules::Call& call, std::uint64_t its_number) {
  signature = call.signature;
  in = call.in;
  out = call.out;
  in_bytes = call.in_bytes;
  out_bytes = call.out_bytes;
  input_scale = call.input_scale;
  Operation::start(transports::lane_of(call.priority), its_number, call.time_limit, call.tag);
}

bool CollectiveOperation::conflicts(std::span<const std::byte> reads,
                                    std::span<const std::byte> writes) const noexcept {
  const std::span<const std::byte> read(in, in_bytes), written(out, out_bytes);
  return overlap(written, writes) || overlap(written, reads) || overlap(read, writes);
}

std::string CollectiveOperation::describe(std::string_view transport) const {
  return schedules::describe_call(signature, number, priority(), tag, transport);
}

void CollectiveOperation::outline(Record& record) const noexcept {
  record.signature = signature;
  record.batch = false;
  record.bytes = std::max(in_bytes, out_bytes);
}

void ScheduledOperation::keep_call(const schedules::Call& call) {
  kept_counts_.assign(call.counts.begin(), call.counts.end());
  kept_call_ = call;
  kept_call_.counts = kept_counts_;
  kept_call_.tag = {};
}

void DirectOperation::keep_counts(const schedules::Call& call) {
  blocks_.clear();
  std::size_t end = 0;
  for (const std::size_t count : call.counts) {
    blocks_.push_back({end, count});
    end += count;
  }
}

}  // namespace rondo::operation
