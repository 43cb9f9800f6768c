// SPDX-License-Identifier: Apache-2.0
//
// What goes wrong, and how it is said. A rank that sees a failure stops moving bytes and reports
// it; the cause that holds for the communicator comes back through fail(), or after a while the
// rank settles for its own.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/engine/engine.h"
#include "collectives/engine/guard.h"

namespace rondo::engine {

namespace {

// A peer that closed its end in order may have left in order: its farewell comes over the control
// plane.
constexpr milliseconds farewell_time{200};

std::string seconds_text(nanoseconds time) {
  return fmt::format("{:.4g} s", std::chrono::duration<double>(time).count());
}

}  // namespace

std::string Engine::text(const Operation& operation) const {
  if (operation.lane == transports::Lane::messages)
    return point_.describe(operation) + " over " + options_.transport + ")";
  return schedules::describe_call(operation.signature, operation.number, operation.priority(),
                                  operation.tag, options_.transport);
}

std::string Engine::lost_text(const Channel& c, std::string_view what) const {
  return fmt::format("rank {} lost rank {}{}{}: {}", options_.rank, c.peer,
                     c.link != nullptr ? " at " : "", c.link != nullptr ? c.link->describe() : "",
                     what);
}

std::string Engine::view_of(const Operation& operation) const {
  std::string text = fmt::format("not done within {}", seconds_text(operation.time_limit));
  std::vector<int> ranks;
  append_awaited(operation, ranks);
  if (ranks.empty()) return text;
  text += fmt::format(": rank {} waits for data from rank", options_.rank);
  for (const int rank : ranks) text += fmt::format("{} {}", rank == ranks.front() ? "" : ",", rank);
  return text;
}

void Engine::append_awaited(const Operation& operation, std::vector<int>& ranks) const {
  if (operation.direct())
    return direct_[static_cast<std::size_t>(operation.lane)].append_awaited(ranks);
  const auto& peers = operation.run.program().peers();
  for (std::size_t i = 0; i < peers.size(); ++i)
    if (!operation.run.peer(static_cast<int>(i)).receives.done()) ranks.push_back(peers[i].rank);
}

void Engine::end(Operation& operation, Operation::State state, std::error_code code,
                 std::string message) {
  if (operation.callback) {
    operation.add_reference();
    operation.next_ended = nullptr;
    (last_ended_ == nullptr ? first_ended_ : last_ended_->next_ended) = &operation;
    last_ended_ = &operation;
  }
  --pending_;
  operation.end(state, code, std::move(message));
  operation.drop();  // the engine's reference: from here on it may belong to another call
  tell_waiters();
  if (sleeping_ > 0) wake();
}

// Reports and callbacks run without the lock: they may call back. Until then operations with
// callbacks are not used again.
void Engine::deliver(std::unique_lock<std::mutex>& lock) {
  if (reports_.empty() && first_ended_ == nullptr) return;
  std::vector<std::function<void()>> reports;
  reports.swap(reports_);
  Operation* ended = std::exchange(first_ended_, nullptr);
  last_ended_ = nullptr;
  lock.unlock();
  for (const auto& report : reports) report();
  while (ended != nullptr) {
    Operation* const operation = std::exchange(ended, ended->next_ended);
    operation->callback(operation->code);
    operation->callback = nullptr;
    operation->drop();
  }
  lock.lock();
}

void Engine::suspect(Failure failure) {
  if (failure_ || suspicion_) return;
  if (observer_ == nullptr) return adopt(failure);
  reports_.push_back([this, failure] { observer_->failure(failure); });
  suspicion_ = std::move(failure);
  suspicion_until_ = base::Clock::now() + verdict_time;
}

void Engine::adopt(const Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  suspicion_.reset();
  for (transports::Transport* transport : transports_) transport->halt();
  for (direct::DirectLane& d : direct_) d.clear();
  for (Lane& l : lanes_) {
    Operation* operation = l.first();
    l.clear();
    while (operation != nullptr) {
      Operation* const next = operation->next;
      end(*operation, Operation::State::failed, failure.code,
          text(*operation) + ": " + failure.cause);
      operation = next;
    }
  }
  Operation* operation = point_.first();
  point_.clear();
  while (operation != nullptr) {
    Operation* const next = operation->next;
    end(*operation, Operation::State::failed, failure.code,
        text(*operation) + ": " + failure.cause);
    operation = next;
  }
  next_deadline_ = farewell_check_ = stall_check_ = base::TimePoint::max();
  if (sleeping_ > 0) wake();
}

void Engine::abort(const Failure& failure) {
  std::unique_lock lock = Guard::acquire(*this);
  suspect(failure);
  if (pending_ > 0) move_on();
  deliver(lock);
}

void Engine::fail(const Failure& failure) {
  std::unique_lock lock = Guard::acquire(*this);
  adopt(failure);
  deliver(lock);
}

base::TimePoint Engine::next_time() const noexcept {
  if (suspicion_) return suspicion_until_;
  return std::min({next_deadline_, farewell_check_, stall_check_, point_.farewell_check()});
}

void Engine::check_time(base::TimePoint now) {
  if (suspicion_ && now >= suspicion_until_) return adopt(Failure(*suspicion_));
  if (failure_ || suspicion_ || now < next_time()) return;
  if (now >= farewell_check_) check_farewells(now);
  if (now >= point_.farewell_check()) point_.check_farewells(now);
  if (now >= stall_check_) check_stall(now);
  if (suspicion_ || now < next_deadline_) return;
  next_deadline_ = base::TimePoint::max();
  for (const Lane& l : lanes_) {
    for (const Operation* o = l.first(); o != nullptr; o = o->next) {
      if (now >= o->deadline) return expire(*o);
      next_deadline_ = std::min(next_deadline_, o->deadline);
    }
  }
  for (const Operation* o = point_.first(); o != nullptr; o = o->next) {
    if (now >= o->deadline) return expire_point(*o);
    next_deadline_ = std::min(next_deadline_, o->deadline);
  }
}

void Engine::expire(const Operation& operation) {
  const std::string view = view_of(operation);
  if (observer_ == nullptr) return adopt({Errc::deadline_exceeded, view});
  reports_.push_back([this, lane = operation.priority(), number = operation.number,
                      limit = operation.time_limit,
                      view] { observer_->deadline(lane, number, limit, view); });
  suspicion_ = Failure{Errc::deadline_exceeded, view};
  suspicion_until_ = base::Clock::now() + verdict_time;
}

// Two ranks may both wait for the other's first frame, each as the root of its own call: no frame
// tells them.
void Engine::check_stall(base::TimePoint now) {
  stall_check_ = pending_ > 0 ? now + stall_time : base::TimePoint::max();
  if (observer_ == nullptr) return;
  check_slow(now);
  for (std::size_t i = 0; i < lane_count; ++i) {
    Lane& l = lanes_[i];
    const bool moved = std::exchange(l.frames_at_last_look, l.frames_received) != l.frames_received;
    const Operation* const first = l.first();
    if (moved || first == nullptr || stall_reported_[i] == first->number) continue;
    stall_reported_[i] = first->number;
    reports_.push_back([this, lane = first->priority(), number = first->number] {
      observer_->stalled(lane, number);
    });
  }
}

// Checked together with stalls: a wait of seconds needs no timer of its own.
void Engine::check_slow(base::TimePoint now) {
  if (options_.warn_after.count() <= 0) return;
  const auto look = [&](const Operation* operation, std::size_t place, bool moved) {
    if (operation == nullptr || moved || slow_reported_[place] == operation->number) return;
    const nanoseconds waited = operation->waited(now);
    if (waited < options_.warn_after) return;
    slow_reported_[place] = operation->number;
    const bool message = place == lane_count;
    reports_.push_back([this, lane = message ? Priority::bulk : operation->priority(),
                        number = message ? 0 : operation->number,
                        waited] { observer_->slow(lane, number, waited); });
  };
  for (std::size_t i = 0; i < lane_count; ++i)
    look(lanes_[i].first(), i, lanes_[i].frames_at_last_look != lanes_[i].frames_received);
  look(point_.oldest(), lane_count, false);
}

void Engine::check_farewells(base::TimePoint now) {
  farewell_check_ = base::TimePoint::max();
  for (Lane& l : lanes_) {
    for (Channel& c : l.channels()) {
      if (c.lost.empty() || !c.lost_in_order || (c.receiving == nullptr && c.sending == nullptr))
        continue;
      if (now >= c.lost_at + farewell_time) return suspect({Errc::peer_lost, c.lost, c.peer});
      farewell_check_ = std::min(farewell_check_, c.lost_at + farewell_time);
    }
  }
}

void Engine::broken(transports::Link& link, std::error_code code, std::string_view what,
                    bool clean) {
  if (link.lane() == transports::Lane::messages)
    return point_.broken(link, code, what, clean, base::Clock::now());
  Channel& c = channel(link);
  c.lost = lost_text(c, what);
  c.lost_in_order = clean;
  c.lost_at = base::Clock::now();
  c.lost_code = code == Errc::authentication ? Errc::authentication : Errc::peer_lost;
  notice_lost(c);
}

// A lost link matters once an operation needs it.
void Engine::notice_lost(Channel& c) {
  if (c.receiving == nullptr && c.sending == nullptr) return;
  if (!c.lost_in_order)
    return suspect({c.lost_code, c.lost, c.lost_code == Errc::peer_lost ? c.peer : -1});
  if (!std::exchange(c.lost_matters, true)) c.lost_at = base::Clock::now();
  farewell_check_ = std::min(farewell_check_, c.lost_at + farewell_time);
}

// Of several ranks that left, takes the one that has done least: the same on every rank, whichever
// it heard of first.
const Engine::Left* Engine::who_left_before(const Operation& operation) const noexcept {
  const auto lane = static_cast<std::size_t>(operation.lane);
  const Left* first = nullptr;
  for (const Left& left : left_) {
    if (operation.number <= left.finished[lane]) continue;
    if (first == nullptr ||
        std::pair(left.finished[lane], left.rank) < std::pair(first->finished[lane], first->rank))
      first = &left;
  }
  return first;
}

void Engine::check_peers(Operation& operation) {
  if (const Left* const left = who_left_before(operation))
    return suspect(left_failure(left->rank, left->finished));
  for (const schedules::ProgramPeer& peer : operation.run.program().peers()) {
    Channel& c = lane(operation.lane).channel(peer.rank);
    if (!c.lost.empty()) notice_lost(c);
  }
  if (!any_held_) return;
  any_held_ = false;
  for (Lane& l : lanes_)
    for (Channel& c : l.channels()) check_held(c);
}

void Engine::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  std::unique_lock lock = Guard::acquire(*this);
  left_.push_back({rank, {}});
  std::copy_n(finished, lane_count, left_.back().finished);
  for (const Lane& l : lanes_)
    for (const Operation* o = l.first(); o != nullptr; o = o->next)
      if (const Left* const left = who_left_before(*o))
        suspect(left_failure(left->rank, left->finished));
  point_.peer_left(rank, base::Clock::now());
  if (sleeping_ > 0) wake();
  deliver(lock);
}

// A header that comes while its own operation cannot take it, or that belongs to no operation this
// rank expects from the peer. Fills in the payload's length, of which the header has only the lower
// half.
bool Engine::check_frame(Channel& c, Frame& frame) {
  const Operation* mine = c.receiving;
  if (mine == nullptr || frame.number != mine->number || frame.signature != mine->signature) {
    mismatch(c.peer, c.lane, mine, frame);
    return false;
  }
  const FramePlace place = mine->run.next_receive(c.receiving_index);
  const std::size_t bytes = mine->run.bytes_of(place);
  if (frame.segment == place.segment && frame.frame == place.frame &&
      frame.bytes == static_cast<std::uint32_t>(bytes)) {
    frame.bytes = bytes;
    return true;
  }
  suspect({Errc::corrupt, lost_text(c, fmt::format("frame {} of segment {} came out of order",
                                                   frame.frame, frame.segment))});
  return false;
}

void Engine::check_held(Channel& c) {
  if (!c.held) return;
  if (c.receiving == nullptr && c.held->number <= lane(c.lane).started()) {
    mismatch(c.peer, c.lane, c.receiving, *c.held);
  } else {
    any_held_ = true;
  }
}

void Engine::mismatch(int peer, transports::Lane its_lane, const Operation* mine,
                      const Frame& theirs) {
  if (const Operation* const same = lane(its_lane).find(theirs.number)) mine = same;
  const Priority priority =
      its_lane == transports::Lane::urgent ? Priority::urgent : Priority::bulk;
  const std::string call = schedules::describe_call(theirs.signature, theirs.number, priority);
  std::string cause;
  if (mine == nullptr) {
    cause = fmt::format("rank {} called {}, which rank {} has already finished in another way",
                        peer, call, options_.rank);
  } else if (mine->number == theirs.number &&
             schedules::same_arguments(mine->signature, theirs.signature)) {
    cause = fmt::format(
        "rank {} runs {} as {}, rank {} as {}: the settings differ; algorithm, segment size, "
        "depth, staging, "
        "reproducible and checksum must be the same on all ranks",
        peer, call, schedules::name_of(theirs.signature.algorithm), options_.rank,
        schedules::name_of(mine->signature.algorithm));
  } else {
    cause = fmt::format("rank {} called {} where rank {} called {}", peer, call, options_.rank,
                        schedules::describe_call(mine->signature, mine->number, priority));
  }
  suspect({Errc::mismatch, std::move(cause)});
}

void Engine::refuse_post(const direct::DirectLane& direct) {
  const Operation& mine = direct.first();
  if (const auto theirs = direct.offence())
    return mismatch(direct.offender(), mine.lane, &mine, *theirs);
  suspect({Errc::corrupt,
           fmt::format("rank {} has posted a call that cannot be read", direct.offender())});
}

void Engine::set_callback(Operation& operation, std::function<void(std::error_code)> callback) {
  std::unique_lock lock = Guard::acquire(*this);
  if (operation.state() == Operation::State::running) {
    operation.callback = std::move(callback);
    return;
  }
  lock.unlock();
  callback(operation.code);
}

RankStatus Engine::status() {
  std::unique_lock lock = Guard::acquire(*this);
  const base::TimePoint now = base::Clock::now();
  RankStatus status;
  for (std::size_t i = 0; i < lane_count; ++i) {
    const Lane& l = lanes_[i];
    LaneStatus& s = status.lanes[i];
    s.started = l.started();
    s.finished = l.finished();
    if (l.last_number != 0)
      s.last = schedules::describe_call(l.last_signature, l.last_number, static_cast<Priority>(i));
    if (l.first() == nullptr) continue;
    s.current =
        schedules::describe_call(l.first()->signature, l.first()->number, static_cast<Priority>(i));
    s.tag = l.first()->tag;
    s.waited_ns =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, l.first()->waited(now).count()));
    append_awaited(*l.first(), s.waiting_for);
  }
  if (const Operation* const oldest = point_.oldest()) {
    status.messages.current = point_.describe(*oldest) + ")";
    status.messages.waited_ns =
        static_cast<std::uint64_t>(std::max<std::int64_t>(0, oldest->waited(now).count()));
    point_.append_awaited(*oldest, status.messages.waiting_for);
  }
  return status;
}

EngineStatistics Engine::statistics() {
  std::unique_lock lock = Guard::acquire(*this);
  EngineStatistics result = statistics_;
  for (const Lane& l : lanes_) result.staging_bytes += l.staging_bytes();
  for (const direct::DirectLane& d : direct_) result.bytes_received += d.bytes_loaded();
  const point::Point::Counters& point = point_.counters();
  result.frames_sent += point.frames_sent;
  result.frames_received += point.frames_received;
  result.bytes_sent += point.bytes_sent;
  result.bytes_received += point.bytes_received;
  result.staging_bytes += point_.staging_bytes();
  return result;
}

}  // namespace rondo::engine
