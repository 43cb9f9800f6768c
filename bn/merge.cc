// SPDX-License-Identifier: Apache-2.0
#include "bn/merge.h"

#include <algorithm>
#include <cmath>

namespace rondo::bn {

namespace {

// At this squared distance of the mean from K, in variances, the sum over 256 ranks has lost at
// most 16 bits: an error of 1e-11.
constexpr double far = 256;
// Nearer to K than some units in its last place, another round gains nothing.
constexpr double nearest = 0x1p-48;

}  // namespace

void put_sums(const LocalMoments& local, std::span<const double> K, std::span<double> s1,
              std::span<double> s2) noexcept {
  for (std::size_t c = 0; c < K.size(); ++c) {
    // point and K are close together, so their difference is nearly exact. That of the rounded
    // means would not be.
    const double away = local.count == 0 ? 0 : (local.point[c] - K[c]) + local.offset[c];
    s1[c] = local.count * away;
    s2[c] = local.count == 0 ? 0 : local.m2[c] + s1[c] * away;
  }
}

bool take_sums(GlobalMoments& global, double count, std::span<const double> s1,
               std::span<const double> s2) noexcept {
  bool near = true;
  global.count = count;
  for (std::size_t c = 0; c < s1.size(); ++c) {
    const double K = global.point[c], away = s1[c] / count, squares = count * away * away;
    const double m2 = std::fma(-away, s1[c], s2[c]);
    // NaN and infinity count as near: no round changes them. Squares may overflow if the distance
    // from K does not.
    const bool lost = squares > far * m2 || (std::isinf(squares) && std::isfinite(away));
    near &= !(lost && std::abs(away) > nearest * std::abs(K));
    // Knuth's two-sum: mean + rest is exact.
    const double mean = K + away, moved = mean - K;
    global.mean_rest[c] = (K - (mean - moved)) + (away - moved);
    global.mean[c] = mean;
    global.point[c] = std::isfinite(mean) ? mean : 0;
    global.m2[c] = m2 < 0 ? 0 : m2;
  }
  return near;
}

}  // namespace rondo::bn
