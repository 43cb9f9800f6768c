// SPDX-License-Identifier: Apache-2.0
#include "tools/late/arrivals.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <type_traits>

#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

// The stamps of all ranks take at most 16 MiB on rank 0 until there are 16,384 ranks.
constexpr std::size_t most_stamps = std::size_t{1} << 20, least_kept = 64, most_kept = 4096;

double nanoseconds(std::chrono::steady_clock::time_point time) {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

}  // namespace

Lateness judge(std::span<const Stamp> stamps, std::size_t ranks) {
  const std::size_t iterations = stamps.size() / ranks;
  std::vector<std::vector<double>> behind(ranks), late(ranks);
  std::vector<double> transfers;
  std::vector<std::size_t> order(ranks);
  for (std::size_t i = 0; i < iterations; ++i) {
    const auto of = [&](std::size_t rank) { return stamps[rank * iterations + i]; };
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t rank) { return of(rank).called; });
    // The lower median of the others is at this place among them.
    const std::size_t middle = (ranks - 2) / 2;
    double end = 0;
    for (std::size_t place = 0; place < ranks; ++place) {
      const double others = of(order[place <= middle ? middle + 1 : middle]).called;
      behind[order[place]].push_back((of(order[place]).called - others) / 1e3);
      end = std::max(end, of(place).ended);
    }
    const std::size_t last = order.back();
    late[last].push_back(behind[last].back());
    transfers.push_back((end - of(last).called) / 1e3);
  }
  Lateness found;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    found.last_share.push_back(static_cast<double>(late[rank].size()) /
                               static_cast<double>(iterations));
    found.behind_us.push_back(median(behind[rank]));
  }
  const auto most = std::ranges::max_element(found.last_share);
  const auto rank = static_cast<std::size_t>(most - found.last_share.begin());
  found.rank = static_cast<int>(rank);
  found.share = *most;
  found.late_us = median(late[rank]);
  found.transfer_us = median(transfers);
  return found;
}

Arrivals::Arrivals(int ranks)
    : stamps_(std::clamp(most_stamps / static_cast<std::size_t>(ranks), least_kept, most_kept)) {}

void Arrivals::add(std::chrono::steady_clock::time_point called,
                   std::chrono::steady_clock::time_point ended) {
  stamps_.add({nanoseconds(called), nanoseconds(ended)});
}

std::optional<Lateness> Arrivals::judge(Communicator& communicator, const Clocks& clocks) const {
  static_assert(std::is_trivially_copyable_v<Stamp> && sizeof(Stamp) == 2 * sizeof(double));
  const auto ranks = static_cast<std::size_t>(communicator.size());
  if (ranks < 2 || stamps_.values().empty()) return {};
  std::vector<Stamp> own = stamps_.values(), all(communicator.rank() == 0 ? ranks * own.size() : 0);
  communicator
      .gather(Buffer{own.data(), 2 * own.size(), DType::f64},
              Buffer{all.data(), 2 * all.size(), DType::f64}, 0)
      .wait();
  if (communicator.rank() != 0) return {};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int rank = static_cast<int>(i / own.size());
    // Another rank may send anything; sorting needs numbers.
    if (!std::isfinite(all[i].called) || !std::isfinite(all[i].ended)) all[i] = {};
    all[i].called = clocks.on_rank_0(rank, all[i].called);
    all[i].ended = clocks.on_rank_0(rank, all[i].ended);
  }
  Lateness found = tools::judge(all, ranks);
  found.clock_error_us = clocks.error_ns() / 1e3;
  return found;
}

}  // namespace rondo::tools
