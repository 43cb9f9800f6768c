// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/verdict.h"

#include <utility>

namespace rondo::engine {

bool Verdict::suspect(operation::Failure failure, base::TimePoint now) {
  Report report = [failure](EngineObserver& observer) { observer.failure(failure); };
  return begin_suspicion(std::move(failure), std::move(report), now);
}

bool Verdict::expire(Priority lane, std::uint64_t number, nanoseconds limit, operation::Failure own,
                     base::TimePoint now) {
  Report report = [=, view = own.cause](EngineObserver& observer) {
    observer.deadline(lane, number, limit, view);
  };
  return begin_suspicion(std::move(own), std::move(report), now);
}

bool Verdict::begin_suspicion(operation::Failure failure, Report report, base::TimePoint now) {
  if (stopped_) return false;
  if (observer_ == nullptr) return settle(failure);
  reports_.push_back(std::move(report));
  suspicion_ = std::move(failure);
  suspicion_until_ = now + verdict_time;
  stopped_ = true;
  return false;
}

bool Verdict::settle(const operation::Failure& failure) {
  if (failure_) return false;
  failure_ = failure;
  suspicion_.reset();
  suspicion_until_ = base::TimePoint::max();
  stopped_ = true;
  return true;
}

}  // namespace rondo::engine
