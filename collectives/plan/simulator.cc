// SPDX-License-Identifier: Apache-2.0
//
// A simulation by events. A sender hands a frame over, its last byte reaches the receiver's link,
// and it arrives; each event lets one rank do all that its Progress allows now. simulated_fabric.h
// knows when processors, cores and links are free.
#include "collectives/plan/simulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <queue>

#include <rondo/error.h>

#include "base/text.h"
#include "collectives/plan/costs.h"
#include "collectives/plan/simulated_fabric.h"
#include "collectives/plan/simulated_rank.h"
#include "collectives/schedules/call.h"
#include "collectives/schedules/layout.h"
#include "collectives/schedules/schedules.h"
#include "collectives/schedules/symmetry.h"

namespace rondo::plan {

namespace {

enum class Kind : std::uint8_t {
  start,    // a rank calls the operation
  leave,    // a frame is ready for its sender's link
  reach,    // its first byte is at the receiver's host
  arrive,   // its last byte is there
  receive,  // the receiver has handled it
  sent      // the sender may use its buffer again
};

struct Event {
  Kind kind = Kind::start;
  std::uint32_t rank = 0, peer = 0, step = 0;
  std::uint64_t segment = 0, bytes = 0;
  // leave: when the sender has handed over the last byte. reach: when the last byte would come.
  // arrive: when the first byte came.
  Picoseconds other = 0;
  Trail trail;
};

// Events in order of time. Those of the same time come by kind, then by rank, so that equal hosts
// do the same things in the same order; then as they were made.
class EventQueue {
 public:
  bool empty() const noexcept { return keys_.empty(); }
  Picoseconds time() const { return keys_.top().time; }
  void push(Picoseconds time, const Event& event) {
    std::uint32_t slot = static_cast<std::uint32_t>(events_.size());
    if (free_.empty()) {
      events_.push_back(event);
    } else {
      slot = free_.back();
      free_.pop_back();
      events_[slot] = event;
    }
    keys_.push({time, tie(event, ++made_), slot});
  }
  Event pop() {
    const std::uint32_t slot = keys_.top().slot;
    keys_.pop();
    free_.push_back(slot);
    return events_[slot];
  }

 private:
  struct Key {
    Picoseconds time;
    std::uint64_t tie;
    std::uint32_t slot;
    bool operator>(const Key& other) const noexcept {
      return time != other.time ? time > other.time : tie > other.tie;
    }
  };
  static std::uint64_t tie(const Event& event, std::uint64_t number) noexcept {
    return std::uint64_t(event.kind) << 61 | std::uint64_t{event.rank} << 40 |
           (number & ((std::uint64_t{1} << 40) - 1));
  }

  std::priority_queue<Key, std::vector<Key>, std::greater<>> keys_;
  std::vector<Event> events_;
  std::vector<std::uint32_t> free_;
  std::uint64_t made_ = 0;
};

schedules::Layout layout_of(const SimulatedCall& call, int ranks, std::uint32_t slices) {
  const std::uint64_t blocks =
      schedules::is_blocked(call.operation) ? static_cast<std::uint64_t>(ranks) : 1;
  return {call.bytes / blocks, std::max<std::size_t>(1, call.segment_bytes / blocks), slices,
          schedules::is_blocked(call.operation)};
}

// The grouping that a communicator would find in the records of the ranks.
schedules::Hosts group(const Fabric& fabric) {
  if (fabric.hosts == 1) return {};
  std::vector<int> host_of_rank(static_cast<std::size_t>(fabric.hosts * fabric.ranks_per_host));
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank)
    host_of_rank[rank] = host_of(fabric, static_cast<int>(rank));
  return schedules::Hosts(host_of_rank);
}

// One run: prepare(), then run().
class Simulation {
 public:
  // hosts: how many hosts of the fabric are simulated, one or all.
  Simulation(const SimulatedCall& call, const Fabric& fabric, std::span<const Straggler> stragglers,
             int hosts);
  void prepare(std::uint64_t memory_limit);
  SimulatedRun run(std::uint64_t frame_limit);

 private:
  void connect();
  void handle(const Event& event);
  void act(const Event& event);
  void try_receive(std::uint32_t peer, const Event& event);
  void start_send(std::uint32_t peer, const Event& event);
  void leave(const Event& event, Picoseconds ready);
  void mark_done(const Event& event);
  SimulatedRun report() const;
  [[noreturn]] void report_standstill() const;
  [[noreturn]] void report_too_many(std::uint64_t limit) const;

  bool is_whole() const noexcept { return hosts_ == fabric_.hosts; }
  // The rank that is simulated in its place. Where one host stands for all: the rank at the same
  // place on that host.
  std::uint32_t stand_in(int rank) const noexcept {
    return static_cast<std::uint32_t>(is_whole() ? rank : rank % fabric_.ranks_per_host);
  }
  bool is_inside(std::uint32_t rank, int other) const noexcept {
    return host_of(fabric_, static_cast<int>(rank)) == host_of(fabric_, other);
  }
  std::uint64_t bytes_of(std::uint64_t segment, std::uint32_t slice) const noexcept {
    if (slice >= slices_) return 0;
    return layout_.in_buffer(segment, is_whole() ? slice : 0).count;
  }

  const SimulatedCall call_;
  const Fabric fabric_;
  const int hosts_, all_ranks_;
  const std::uint32_t count_;  // ranks simulated
  SimulatedFabric servers_;
  std::uint32_t slices_ = 1;
  schedules::Layout layout_;
  std::unique_ptr<schedules::FrameTables> tables_;
  std::vector<schedules::Program> programs_;
  std::vector<SimulatedRank> ranks_;  // refer to the programs, which stay where they are
  EventQueue events_;
  std::vector<Candidate> found_;
  Picoseconds now_ = 0;
  std::uint32_t done_ = 0;
  Picoseconds first_done_ = 0;
  std::uint32_t last_rank_ = 0;
  Trail last_trail_;
  std::uint64_t frames_ = 0, bytes_ = 0;
};

Simulation::Simulation(const SimulatedCall& call, const Fabric& fabric,
                       std::span<const Straggler> stragglers, int hosts)
    : call_(call),
      fabric_(fabric),
      hosts_(hosts),
      all_ranks_(fabric.hosts * fabric.ranks_per_host),
      count_(static_cast<std::uint32_t>(hosts * fabric.ranks_per_host)),
      servers_(fabric, stragglers, hosts) {}

void Simulation::prepare(std::uint64_t memory_limit) {
  const schedules::Hosts grouping = group(fabric_);
  programs_.reserve(count_);
  ranks_.reserve(count_);
  std::uint64_t memory = 0;
  for (std::uint32_t rank = 0; rank < count_; ++rank) {
    const schedules::Schedule schedule = schedules::make_schedule(
        call_.algorithm, call_.operation, static_cast<int>(rank), all_ranks_, call_.root, grouping);
    if (rank == 0) {
      slices_ = schedule.slices;
      layout_ = layout_of(call_, all_ranks_, slices_);
      tables_ = std::make_unique<schedules::FrameTables>(schedule.rounds, call_.depth);
    }
    programs_.emplace_back(schedule, call_.depth, *tables_);
    ranks_.emplace_back(programs_.back(), layout_.segments());
    memory += programs_.back().memory() + ranks_.back().memory();
    if (memory > memory_limit)
      throw Error(
          Errc::unsupported,
          fmt::format(
              "the schedules of {} over {} ranks need about {} of memory to simulate, more than {}",
              schedules::name_of(call_.algorithm), all_ranks_,
              base::describe_bytes(memory / (rank + 1) * count_),
              base::describe_bytes(memory_limit)));
  }
  connect();
}

void Simulation::connect() {
  for (std::uint32_t rank = 0; rank < count_; ++rank) {
    for (std::uint32_t p = 0; p < ranks_[rank].peers(); ++p) {
      const int named = ranks_[rank].rank_of(p);
      const std::uint32_t other = stand_in(named);
      const int shift = named - static_cast<int>(other);
      ranks_[rank].peer(p).reverse = static_cast<std::uint32_t>(
          ranks_[other].find_peer(schedules::wrap(static_cast<int>(rank) - shift, all_ranks_)));
    }
  }
}

SimulatedRun Simulation::run(std::uint64_t frame_limit) {
  for (std::uint32_t rank = 0; rank < count_; ++rank)
    events_.push(servers_.start_of(rank),
                 {.kind = Kind::start, .rank = rank, .trail = {rank, rank, 0, 0}});
  while (!events_.empty()) {
    now_ = events_.time();
    handle(events_.pop());
    if (frames_ > frame_limit) report_too_many(frame_limit);
  }
  if (done_ != count_) report_standstill();
  return report();
}

void Simulation::handle(const Event& event) {
  SimulatedRank& rank = ranks_[event.rank];
  switch (event.kind) {
    case Kind::start:
      rank.begin(found_);
      break;
    case Kind::leave:
      return leave(event, now_);
    case Kind::reach: {
      Event next = event;
      next.kind = Kind::arrive;
      const bool inside = is_inside(event.rank, rank.rank_of(event.peer));
      const Picoseconds last =
          servers_.enter(event.rank, inside, {now_, event.other}, event.bytes, next.trail);
      next.other = now_;
      return events_.push(last, next);
    }
    case Kind::arrive:
      ++rank.peer(event.peer).waiting;
      found_.push_back({event.peer, false});
      break;
    case Kind::receive:
      rank.peer(event.peer).taking = false;
      rank.received(event.peer, found_);
      break;
    case Kind::sent:
      rank.sent({.segment = event.segment, .step = event.step}, found_);
      break;
  }
  act(event);
  if (rank.done()) mark_done(event);
}

// Does all that the event's rank can do now; each action may make more possible.
void Simulation::act(const Event& event) {
  for (std::size_t i = 0; i < found_.size(); ++i) {
    const Candidate next = found_[i];
    if (!next.send)
      try_receive(next.peer, event);
    else
      while (ranks_[event.rank].can_send(next.peer)) start_send(next.peer, event);
  }
  found_.clear();
}

void Simulation::try_receive(std::uint32_t peer_index, const Event& event) {
  SimulatedRank& rank = ranks_[event.rank];
  SimulatedPeer& peer = rank.peer(peer_index);
  if (peer.taking || peer.waiting == 0 || !rank.can_receive(peer_index)) return;
  const schedules::FramePlace place = rank.next_receive(peer_index);
  const schedules::ProgramStep& step = rank.step(place);
  // If the rank could take the frame while it came, it has handled all but the end of it already.
  const bool at_once = event.kind == Kind::arrive && event.peer == peer_index && peer.waiting == 1;
  --peer.waiting;
  peer.taking = true;
  Event next{.kind = Kind::receive, .rank = event.rank, .peer = peer_index, .trail = event.trail};
  if (event.kind == Kind::arrive) next.trail.enter(event.rank, now_);
  const Picoseconds done =
      servers_.receive(event.rank, at_once ? event.other : now_, now_,
                       bytes_of(place.segment, step.slice), step.reduce, next.trail);
  events_.push(done, next);
}

void Simulation::start_send(std::uint32_t peer_index, const Event& event) {
  SimulatedRank& rank = ranks_[event.rank];
  const schedules::FramePlace place = rank.send_started(peer_index, found_);
  Event next{.kind = Kind::leave,
             .rank = event.rank,
             .peer = peer_index,
             .step = place.step,
             .segment = place.segment,
             .bytes = bytes_of(place.segment, rank.step(place).slice),
             .trail = event.trail};
  const Passage ready = servers_.send(event.rank, now_, next.bytes, next.trail);
  next.other = ready.last;
  next.trail.leave(ready.first);
  // A link that only one rank uses takes its frames in the order in which the rank makes them
  // ready.
  if (fabric_.ranks_per_host == 1)
    leave(next, ready.first);
  else
    events_.push(ready.first, next);
  ++frames_;
  bytes_ += next.bytes;
}

void Simulation::leave(const Event& event, Picoseconds ready) {
  const int named = ranks_[event.rank].rank_of(event.peer);
  const bool inside = is_inside(event.rank, named);
  Event next{.kind = Kind::reach,
             .rank = stand_in(named),
             .peer = ranks_[event.rank].peer(event.peer).reverse,
             .bytes = event.bytes,
             .trail = event.trail};
  const Passage out =
      servers_.leave(event.rank, inside, {ready, event.other}, event.bytes, next.trail);
  const Picoseconds latency = servers_.latency(inside);
  next.other = out.last + latency;
  events_.push(out.first + latency, next);
  Event sent = event;
  sent.kind = Kind::sent;
  events_.push(inside || event.bytes <= fabric_.copied_bytes ? event.other : out.last, sent);
}

void Simulation::mark_done(const Event& event) {
  if (done_++ == 0) first_done_ = now_;
  last_rank_ = event.rank;
  last_trail_ = event.trail;
  last_trail_.leave(now_);
}

SimulatedRun Simulation::report() const {
  SimulatedRun result;
  const auto seconds = [](Picoseconds time) { return static_cast<double>(time) * 1e-12; };
  const auto copies = static_cast<std::uint64_t>(fabric_.hosts / hosts_);
  result.seconds = seconds(now_);
  result.first_done_seconds = seconds(first_done_);
  result.last_rank = static_cast<int>(last_rank_);
  result.critical_rank = static_cast<int>(last_trail_.longest_rank);
  result.critical_seconds = seconds(last_trail_.longest);
  result.segments = layout_.segments();
  result.frames = frames_ * copies;
  result.bytes = bytes_ * copies;
  result.one_host = !is_whole();
  servers_.report(result, now_);
  result.link_bytes *= copies;
  return result;
}

void Simulation::report_too_many(std::uint64_t limit) const {
  throw Error(
      Errc::unsupported,
      fmt::format("{} over {} ranks sends more than {} frames, and they are too many to simulate",
                  schedules::name_of(call_.algorithm), all_ranks_, limit));
}

void Simulation::report_standstill() const {
  std::uint32_t stuck = 0;
  while (stuck < count_ && ranks_[stuck].done()) ++stuck;
  throw Error(Errc::corrupt,
              fmt::format("the schedules of {} {} over {} ranks stand still: {} of {} ranks are "
                          "not done, rank {} first; rondo plan --check says why",
                          schedules::name_of(call_.algorithm), name_of(call_.operation), all_ranks_,
                          count_ - done_, count_, stuck));
}

// With more frames than this, one host is simulated in place of all, where it can stand for them.
constexpr double frames_worth_a_shortcut = 4e6;

bool one_host_will_do(const SimulatedCall& call, const Fabric& fabric,
                      std::span<const Straggler> stragglers, const SimulationLimits& limits) {
  const double frames = count_frames(call, fabric);
  if (limits.scope == SimulatedScope::all_hosts || fabric.hosts == 1 || !stragglers.empty() ||
      fabric.cores > 0)
    return false;
  if (limits.scope == SimulatedScope::automatic && frames <= frames_worth_a_shortcut) return false;
  return frames / fabric.hosts <= static_cast<double>(limits.frames) &&
         schedules::is_periodic(call.algorithm, call.operation, group(fabric));
}

}  // namespace

double count_frames(const SimulatedCall& call, const Fabric& fabric) {
  const int ranks = fabric.hosts * fabric.ranks_per_host;
  const Shape shape =
      shape_of(call.algorithm, call.operation,
               {.ranks = ranks, .hosts = fabric.hosts, .ranks_per_host = fabric.ranks_per_host});
  const schedules::Layout layout = layout_of(call, ranks, static_cast<std::uint32_t>(shape.slices));
  return shape.frames * static_cast<double>(layout.segments());
}

SimulatedRun simulate(const SimulatedCall& call, const Fabric& fabric,
                      std::span<const Straggler> stragglers, const SimulationLimits& limits) {
  const int ranks = fabric.hosts * fabric.ranks_per_host;
  if (ranks < 2) return {};
  const bool one_host = one_host_will_do(call, fabric, stragglers, limits);
  const double frames = count_frames(call, fabric) / (one_host ? fabric.hosts : 1);
  if (limits.scope == SimulatedScope::one_host && !one_host)
    throw Error(
        Errc::unsupported,
        fmt::format("one host cannot stand for all in {} {} over {} hosts",
                    schedules::name_of(call.algorithm), name_of(call.operation), fabric.hosts));
  if (frames > static_cast<double>(limits.frames))
    throw Error(
        Errc::unsupported,
        fmt::format("{} over {} ranks sends {:.3g} frames, more than the {:.3g} that are simulated",
                    schedules::name_of(call.algorithm), ranks, frames,
                    static_cast<double>(limits.frames)));
  Simulation simulation(call, fabric, stragglers, one_host ? 1 : fabric.hosts);
  simulation.prepare(limits.memory_bytes);
  return simulation.run(2 * limits.frames);  // count_frames() only estimates
}

}  // namespace rondo::plan
