// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/operation.h"

#include <algorithm>
#include <utility>

namespace rondo::engine {

namespace {

bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b,
             std::size_t b_bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a),
             second = reinterpret_cast<std::uintptr_t>(b);
  return a_bytes != 0 && b_bytes != 0 && first < second + b_bytes && second < first + a_bytes;
}

}  // namespace

// A closed pool deletes the operation, and the last operation deletes the pool: give() does not
// touch the pool after that.
void Operation::give_back() noexcept {
  pool_->give(*this);
}

bool Operation::conflicts(const schedules::Call& call) const noexcept {
  return overlap(out, out_bytes, call.out, call.out_bytes) ||
         overlap(out, out_bytes, call.in, call.in_bytes) ||
         overlap(in, in_bytes, call.out, call.out_bytes);
}

void Operation::keep_counts(const schedules::Call& call) {
  offsets_.clear();
  if (call.signature.algorithm != schedules::Algorithm::direct || call.counts.empty()) return;
  offsets_.push_back(0);
  for (const std::size_t count : call.counts) offsets_.push_back(offsets_.back() + count);
}

void Operation::begin(const schedules::Call& call, std::uint64_t call_number, base::TimePoint now) {
  signature = call.signature;
  lane = transports::lane_of(call.priority);
  number = call_number;
  in = call.in;
  out = call.out;
  in_bytes = call.in_bytes;
  out_bytes = call.out_bytes;
  time_limit = call.time_limit;
  deadline = base::after(now, call.time_limit);
  const std::size_t length = std::min(call.tag.size(), sizeof(tag) - 1);
  std::copy_n(call.tag.data(), length, tag);
  tag[length] = '\0';
  code.clear();
  message.clear();
  callback = nullptr;
  next = nullptr;
  state_.store(State::running, std::memory_order_release);
}

void Operation::end(State state, std::error_code error, std::string text) {
  code = error;
  message = std::move(text);
  state_.store(state, std::memory_order_release);
}

}  // namespace rondo::engine
