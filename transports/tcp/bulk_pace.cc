// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/bulk_pace.h"

#include <algorithm>
#include <cmath>

namespace rondo::tcp {
namespace {

// So much longer than the least round trip, and there is a queue: at 1 Gbit/s 125 KB. Over long
// distances round trips vary by themselves. Of a connection that the kernel spaces it lets a
// millisecond wait in this host and not more, so then half of this is a queue.
constexpr microseconds queue_time{1000};
constexpr int queue_part = 2;  // of the least round trip
// Acknowledgements come in lumps of milliseconds where cores are busy: a measurement that is
// shorter says little. While the connection is held nothing is lost by a longer one, and less than
// a hundredth is to be told apart.
constexpr milliseconds free_measurement{50}, held_measurement{250};
constexpr double fallen_short = 0.985;
// Half of the rate drains a queue of 20 ms, the longest seen, in 40.
constexpr milliseconds drain_limit{50};
// Letting go costs some 70 ms with a queue. It is done twice as late each time that the share is
// found to be what it was.
constexpr milliseconds first_hold{125}, longest_hold{8000};
constexpr double same_share = 0.06;
// So long it is let go when there is nothing to measure; by how much its share is then raised if it
// had sent all that it was held to.
constexpr milliseconds free_limit{150};
constexpr double growth = 1.02, used = 0.9;
// Where small frames take a large part of the link: by how much it may be less than thought each
// time, and how soon that is tried.
constexpr double relief = 1.01, least_left = 0.25;
constexpr milliseconds longest_cut{1000};

}  // namespace

std::uint64_t BulkPace::look(const Sample& sample) noexcept {
  least_rtt_ = std::min(least_rtt_, std::max(sample.least_rtt, microseconds{1}));
  // Without an acknowledgement the round trip is an old one.
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
  // With a pause in it, as of a peer that did not read, it says nothing about the link.
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
  // Where all ranks are held to the same, none can send more than it receives: then all try a
  // little more.
  if (share_ == 0) {
    counting_ = false;  // what it sends on average may be little because the peer did not read
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
  const auto middle = sorted.begin() + (count - 1) / 2;  // of two the smaller
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

}  // namespace rondo::tcp
