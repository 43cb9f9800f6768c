// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/path_load.h"

#include <algorithm>

namespace rondo::tcp {
namespace {

// For paths of unknown speed. It only matters that it is the same for all of them.
constexpr double unknown_rate = 1.25e9;
// No path is taken for slower than this: a queue that has stood still for long says little about
// the network.
constexpr double lowest_rate = 1e6;
// A queue of at most this size counts as empty: the acknowledgement may be in flight, or the peer's
// kernel may delay it.
constexpr std::size_t almost_empty = 4096;
// In a shorter time, what the network takes at once counts for more than its rate.
constexpr nanoseconds shortest_measurement = milliseconds{1};
// One measurement has the weight 1 / smoothing.
constexpr double smoothing = 4;
constexpr nanoseconds untested_limit = milliseconds{100};

}  // namespace

PathLoad::PathLoad(std::uint32_t speed) noexcept
    : first_rate_(speed == 0 ? unknown_rate : std::max(lowest_rate, speed * 125e3)),
      rate_(first_rate_) {}

nanoseconds PathLoad::duration(std::size_t bytes) const noexcept {
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(bytes) / rate_ * 1e9));
}

base::TimePoint PathLoad::finish(base::TimePoint now, std::size_t bytes) const noexcept {
  return std::max(now, free_at_) + duration(bytes);
}

void PathLoad::took(base::TimePoint now, std::size_t bytes) noexcept {
  if (!measuring_) {
    measuring_ = true;
    ran_empty_ = false;
    since_ = now;
    given_ = 0;
    if (now - tested_ > untested_limit) {
      rate_ = std::min(std::max(rate_, first_rate_), rate_ * 2);
      tested_ = now;
    }
  }
  given_ += bytes;
  free_at_ = finish(now, bytes);
}

void PathLoad::queued(base::TimePoint now, std::size_t bytes) noexcept {
  const bool empty = bytes <= almost_empty;
  ran_empty_ = ran_empty_ || empty;
  if (measuring_ && now - since_ >= shortest_measurement) {
    learn(now, bytes);
    measuring_ = !empty;
    ran_empty_ = false;
    since_ = now;
    given_ = bytes;
  }
  free_at_ = now + duration(bytes);
}

void PathLoad::learn(base::TimePoint now, std::size_t bytes) noexcept {
  const std::size_t delivered = given_ - std::min(given_, bytes);
  const double rate =
      static_cast<double>(delivered) / std::chrono::duration<double>(now - since_).count();
  if (ran_empty_ && rate <= rate_) return;
  rate_ = std::max(lowest_rate, measured_ ? rate_ + (rate - rate_) / smoothing : rate);
  measured_ = true;
  tested_ = now;
}

}  // namespace rondo::tcp
