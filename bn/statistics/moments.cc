// SPDX-License-Identifier: Apache-2.0
#include "bn/statistics/moments.h"

namespace rondo::statistics {

void put_sums(const LocalMoments& local, std::span<const double> K,
              std::span<double> sums) noexcept {
  for (std::size_t c = 0; c < K.size(); ++c) {
    const Terms terms =
        terms_about(K[c], local.count, local.point[c], local.offset[c], local.m2[c]);
    sums[c] = terms.first;
    sums[K.size() + c] = terms.second;
  }
}

bool take_sums(GlobalMoments& global, double count, std::span<const double> sums) noexcept {
  const std::size_t channels = global.point.size();
  bool near = true;
  global.count = count;
  for (std::size_t c = 0; c < channels; ++c) {
    const Merged all = merged(global.point[c], count, sums[c], sums[channels + c]);
    near &= !all.far;
    global.mean[c] = all.mean;
    global.rest[c] = all.rest;
    global.m2[c] = all.m2;
    global.point[c] = all.point;
  }
  return near;
}

}  // namespace rondo::statistics
