// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/lane_calls.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/text.h"
#include "collectives/operation/owner.h"

namespace rondo::operation {

namespace {

Priority priority_of(transports::Lane lane) noexcept {
  return lane == transports::Lane::urgent ? Priority::urgent : Priority::bulk;
}

}  // namespace

void LaneCalls::append(Operation& operation) noexcept {
  operation.earlier = last_;
  operation.later = nullptr;
  (last_ == nullptr ? first_ : last_->later) = &operation;
  last_ = &operation;
}

void LaneCalls::remove(Operation& operation) noexcept {
  (operation.earlier == nullptr ? first_ : operation.earlier->later) = operation.later;
  (operation.later == nullptr ? last_ : operation.later->earlier) = operation.earlier;
  operation.earlier = operation.later = nullptr;
}

Operation* LaneCalls::clear() noexcept {
  watch_.clear();
  if (failed_ == 0 && first_ != nullptr) failed_ = first_->number;
  last_ = nullptr;
  return std::exchange(first_, nullptr);
}

void LaneCalls::ended(const CollectiveOperation& operation) noexcept {
  last_signature_ = operation.signature;
  last_number_ = operation.number;
}

bool LaneCalls::tell_stalled() noexcept {
  return first_ != nullptr && std::exchange(stalled_told_, first_->number) != first_->number;
}

bool LaneCalls::tell_slow(nanoseconds limit, base::TimePoint now) noexcept {
  return first_ != nullptr && first_->waited(now) >= limit &&
         std::exchange(slow_told_, first_->number) != first_->number;
}

LaneStatus LaneCalls::status(base::TimePoint now) const {
  LaneStatus status;
  status.started = started_;
  status.finished = (failed_ != 0        ? failed_
                     : first_ == nullptr ? started_ + 1
                                         : first_->number) -
                    1;
  if (last_number_ != 0)
    status.last = schedules::describe_call(last_signature_, last_number_, priority_of(lane_));
  if (first_ == nullptr) return status;
  status.waited_ns =
      static_cast<std::uint64_t>(std::max<std::int64_t>(0, first_->waited(now).count()));
  Awaited awaited;
  first_->owner->append_awaited(*first_, awaited);
  status.waiting_for = std::move(awaited.ranks);
  status.device = std::move(awaited.device);
  const CollectiveOperation* const call = first_->collective();
  status.current = call == nullptr
                       ? first_->describe({})
                       : schedules::describe_call(call->signature, call->number, call->priority());
  status.tag = first_->tag;
  return status;
}

// The two ranks alone cannot tell which of them is wrong.
Failure LaneCalls::disagreement(int peer, const CollectiveOperation* mine, const Frame& theirs,
                                const transports::Link* link) const {
  return {Errc::mismatch,
          disagreement_text(peer, mine, theirs),
          -1,
          {std::min(peer, rank_), std::max(peer, rank_)},
          -1,
          link == nullptr ? std::string() : link->describe()};
}

std::string LaneCalls::disagreement_text(int peer, const CollectiveOperation* mine,
                                         const Frame& theirs) const {
  const CollectiveOperation* const expected = mine;
  for (const Operation* o = first_; o != nullptr; o = o->later)
    if (o->number == theirs.number) mine = o->collective();
  const Priority priority = priority_of(lane_);
  const std::string call = schedules::describe_call(theirs.signature, theirs.number, priority);
  if (mine == nullptr)
    return fmt::format("rank {} called {}, which rank {} has already finished in another way", peer,
                       call, rank_);
  if (mine != expected && mine->signature == theirs.signature && expected != nullptr)
    return fmt::format(
        "rank {} sent data of {} where rank {} waits for data of {}: rank {} called "
        "#{} in another way, or left it out; all ranks must make the same calls in the "
        "same order",
        peer, call, rank_,
        schedules::describe_call(expected->signature, expected->number, priority), peer,
        expected->number);
  if (mine->number == theirs.number && schedules::same_arguments(mine->signature, theirs.signature))
    return fmt::format(
        "rank {} runs {} as {}, rank {} as {}: the settings differ; algorithm, "
        "segment size, depth, staging, reproducible and checksum must be the same "
        "on all ranks",
        peer, call, schedules::name_of(theirs.signature.algorithm), rank_,
        schedules::name_of(mine->signature.algorithm));
  return fmt::format("rank {} called {} where rank {} called {}", peer, call, rank_,
                     schedules::describe_call(mine->signature, mine->number, priority));
}

Failure LaneCalls::late(const Operation& operation) const {
  Awaited awaited;
  operation.owner->append_awaited(operation, awaited);
  std::string text = operation.owner->late_text(operation);
  if (text.empty()) {
    text = fmt::format("not done within {:.4g} s",
                       std::chrono::duration<double>(operation.time_limit).count());
    if (!awaited.device.empty())
      text += fmt::format(": rank {} waits for {}", rank_, awaited.device);
    else if (!awaited.ranks.empty())
      text += fmt::format(": rank {} waits for data from rank {}", rank_,
                          base::join(awaited.ranks, ", "));
  }
  return {Errc::deadline_exceeded, std::move(text), -1,
          awaited.device.empty() ? awaited.ranks : std::vector<int>{rank_}, rank_};
}

}  // namespace rondo::operation
