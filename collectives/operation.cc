// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation.h"

#include <algorithm>
#include <utility>

namespace rondo {

void Operation::begin(const Call& call, std::uint64_t call_number, TimePoint now) {
  signature = call.signature;
  lane = call.priority;
  number = call_number;
  time_limit = call.time_limit;
  deadline = after(now, call.time_limit);
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

}  // namespace rondo
