// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/copy_ceiling.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>

#include "base/copy.h"
#include "tools/measure/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t least_bytes = 4096;
constexpr double copy_round_seconds = 0.01;
constexpr int rounds = 5, most_trials = 20;

}  // namespace

// The maximum over the ranks is the whole round: the rank that leaves the first barrier first waits
// in the second one until the last rank has copied.
double CopyCeiling::seconds_of_a_round(std::size_t bytes, std::size_t copies) {
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  for (std::size_t i = 0; i < copies; ++i) {
    base::copy_bytes(to_.data(), from_.data(), bytes);
    std::atomic_signal_fence(
        std::memory_order_seq_cst);  // otherwise the compiler may drop all copies but the last
  }
  communicator_.barrier().wait();
  return maximum_over_ranks(communicator_,
                            std::chrono::duration<double>(Clock::now() - begin).count());
}

double CopyCeiling::measure(const Row& row) {
  const double wanted = row.traffic / (2.0 * communicator_.size());
  const std::size_t bytes = std::min(std::max(static_cast<std::size_t>(wanted), least_bytes),
                                     std::min(from_.size(), to_.size()));
  // Pages that nobody has written share one page of zeros, which would stay in the cache.
  std::memset(from_.data(), 1, bytes);
  std::memset(to_.data(), 2, bytes);
  // The loop adds copies until the time of the barriers does not count. The first round warms the
  // caches.
  std::size_t copies = 1;
  seconds_of_a_round(bytes, copies);
  for (int i = 0; i < most_trials; ++i) {
    const double seconds = seconds_of_a_round(bytes, copies);
    if (seconds > copy_round_seconds / 2) break;
    copies *= static_cast<std::size_t>(std::clamp(copy_round_seconds / seconds, 2.0, 100.0));
  }
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < rounds; ++i)
    best = std::min(best, seconds_of_a_round(bytes, copies) / static_cast<double>(copies));
  return 2.0 * static_cast<double>(bytes) * communicator_.size() / best / 1e9;
}

}  // namespace rondo::tools
