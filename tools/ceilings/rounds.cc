// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/rounds.h"

#include <algorithm>
#include <cmath>

#include "tools/measure/operation.h"

namespace rondo::tools {
namespace {

constexpr std::size_t first_bytes = std::size_t{4} << 20, least_moved = std::size_t{1} << 20,
                      most_short_rounds = 20;
constexpr double round_seconds = 0.05;

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

std::chrono::nanoseconds round_patience(const Options& options) {
  constexpr std::chrono::nanoseconds most = std::chrono::seconds{10};
  return options.deadline.count() > 0
             ? std::min<std::chrono::nanoseconds>(most, options.deadline / 2)
             : most;
}

double Rounds::best(std::size_t moved, const Round& round) {
  double best = 0;
  bool usable = true;
  const auto try_round = [&](std::size_t bytes) {
    if (!usable) return;
    const double seconds = round(bytes);
    usable = std::isfinite(seconds);
    if (usable) best = std::max(best, static_cast<double>(bytes) / seconds / 1e9);
  };
  const auto adapt = [&] {
    bytes_ = static_cast<std::size_t>(std::clamp(best * 1e9 * round_seconds, 65536.0, 1e9));
  };
  // The first round warms the connections, and measures how many bytes fit into a round.
  if (bytes_ == 0) {
    try_round(first_bytes);
    adapt();
  }
  try_round(bytes_);
  const std::size_t few = std::max(moved, least_moved);
  for (std::size_t i = 0; i < std::min(most_short_rounds, bytes_ / few); ++i) try_round(few);
  adapt();
  return usable ? best : 0;
}

}  // namespace rondo::tools
