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
//
// The functions are those for one channel, and run on the processor and on GPUs.
#pragma once

#include <math.h>

#include "base/host_device.h"

namespace rondo::statistics {

RONDO_HD inline bool is_finite(double value) noexcept {
  return value - value == 0;
}
RONDO_HD inline double magnitude_of(double value) noexcept {
  return value < 0 ? -value : value;
}

// A sum without rounding: value + rest, where value is the nearest f64. Knuth's two-sum.
struct ExactSum {
  double value, rest;
};
RONDO_HD inline ExactSum exact_sum(double a, double b) noexcept {
  const double sum = a + b, moved = sum - a;
  return {sum, (a - (sum - moved)) + (b - moved)};
}

// Moments of one rank's `count` elements about a point, from the sums of x - point and of its
// square. far: the sums are to be taken again about the mean.
struct LocalChannel {
  double offset, m2;  // the mean is point + offset
  bool far;
};
RONDO_HD inline LocalChannel moments_about(double point, double count, double sum, double squares,
                                           bool in_f32) noexcept {
  // In squared standard deviations; in_f32: elements of 16 bits, of which a few are added in f32.
  constexpr double far_in_f64 = 64, far_in_f32 = 16;
  // Nearer to the point than some units in its last place, another pass gains nothing.
  constexpr double nearest = 0x1p-48;
  const double offset = sum / count, about_mean = sum * offset, m2 = squares - about_mean;
  const bool lost = about_mean > (in_f32 ? far_in_f32 : far_in_f64) * m2 || !is_finite(m2);
  return {offset, m2 < 0 ? 0 : m2, lost && magnitude_of(offset) > nearest * magnitude_of(point)};
}

// A rank's s1 and s2 about K, from the moments of its `count` elements: the mean is point + offset.
struct Terms {
  double first, second;
};
RONDO_HD inline Terms terms_about(double K, double count, double point, double offset,
                                  double m2) noexcept {
  if (count == 0) return {0, 0};  // there may be no point yet
  // point and K are close together, so their difference is nearly exact. That of the rounded means
  // would not be.
  const double away = (point - K) + offset, first = count * away;
  return {first, m2 + first * away};
}

// The statistics of all ranks: the mean is mean + rest, the variance m2 / count. point is K of the
// next sums: that mean, or 0 if it is not finite. far: K was too far from the mean.
struct Merged {
  double mean, rest, m2, point;
  bool far;
};
RONDO_HD inline Merged merged(double K, double count, double s1, double s2) noexcept {
  // At this squared distance of the mean from K, in variances, the sum over 256 ranks has lost at
  // most 16 bits: an error of 1e-11.
  constexpr double far = 256;
  // Nearer to K than some units in its last place, another round gains nothing.
  constexpr double nearest = 0x1p-48;
  const double away = s1 / count, squares = count * away * away;
  const double m2 = ::fma(-away, s1, s2);
  // NaN and infinity count as near: no round changes them. Squares may overflow if the distance
  // from K does not.
  const bool overflow = squares > 0 && !is_finite(squares) && is_finite(away);
  const bool lost = squares > far * m2 || overflow;
  const ExactSum mean = exact_sum(K, away);
  return {mean.value, mean.rest, m2 < 0 ? 0 : m2, is_finite(mean.value) ? mean.value : 0,
          lost && magnitude_of(away) > nearest * magnitude_of(K)};
}

// running = (1 - momentum) * running + momentum * new, with the unbiased variance. One element has
// no variance: then the running variance stays as it is.
RONDO_HD inline double next_running_mean(double running, double mean, double momentum) noexcept {
  return (1 - momentum) * running + momentum * mean;
}
RONDO_HD inline double next_running_variance(double running, double m2, double count,
                                             double momentum) noexcept {
  return count > 1 ? (1 - momentum) * running + momentum / (count - 1) * m2 : running;
}

}  // namespace rondo::statistics
