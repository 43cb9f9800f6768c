// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <rondo/error.h>
#include <rondo/sampler.h>

#include "base/mix.h"

namespace rondo {

namespace {

// No sum of positions and ranks wraps.
constexpr std::size_t most_samples = std::size_t{1} << 62;
__extension__ typedef unsigned __int128 Wide;

class Draws {
 public:
  explicit Draws(std::uint64_t seed) noexcept : random_(seed) {}

  // Returns each of 0 ... bound - 1 with the same probability. A draw that would favour some of
  // them is repeated.
  std::uint64_t below(std::uint64_t bound) noexcept {
    Wide product = static_cast<Wide>(random_.next()) * bound;
    if (static_cast<std::uint64_t>(product) < bound) {
      const std::uint64_t uneven = (0 - bound) % bound;
      while (static_cast<std::uint64_t>(product) < uneven)
        product = static_cast<Wide>(random_.next()) * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

 private:
  base::SplitMix64 random_;
};

std::vector<std::size_t> shuffled(std::size_t samples, std::uint64_t seed, std::uint64_t epoch) {
  std::vector<std::size_t> order(samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The seed goes through the generator once: otherwise seed 1, epoch 2 would equal seed 2,
  // epoch 1.
  Draws random(base::SplitMix64(seed).next() + epoch);
  for (std::size_t left = samples; left > 1; --left)
    std::swap(order[left - 1], order[static_cast<std::size_t>(random.below(left))]);
  return order;
}

std::size_t checked(int value) {
  return static_cast<std::size_t>(std::max(value, 0));
}

std::size_t divided_up(std::size_t value, std::size_t by) {
  return value / by + (value % by == 0 ? 0 : 1);
}

}  // namespace

ShardedSampler::ShardedSampler(std::size_t samples, int rank, int size,
                               const SamplerOptions& options)
    : samples_(samples), rank_(checked(rank)), size_(checked(size)), options_(options) {
  if (rank < 0 || rank >= size)
    throw Error(Errc::invalid_argument,
                fmt::format("ShardedSampler: there is no rank {} among {} ranks", rank, size));
  if (samples > most_samples)
    throw Error(Errc::invalid_argument,
                fmt::format("ShardedSampler: {} samples are too many; {} is the most", samples,
                            most_samples));
}

ShardedSampler::ShardedSampler(std::size_t samples, const Communicator& communicator,
                               const SamplerOptions& options)
    : ShardedSampler(samples, communicator.rank(), communicator.size(), options) {}

void ShardedSampler::set_epoch(std::uint64_t epoch) {
  if (epoch != start_.epoch) order_.clear();
  start_ = {epoch, 0};
  taken_ = 0;
}

std::uint64_t ShardedSampler::epoch() const noexcept {
  return start_.epoch;
}

std::size_t ShardedSampler::rounds() const noexcept {
  const std::size_t left = samples_ - static_cast<std::size_t>(start_.taken);
  return options_.remainder == Remainder::drop ? left / size_ : divided_up(left, size_);
}

std::size_t ShardedSampler::size() const noexcept {
  if (options_.remainder != Remainder::uneven) return rounds();
  const std::size_t left = samples_ - static_cast<std::size_t>(start_.taken);
  return left <= rank_ ? 0 : divided_up(left - rank_, size_);
}

std::size_t ShardedSampler::remaining() const noexcept {
  return size() - std::min(size(), taken_);
}

std::size_t ShardedSampler::index_at(std::size_t position) const {
  return options_.shuffle ? order_[position] : position;
}

std::vector<Sample> ShardedSampler::next(std::size_t most) {
  if (options_.shuffle && order_.empty()) order_ = shuffled(samples_, options_.seed, start_.epoch);
  const std::size_t now = std::min(most, rounds() - taken_);
  std::vector<Sample> batch;
  batch.reserve(now);
  for (std::size_t i = 0; i < now; ++i) {
    const std::size_t position =
        static_cast<std::size_t>(start_.taken) + (taken_ + i) * size_ + rank_;
    if (position < samples_)
      batch.push_back({index_at(position), 1});
    else if (options_.remainder == Remainder::pad)
      batch.push_back({index_at((position - samples_) % samples_), 0});
  }
  taken_ += now;
  return batch;
}

ShardedSampler::Position ShardedSampler::position() const noexcept {
  if (taken_ == rounds()) return {start_.epoch, samples_};
  return {start_.epoch, start_.taken + taken_ * size_};
}

void ShardedSampler::resume(const Position& position) {
  if (position.taken > samples_)
    throw Error(Errc::invalid_argument,
                fmt::format("ShardedSampler: cannot resume after {} samples: the data set has {}",
                            position.taken, samples_));
  set_epoch(position.epoch);
  start_ = position;
}

}  // namespace rondo
