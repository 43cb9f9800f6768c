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
double load_factor(double factor, std::size_t ranks) noexcept {
  const int least = -static_cast<int>(std::bit_width(ranks - 1));
  if (!(std::abs(factor) < 1)) return 1;
  const int wanted = factor == 0 ? least : std::max(least, std::ilogb(factor));
  return std::ldexp(1.0, wanted);
}

// Whether sums of the type overflow long before f32.
bool is_narrow(DType type) noexcept {
  return type == DType::f16 || type == DType::f8e4m3 || type == DType::f8e5m2;
}

}  // namespace

PairReduction::PairReduction(DType type, ReduceOp op, double scale, std::size_t ranks) noexcept
    : reduce_(find_reduce(type, op)) {
  const bool sums = op == ReduceOp::sum || op == ReduceOp::mean;
  const double divide = op == ReduceOp::mean ? static_cast<double>(ranks) : 1.0;
  whole_ = rest_ = Finish{scale, divide};
  if (!sums) return;
  scaled_sum_ = find_scaled_sum(type);
  if (ranks < 2 || !is_narrow(type)) return;
  load_ = load_factor(scale / divide, ranks);
  rest_.multiply = scale / load_;
}

void PairReduction::combine(std::byte* out, const Value& first, const Value& second,
                            std::size_t count, bool last) const noexcept {
  static constexpr Finish unfinished{};
  const Finish& finish = last ? rest_ : unfinished;
  const std::byte* const sources[] = {first.data, second.data};
  const double factors[] = {factor_of(first), factor_of(second)};
  if (factors[0] == 1 && factors[1] == 1) return reduce_(out, sources, 2, count, finish);
  scaled_sum_(out, sources, factors, 2, count, finish);
}

void PairReduction::finish(std::byte* out, const Value& value, std::size_t count) const noexcept {
  if (value.input && value.factor != 1)
    return scaled_sum_(out, &value.data, &value.factor, 1, count, whole_);
  reduce_(out, &value.data, 1, count, value.input ? whole_ : rest_);
}

}  // namespace rondo::kernels
