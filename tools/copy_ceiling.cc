// SPDX-License-Identifier: Apache-2.0
#include "tools/copy_ceiling.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>

#include "tools/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t all_bytes = std::size_t{256} << 20, least_bytes = std::size_t{4} << 20,
                      most_bytes = std::size_t{64} << 20;
constexpr std::size_t rounds = 9;

}  // namespace

CopyCeiling::CopyCeiling(Communicator& communicator)
    : communicator_(communicator),
      bytes_(std::clamp(all_bytes / static_cast<std::size_t>(communicator.size()), least_bytes, most_bytes)) {
  try {
    from_ = Memory(bytes_);
    to_ = Memory(bytes_);
    // Pages that nobody has written share one page of zeros, which would stay in the cache.
    std::memset(from_.data(), 1, bytes_);
    std::memset(to_.data(), 2, bytes_);
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  usable_ = maximum_over_ranks(communicator_, trouble_.empty() ? 0 : 1) == 0;
  if (!usable_ && trouble_.empty()) trouble_ = "another rank has no memory for it";
}

// The rank that leaves the first barrier first sees all of the round, since the second one ends when the last rank has copied.
double CopyCeiling::seconds_of_a_round() {
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  std::memcpy(to_.data(), from_.data(), bytes_);
  communicator_.barrier().wait();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double CopyCeiling::measure() {
  if (!usable_) return 0;
  seconds_of_a_round();
  std::array<double, rounds> seconds{};
  for (double& round : seconds) round = seconds_of_a_round();
  maximum_over_ranks(communicator_, seconds);
  std::sort(seconds.begin(), seconds.end());
  return 2.0 * static_cast<double>(bytes_) * communicator_.size() / seconds[rounds / 2] / 1e9;
}

}  // namespace rondo::tools
