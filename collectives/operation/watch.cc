// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/watch.h"

#include <algorithm>
#include <utility>

#include "collectives/operation/operation.h"
#include "collectives/operation/owner.h"

namespace rondo::operation {

namespace {

// A rank is named when it was the last in more than nine of ten calls, by more than a millisecond
// and more than a fifth of the call. On a busy machine chance alone makes a rank so late for tenths
// of a second.
constexpr std::int64_t least_calls = 100;
constexpr std::chrono::seconds least_time{5};
constexpr milliseconds least_lateness{1};
constexpr int least_share = 5;
constexpr std::chrono::minutes between_warnings{1};

}  // namespace

void Watch::look(const Operation* oldest, base::TimePoint now) {
  if (oldest == nullptr) {
    watched_ = nullptr;
    return;
  }
  if (watched_ == oldest) {
    add(now);
    seen_again_ = true;
  } else {
    watched_ = oldest;
    tag_ = tags_ != nullptr ? &tags_->of(oldest->tag) : nullptr;
    since_ = now;
    seen_again_ = false;
    only_ = -1;
  }
  const Standing standing =
      oldest->mark.reached ? oldest->owner->standing(*oldest, only_ < 0) : Standing{WaitCause::gpu};
  cause_ = standing.cause;
  if (only_ >= 0 || standing.only < 0) return;
  only_ = standing.only;
  warns_ = standing.warns;
  only_since_ = now;
}

void Watch::heard_all(Operation& operation) noexcept {
  if (!waits_for_ranks(operation)) return;
  if (seen_again_) {
    const base::TimePoint now = base::Clock::now();
    add(now);
    operation.times.arrived = now;
    if (const auto rank = static_cast<std::size_t>(only_); only_ >= 0 && rank < late_.size()) {
      const nanoseconds alone = now - only_since_;
      operation.times.last = only_;
      operation.times.late = alone;
      ++late_[rank].calls;
      late_[rank].waited += alone;
      if (window_.candidate < 0) {
        window_.candidate = only_;
        window_.since = now - alone;
      }
      if (window_.candidate == only_) {
        ++window_.times;
        window_.late += alone;
        window_.warns = warns_;
      }
    }
  }
  cause_ = WaitCause::transfer;
}

std::optional<LateReport> Watch::ended(const Operation& operation) noexcept {
  if (std::exchange(watched_, watched_ == &operation ? nullptr : watched_) == &operation &&
      seen_again_)
    add(base::Clock::now());
  if (operation.collective() == nullptr || ++window_.calls < least_calls) return std::nullopt;
  return judge_window();
}

void Watch::add(base::TimePoint now) noexcept {
  const nanoseconds time = now - std::exchange(since_, now);
  const auto cause = static_cast<std::size_t>(cause_);
  waited_[cause] += time;
  if (tag_ != nullptr) tag_->waited[cause] += time;
  window_.all += time;
}

bool Watch::Window::is_late() const noexcept {
  return 10 * times > 9 * calls &&
         late / times > std::max<nanoseconds>(least_lateness, all / calls / least_share);
}

// The clock is read only while a rank is late.
std::optional<LateReport> Watch::judge_window() noexcept {
  const base::TimePoint now = window_.is_late() ? base::Clock::now() : base::TimePoint::min();
  if (window_.is_late() && now < window_.since + least_time) return std::nullopt;
  const Window window = std::exchange(window_, {});
  if (!window.is_late() || !window.warns || now < next_warning_) return std::nullopt;
  next_warning_ = now + between_warnings;
  return LateReport{window.candidate, window.times, window.calls, window.late / window.times};
}

}  // namespace rondo::operation
