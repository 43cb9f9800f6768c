// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/rounds.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "tools/shared/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t first_bytes = std::size_t{4} << 20, least_moved = std::size_t{1} << 20,
                      most_short_rounds = 20;
constexpr double round_seconds = 0.05;

// How long a rank tries to finish a round: less than the other ranks wait for it.
std::chrono::nanoseconds round_patience(const Options& options) {
  constexpr std::chrono::nanoseconds most = std::chrono::seconds{10};
  return options.deadline.count() > 0
             ? std::min<std::chrono::nanoseconds>(most, options.deadline / 2)
             : most;
}

}  // namespace

Directions directions_of(Operation operation, int rank, int ranks) {
  if (operation.between_pairs()) {
    const Role role = role_of(operation, rank, ranks);
    return {role.sends, role.receives, role.peer, role.peer};
  }
  const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
  const base::Traits& traits = operation.traits();
  if (traits.rooted() && traits.blocks) return {rank == 0, rank == 1, left, right};
  if (traits.rooted()) return {rank + 1 < ranks, rank > 0, left, right};
  return {true, true, left, right};
}

RingCeiling::RingCeiling(Communicator& communicator, const Options& options, Operation operation,
                         std::string_view lost)
    : communicator_(communicator),
      operation_(operation),
      directions_(directions_of(operation, communicator.rank(), communicator.size())),
      patience_(round_patience(options)),
      lost_(lost) {}

bool RingCeiling::together(const std::function<void()>& step) {
  const bool fine = succeeds_on_all(communicator_, trouble_, step);
  usable_ = usable_ && fine;
  if (!fine && trouble_.empty())
    trouble_ = "another rank could not connect to its neighbours: see its message";
  return fine;
}

void RingCeiling::add(std::unique_ptr<Ring> ring) {
  streams_.push_back({std::move(ring)});
  usable_ = true;
}

double RingCeiling::round(Ring& ring, std::size_t bytes) {
  double seconds = std::numeric_limits<double>::infinity();
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  try {
    ring.move(directions_, bytes, begin + patience_);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  return maximum_over_ranks(communicator_, seconds);
}

// The rate of a stream in one direction in GB/s, the best of one long round and of up to 20 short
// ones, which move as many bytes as the row over each link, but at least 1 MiB: a busy machine
// disturbs them less. Returns 0 when a round failed. Takes about a tenth of a second after the
// first call.
double RingCeiling::best_of(Stream& stream, std::size_t moved) {
  double best = 0;
  bool usable = true;
  const auto try_round = [&](std::size_t bytes) {
    if (!usable) return;
    const double seconds = round(*stream.ring, bytes);
    usable = std::isfinite(seconds);
    if (usable) best = std::max(best, static_cast<double>(bytes) / seconds / 1e9);
  };
  const auto adapt = [&] {
    stream.bytes = static_cast<std::size_t>(std::clamp(best * 1e9 * round_seconds, 65536.0, 1e9));
  };
  // The first round warms the connections, and measures how many bytes fit into a round.
  if (stream.bytes == 0) {
    try_round(first_bytes);
    adapt();
  }
  try_round(stream.bytes);
  const std::size_t few = std::max(moved, least_moved);
  for (std::size_t i = 0; i < std::min(most_short_rounds, stream.bytes / few); ++i) try_round(few);
  adapt();
  return usable ? best : 0;
}

double RingCeiling::measure(const Row& row) {
  const auto moved = static_cast<std::size_t>(static_cast<double>(row.bytes) *
                                              bus_factor(operation_, communicator_.size()));
  double best = 0;
  for (Stream& stream : streams_) {
    if (!usable_) break;
    const double rate = best_of(stream, moved);
    usable_ = rate > 0;
    best = std::max(best, rate);
  }
  if (!usable_ && trouble_.empty()) trouble_ = lost_;
  return usable_ ? best * streams_of(operation_, communicator_.size()) : 0;
}

}  // namespace rondo::tools
