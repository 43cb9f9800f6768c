// SPDX-License-Identifier: Apache-2.0
//
// Statistics of all ranks from those of each. A rank gives n, s1 = n (m - K) and s2 = M2 + n (m -
// K)^2 of its n elements of a channel, with m their mean and M2 the sum of their squared distances
// from it; K is the same on all ranks. Of the sums over ranks
//   mean = K + s1 / n,   M2 = s2 - s1^2 / n
// which is Chan, Golub and LeVeque's merge ("Algorithms for computing the sample variance", 1983)
// about K instead of pair by pair: as exact where K is within a few standard deviations of the
// mean. Otherwise the ranks, who all see the same sums, do it again about that mean, until it is:
// where K was a million times too far, so is at first the mean.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rondo::bn {

// Of one rank: m = point + offset, without rounding.
struct LocalMoments {
  explicit LocalMoments(std::size_t channels) : point(channels), offset(channels), m2(channels) {}
  double count = 0;
  std::vector<double> point, offset, m2;
};

// Of all ranks: the mean is mean + mean_rest, where mean is the nearest f64. point is K of the next
// sums: that mean, or 0 where it is none.
struct GlobalMoments {
  explicit GlobalMoments(std::size_t channels)
      : mean(channels), mean_rest(channels), m2(channels), point(channels) {}
  double count = 0;
  std::vector<double> mean, mean_rest, m2, point;
  double variance(std::size_t channel) const noexcept { return m2[channel] / count; }
};

// This rank's s1 and s2, [channels] each, about K.
void put_sums(const LocalMoments& local, std::span<const double> K, std::span<double> s1,
              std::span<double> s2) noexcept;

// Takes the sums over all ranks about K = global.point, count > 0. Whether K was near enough; if
// not, put_sums about the new global.point and once more this.
bool take_sums(GlobalMoments& global, double count, std::span<const double> s1,
               std::span<const double> s2) noexcept;

}  // namespace rondo::bn
