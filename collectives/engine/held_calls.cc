// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/held_calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace rondo::engine {

namespace {

using point::MessageOperation;
using point::PointTransfer;

constexpr std::uint64_t any_order = std::numeric_limits<std::uint64_t>::max();

std::span<const std::byte> read_by(const PointTransfer& t) noexcept {
  return {t.data, t.sending ? t.count * size_of(t.type) : 0};
}
std::span<const std::byte> written_by(const PointTransfer& t) noexcept {
  return {t.data, t.sending ? 0 : t.count * size_of(t.type)};
}

bool matched_in_order(const PointTransfer& a, const PointTransfer& b) noexcept {
  return a.sending == b.sending && a.key == b.key &&
         (a.peer == b.peer || a.peer == point::any_rank || b.peer == point::any_rank);
}

const MessageOperation& as_message(const operation::Operation& operation) noexcept {
  return static_cast<const MessageOperation&>(operation);
}

// A collective waits for its mark in its lane, because the lane must know it.
bool waits_for_mark(const operation::Operation& operation) noexcept {
  return operation.collective() == nullptr && !operation.mark.reached;
}

}  // namespace

// Returns a collective under way, or one that is held, that was started before `order` and uses the
// memory. Messages are left out: a program must not use their memory meanwhile, and there may be
// many of them.
const operation::Operation* HeldCalls::user_of(std::span<const std::byte> reads,
                                               std::span<const std::byte> writes,
                                               std::uint64_t order) const noexcept {
  for (const operation::LaneCalls& calls : calls_.first<lane_count>())
    for (const operation::Operation* o = calls.first(); o != nullptr && o->order < order;
         o = o->later)
      if (o->conflicts(reads, writes)) return o;
  return nullptr;
}

const operation::Operation* HeldCalls::user_of_memory(
    const operation::Operation& operation) const noexcept {
  if (const operation::CollectiveOperation* const call = operation.collective())
    return user_of({call->in, call->in_bytes}, {call->out, call->out_bytes}, call->order);
  for (const PointTransfer& t : as_message(operation).kept())
    if (const operation::Operation* const user =
            user_of(read_by(t), written_by(t), operation.order))
      return user;
  return nullptr;
}

// Returns the first held message that is queued before `end` and must begin before one of these
// transfers. Null: there is none.
const operation::Operation* HeldCalls::message_before(
    std::span<const PointTransfer> transfers, const operation::Operation* end) const noexcept {
  for (const operation::Operation* o = queue(transports::Lane::messages).first(); o != end;
       o = o->next)
    for (const PointTransfer& earlier : as_message(*o).kept())
      for (const PointTransfer& t : transfers)
        if (matched_in_order(t, earlier)) return o;
  return nullptr;
}

// Returns a held call that must begin before this one. Null: there is none.
const operation::Operation* HeldCalls::held_before(
    const operation::Operation& operation) const noexcept {
  if (operation.collective() == nullptr)
    return message_before(as_message(operation).kept(), &operation);
  const operation::Operation* const first = queue(operation.lane).first();
  return first == &operation ? nullptr : first;
}

bool HeldCalls::must_hold(const schedules::Call& call) const noexcept {
  return !queue(transports::lane_of(call.priority)).empty() ||
         user_of({call.in, call.in_bytes}, {call.out, call.out_bytes}, any_order) != nullptr;
}

bool HeldCalls::must_hold(const point::PointCall& call) const noexcept {
  return std::ranges::any_of(call.transfers,
                             [&](const PointTransfer& t) {
                               return user_of(read_by(t), written_by(t), any_order) != nullptr;
                             }) ||
         message_before(call.transfers, nullptr) != nullptr;
}

void HeldCalls::hold(operation::Operation& operation) noexcept {
  operation.next_owner = std::exchange(operation.owner, this);
  queue(operation.lane).push(operation);
  ++held_;
}

// Gives the first call of the queue that passes the test back to its owner. Null: there is none.
template <class Test>
operation::Operation* HeldCalls::take_from(Queue& its_queue, Test test) noexcept {
  operation::Operation* const operation = its_queue.take(test);
  if (operation == nullptr) return nullptr;
  operation->owner = std::exchange(operation->next_owner, nullptr);
  --held_;
  return operation;
}

operation::Operation* HeldCalls::take_first() noexcept {
  const auto any = [](const operation::Operation&) { return true; };
  for (Queue& its_queue : std::span(queues_).first<lane_count>())
    if (!its_queue.empty() && user_of_memory(*its_queue.first()) == nullptr)
      return take_from(its_queue, any);
  const auto may_begin = [&](const operation::Operation& o) {
    return !waits_for_mark(o) && user_of_memory(o) == nullptr && held_before(o) == nullptr;
  };
  if (auto* const operation = take_from(queue(transports::Lane::messages), may_begin))
    return operation;
  freed_ = false;
  return nullptr;
}

void HeldCalls::clear() noexcept {
  queues_ = {};
  held_ = 0;
  freed_ = false;
}

// Returns what this call waits for, perhaps through others: a call that began, or one that waits
// for its mark and may be this one.
const operation::Operation* HeldCalls::in_the_way(
    const operation::Operation& operation) const noexcept {
  const operation::Operation* at = &operation;
  while (at != nullptr && at->owner == this && !waits_for_mark(*at)) {
    const operation::Operation* const user = user_of_memory(*at);
    at = user != nullptr ? user : held_before(*at);
  }
  return at;
}

operation::Standing HeldCalls::standing(const operation::Operation& operation, bool) {
  if (operation.lane != transports::Lane::messages) return {};
  return {WaitCause::messages};
}

void HeldCalls::append_awaited(const operation::Operation& operation,
                               operation::Awaited& awaited) const {
  const operation::Operation* const user = in_the_way(operation);
  if (user == nullptr) return;
  if (user->owner != this) return user->owner->append_awaited(*user, awaited);
  awaited.device = user->awaited_mark();
}

std::string HeldCalls::late_text(const operation::Operation& operation) const {
  std::string text = fmt::format("not done within {:.4g} s",
                                 std::chrono::duration<double>(operation.time_limit).count());
  const operation::Operation* const user = in_the_way(operation);
  if (user == nullptr) return text;
  operation::Awaited awaited;
  append_awaited(operation, awaited);
  if (user->owner == this && awaited.device.empty()) return text;  // by now it may begin
  if (user == &operation)
    return text + ": it has not begun, because it waits for " + awaited.device;
  text += fmt::format(": it has not begun, because it waits for the end of {}", user->describe({}));
  if (!awaited.device.empty()) text += ", which waits for " + awaited.device;
  for (std::size_t i = 0; i < awaited.ranks.size(); ++i)
    text += fmt::format("{} {}", i == 0 ? ", which waits for rank" : ",", awaited.ranks[i]);
  return text;
}

}  // namespace rondo::engine
