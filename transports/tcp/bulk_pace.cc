// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/bulk_pace.h"

#include <sys/socket.h>

#include <algorithm>
#include <cmath>

#include "transports/connect/tcp_state.h"

namespace rondo::tcp {
namespace {

// There is a queue when the round trip is longer than the least one by queue_time, which is 125 KB
// at 1 Gbit/s. Over long distances round trips vary by themselves, so the least one divided by
// queue_part is allowed too. If the kernel paces a connection, it lets at most a millisecond of
// data wait in this host. So half of this is a queue while the connection is held.
constexpr microseconds queue_time{1000};
constexpr int queue_part = 2;
// Acknowledgements come in lumps of milliseconds where cores are busy, so a shorter measurement
// says little. While the connection is held, a longer one costs nothing, and its error must be
// below a hundredth.
constexpr milliseconds free_measurement{50}, held_measurement{250};
constexpr double fallen_short = 0.985;
// Half of the rate drains a queue of 20 ms, the longest seen, in 40.
constexpr milliseconds drain_limit{50};
// To free the connection costs some 70 ms with a queue. The time until then doubles whenever the
// share is found to be what it was.
constexpr milliseconds first_hold{125}, longest_hold{8000};
constexpr double same_share = 0.06;
// How long the connection is free when there is no queue to measure. If it then sent more than
// `used` of its limit and never had a queue, its share is multiplied by `growth`.
constexpr milliseconds free_limit{150};
constexpr double growth = 1.02, used = 0.9;
// For small frames that take a large part of the link: the factor by which the ceiling rises each
// time, the least part of the share that it may be, and the longest time until it rises.
constexpr double relief = 1.01, least_left = 0.25;
constexpr milliseconds longest_cut{1000};

}  // namespace

std::uint64_t BulkPace::look(const Sample& sample) noexcept {
  least_rtt_ = std::min(least_rtt_, std::max(sample.least_rtt, microseconds{1}));
  // Without a new acknowledgement the round trip is an old one.
  if (sample.acked == acked_) return rate();
  acked_ = sample.acked;
  const microseconds limit = std::max(queue_time, least_rtt_ / queue_part);
  const microseconds queued = sample.rtt - least_rtt_;
  const nanoseconds here = sample.now - since_;
  if (state_ == State::draining) {
    if (queued <= limit / 2 || here > drain_limit) enter(State::held, sample.now);
    return rate();
  }
  if (state_ == State::held && here > held_for_) enter(State::free, sample.now);
  measure(sample, queued > (state_ == State::held ? limit / 2 : limit));
  if (state_ == State::free) look_free(sample, queued > limit);
  return rate();
}

void BulkPace::measure(const Sample& sample, bool queue) noexcept {
  if (!queue || !sample.waiting) {
    measuring_ = false;
    return;
  }
  if (!measuring_) {
    measuring_ = true;
    measured_since_ = sample.now;
    acked_before_ = sample.acked;
    return;
  }
  const nanoseconds time = sample.now - measured_since_;
  const nanoseconds wanted = state_ == State::free ? free_measurement : held_measurement;
  if (time < wanted) return;
  measuring_ = false;
  // A measurement with a pause, for example of a peer that did not read, says nothing about the
  // link.
  if (time > 2 * wanted) return;
  const double rate = static_cast<double>(sample.acked - acked_before_) /
                      std::chrono::duration<double>(time).count();
  if (state_ == State::free)
    learn(sample.now, rate);
  else if (rate < fallen_short * limit_)
    cut(sample.now, rate);
}

void BulkPace::look_free(const Sample& sample, bool queue) noexcept {
  if (!counting_) {
    counting_ = true;
    queue_seen_ = false;
    since_ = sample.now;
    acked_free_ = sample.acked;
    busy_free_ = sample.busy;
  }
  queue_seen_ = queue_seen_ || queue;
  const microseconds busy = sample.busy - busy_free_;
  if (busy < free_measurement || sample.now - since_ < free_limit) return;
  const double rate =
      static_cast<double>(sample.acked - acked_free_) / std::chrono::duration<double>(busy).count();
  // If all ranks are held to the same rate, none can send more than it receives. So each tries a
  // little more.
  if (share_ == 0) {
    counting_ = false;  // the average may be low because the peer did not read
  } else if (rate > limit_ * used && !queue_seen_) {
    for (double& share : shares_) share = share_ * growth;
    learn(sample.now, share_ * growth);
  } else {
    learn(sample.now, share_);
  }
}

void BulkPace::learn(base::TimePoint now, double rate) noexcept {
  shares_[share_count_++ % shares_.size()] = rate;
  auto sorted = shares_;
  const auto count = static_cast<std::ptrdiff_t>(std::min(share_count_, shares_.size()));
  const auto middle = sorted.begin() + (count - 1) / 2;  // the smaller one of two
  std::nth_element(sorted.begin(), middle, sorted.begin() + count);
  const double share = *middle;
  const bool same = std::abs(share - share_) <= same_share * share_;
  share_ = share;
  ceiling_ *= relief;
  held_for_ = std::clamp<nanoseconds>(same ? held_for_ * 2 : nanoseconds{}, first_hold,
                                      ceiling_ < share_ ? longest_cut : longest_hold);
  limit_ = std::min(share_, ceiling_) * part;
  enter(State::draining, now);
}

void BulkPace::cut(base::TimePoint now, double rate) noexcept {
  ceiling_ = std::max(rate, share_ * least_left);
  limit_ = std::min(limit_, ceiling_ * part);
  held_for_ = std::min<nanoseconds>(held_for_, longest_cut);
  enter(State::draining, now);
}

void BulkPace::enter(State state, base::TimePoint now) noexcept {
  state_ = state;
  since_ = now;
  measuring_ = counting_ = false;
}

std::uint64_t BulkPace::rate() const noexcept {
  switch (state_) {
    case State::draining:
      return static_cast<std::uint64_t>(limit_ / 2);
    case State::held:
      return static_cast<std::uint64_t>(limit_);
    case State::free:
      break;
  }
  return unlimited;
}

void PacedSocket::pace(base::TimePoint now, bool restrained) noexcept {
  std::uint64_t rate = BulkPace::unlimited;
  if (restrained) {
    const auto state = connect::read_tcp_state(socket_);
    if (!state || state->least_round_trip == microseconds{0}) return;
    rate = pace_.look({now, state->round_trip, state->least_round_trip, state->acknowledged_bytes,
                       state->busy, state->unsent_bytes > 0});
  }
  if (rate == rate_) return;
  // A kernel that knows 32-bit rates only reads the low half: enough for up to 34 Gbit/s.
  if (::setsockopt(socket_, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0) rate_ = rate;
}

}  // namespace rondo::tcp
