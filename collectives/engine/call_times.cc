// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/call_times.h"

#include <cstdint>

#include "collectives/operation/owner.h"

namespace rondo::engine {

namespace {

// After this time without a frame the ranks compare their calls.
constexpr milliseconds stall_time{500};

// Messages have no number that another rank knows: 0 says that there is none to compare.
std::uint64_t number_of(const operation::Operation& operation) noexcept {
  const operation::CollectiveOperation* const call = operation.collective();
  return call != nullptr ? call->number : 0;
}
Priority priority_of(const operation::Operation& operation) noexcept {
  const operation::CollectiveOperation* const call = operation.collective();
  return call != nullptr ? call->priority() : Priority::bulk;
}

}  // namespace

// In each lane they are the newest.
void CallTimes::start_clocks(base::TimePoint now) noexcept {
  if (!new_calls_) return;
  new_calls_ = false;
  for (const operation::LaneCalls& calls : calls_) {
    for (operation::Operation* o = calls.last(); o != nullptr && !o->timed; o = o->earlier) {
      o->start_clock(now);
      next_deadline_ = std::min(next_deadline_, o->deadline);
    }
  }
  next_progress_check_ = std::min(next_progress_check_, now + stall_time);
}

bool CallTimes::check(base::TimePoint now) {
  if (now >= next_progress_check_) check_progress(now);
  return now >= next_deadline_ && check_deadlines(now);
}

void CallTimes::clear() noexcept {
  new_calls_ = false;
  next_deadline_ = next_progress_check_ = base::TimePoint::max();
}

bool CallTimes::check_deadlines(base::TimePoint now) {
  next_deadline_ = base::TimePoint::max();
  for (const operation::LaneCalls& calls : calls_) {
    for (const operation::Operation* o = calls.first(); o != nullptr; o = o->later) {
      next_deadline_ = std::min(next_deadline_, o->deadline);
      if (now < o->deadline) continue;
      return verdict_.expire(priority_of(*o), number_of(*o), o->time_limit, calls.late(*o), now);
    }
  }
  return false;
}

// If two ranks call a reduce with different roots, each may wait for the other's first frame: no
// frame shows the mismatch. Operations that wait for warn_after are noticed here too, so they need
// no timer of their own.
void CallTimes::check_progress(base::TimePoint now) {
  const bool pending = std::ranges::any_of(
      calls_, [](const operation::LaneCalls& calls) { return calls.first() != nullptr; });
  next_progress_check_ = pending ? now + stall_time : base::TimePoint::max();
  if (verdict_.observer() == nullptr) return;
  for (operation::LaneCalls& calls : calls_) {
    const bool still = calls.stands_still();
    const operation::Operation* const first = calls.first();
    if (!still || first == nullptr) continue;
    const Priority priority = priority_of(*first);
    const std::uint64_t number = number_of(*first);
    if (warn_after_.count() > 0 && calls.tell_slow(warn_after_, now))
      verdict_.report([=, waited = first->waited(now)](EngineObserver& observer) {
        observer.slow(priority, number, waited);
      });
    if (first->collective() != nullptr && calls.tell_stalled())
      verdict_.report([=](EngineObserver& observer) { observer.stalled(priority, number); });
  }
}

}  // namespace rondo::engine
