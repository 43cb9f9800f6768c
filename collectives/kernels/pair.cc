// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/pair.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rondo::kernels {

namespace {

// The power of two by which each input is multiplied: the largest one that is not above the
// result's factor, but at least 1 / 2^ceil(log2 ranks). That much keeps every sum of inputs within
// the type.
float load_factor(double factor, std::size_t ranks) noexcept {
  const int least = -static_cast<int>(std::bit_width(ranks - 1));
  if (!(std::abs(factor) < 1)) return 1;
  const int wanted = factor == 0 ? least : std::max(least, std::ilogb(factor));
  return std::ldexp(1.0F, wanted);
}

}  // namespace

PairReduction::PairReduction(DType type, ReduceOp op, double scale, std::size_t ranks) noexcept
    : reduce_(find_reduce(type, op)) {
  const bool sums = op == ReduceOp::sum || op == ReduceOp::mean;
  const double divide = op == ReduceOp::mean ? static_cast<double>(ranks) : 1.0;
  whole_ = rest_ = Finish{scale, divide};
  if (!sums || ranks < 2) return;
  const float load = load_factor(scale / divide, ranks);
  if (load == 1) return;
  scaled_sum_ = find_scaled_sum(type);
  if (scaled_sum_ == nullptr) return;
  load_ = load;
  rest_.multiply = scale / static_cast<double>(load);
}

void PairReduction::combine(std::byte* out, const Value& first, const Value& second,
                            std::size_t count, bool last) const noexcept {
  static constexpr Finish unfinished{};
  const std::byte* const sources[] = {first.data, second.data};
  if (scaled_sum_ == nullptr) return reduce_(out, sources, 2, count, last ? rest_ : unfinished);
  const float factors[] = {first.input ? load_ : 1.0F, second.input ? load_ : 1.0F};
  scaled_sum_(out, sources, factors, count, last ? rest_ : unfinished);
}

void PairReduction::finish(std::byte* out, const Value& value, std::size_t count) const noexcept {
  reduce_(out, &value.data, 1, count, value.input ? whole_ : rest_);
}

}  // namespace rondo::kernels
