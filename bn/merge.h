// SPDX-License-Identifier: Apache-2.0
//
// Merges the statistics of the ranks. Each rank gives n, s1 = n (m - K) and s2 = M2 + n (m - K)^2
// for its n elements of a channel. m is their mean, M2 the sum of their squared distances from m,
// and K a point that is the same on all ranks. From the sums over ranks follow
//   mean = K + s1 / n,   M2 = s2 - s1^2 / n
//
// This is the merge of Chan, Golub and LeVeque ("Algorithms for computing the sample variance",
// 1983), about K instead of pair by pair. It is as exact if K is within a few standard deviations
// of the mean. If not, the ranks, which all see the same sums, repeat it about the mean that came
// out, until K is near enough. They may need several rounds: if K was a million times too far away,
// so is the first mean.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace rondo::bn {

// Moments of one rank: m = point + offset, without rounding.
struct LocalMoments {
  explicit LocalMoments(std::size_t channels) : point(channels), offset(channels), m2(channels) {}
  double count = 0;
  std::vector<double> point, offset, m2;
};

// Moments of all ranks: the mean is mean + mean_rest, where mean is the nearest f64. point is K of
// the next sums: that mean, or 0 if it is not finite.
struct GlobalMoments {
  explicit GlobalMoments(std::size_t channels)
      : mean(channels), mean_rest(channels), m2(channels), point(channels) {}
  double count = 0;
  std::vector<double> mean, mean_rest, m2, point;
  double variance(std::size_t channel) const noexcept { return m2[channel] / count; }
};

// Writes this rank's s1 and s2, [channels] each, about K.
void put_sums(const LocalMoments& local, std::span<const double> K, std::span<double> s1,
              std::span<double> s2) noexcept;

// Takes the sums over all ranks about K = global.point; count > 0. Returns whether K was near
// enough. If not, call put_sums about the new global.point and then this again.
bool take_sums(GlobalMoments& global, double count, std::span<const double> s1,
               std::span<const double> s2) noexcept;

}  // namespace rondo::bn
