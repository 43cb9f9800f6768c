// SPDX-License-Identifier: Apache-2.0
//
// Joined ranks whose clients record what the control plane tells them.
#pragma once

#include "lib/control/control.h"
#include "lib/rendezvous/joiner.h"
#include "ranks.h"

namespace rondo::tests {

class Listener final : public control::ControlClient {
 public:
  operation::RankStatus status() override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  void failed(const operation::Failure& failure, const control::Heard& heard) override {
    {
      const std::lock_guard lock(mutex_);
      heard_ = heard;
      failures_.push_back(failure);
    }
    changed_.notify_all();
  }
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]) override {
    {
      const std::lock_guard lock(mutex_);
      left_[rank] = finished[0];
    }
    changed_.notify_all();
  }

  void set_status(const operation::RankStatus& status) {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }
  // Returns the first failure. Its cause is empty when none comes in time.
  operation::Failure wait_for_failure(milliseconds time = milliseconds{20'000}) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [this] { return !failures_.empty(); });
    return failures_.empty() ? operation::Failure{Errc::aborted, ""} : failures_.front();
  }
  // Returns what came with the failure.
  control::Heard heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }
  bool wait_for_left(int rank, milliseconds time = milliseconds{20'000}) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return left_.count(rank) != 0; });
  }
  std::size_t failures() {
    const std::lock_guard lock(mutex_);
    return failures_.size();
  }
  std::map<int, std::uint64_t> left() {
    const std::lock_guard lock(mutex_);
    return left_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  operation::RankStatus status_;
  std::vector<operation::Failure> failures_;
  control::Heard heard_;
  std::map<int, std::uint64_t> left_;
};

// One rank with its control, which is destroyed before its listener.
struct Party {
  std::unique_ptr<Listener> listener = std::make_unique<Listener>();
  std::unique_ptr<control::Control> control;

  operation::Failure wait_for_failure() const { return listener->wait_for_failure(); }
};

inline void check_blame(const operation::Failure& failure, const std::vector<int>& culprits,
                        int seen_by) {
  CHECK(failure.culprits == culprits);
  CHECK(failure.seen_by == seen_by);
}

inline std::vector<Party> parties(int size, bool start = true) {
  std::vector<Party> ranks;
  for (Outcome& outcome : join_all(all_places(size, free_url(), "secret"))) {
    if (!outcome.joined) throw std::runtime_error(outcome.message);
    ranks.emplace_back();
    ranks.back().control = std::move(outcome.joined->control);
    if (start) ranks.back().control->start(*ranks.back().listener);
  }
  return ranks;
}

// Joined ranks of which rank `raw` has no control plane: the test holds its connections and plays
// its part.
struct PartlyPlayed {
  std::map<int, Party> ranks;
  std::vector<wire::Stream> streams;
};

inline PartlyPlayed without_control_of(int raw, int size) {
  const auto places = all_places(size, free_url(), "secret");
  const Options options = with_deadline(milliseconds{20'000});
  PartlyPlayed result;
  auto played = std::async(std::launch::async, [&] {
    const rendezvous::Place& place = places[static_cast<std::size_t>(raw)];
    return raw == 0 ? rendezvous::accept_all_ranks(place, options, {})
                    : rendezvous::join_rank_zero(place, options, {});
  });
  std::vector<rendezvous::Place> others = places;
  others.erase(others.begin() + raw);
  auto outcomes = join_all(others, options);
  result.streams = std::move(played.get().streams);
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (!outcomes[i].joined) throw std::runtime_error(outcomes[i].message);
    Party& party = result.ranks[others[i].rank];
    party.control = std::move(outcomes[i].joined->control);
    party.control->start(*party.listener);
  }
  return result;
}

inline operation::RankStatus standing(std::uint64_t started, std::uint64_t finished,
                                      std::vector<int> waiting_for = {}) {
  operation::RankStatus status;
  operation::LaneStatus& lane = status.lanes[0];
  lane.started = started;
  lane.finished = finished;
  if (started > finished)
    lane.current = "all_reduce #" + std::to_string(finished + 1) + " (64 MiB f32 sum)";
  if (finished != 0) lane.last = "all_reduce #" + std::to_string(finished) + " (64 MiB f32 sum)";
  lane.waiting_for = std::move(waiting_for);
  return status;
}

inline double seconds_since(base::TimePoint start) {
  return std::chrono::duration<double>(base::Clock::now() - start).count();
}

}  // namespace rondo::tests
