// SPDX-License-Identifier: Apache-2.0
#include "grad/header.h"

#include <bit>
#include <cmath>
#include <limits>

namespace rondo::grad {

namespace {

// A share below this one counts for nothing beside the others, and sums of f32 refuse it as a
// scale.
constexpr double least_share = static_cast<double>(std::numeric_limits<float>::min());

constexpr std::size_t weights = 0, active = 1, squares = 2, hints = 3, same_weight = 4;
constexpr std::size_t same_step = same_weight + agreement_elements;
constexpr std::size_t same_check = same_step + agreement_elements;
constexpr std::size_t same_buckets = same_check + agreement_elements;

template <class T>
auto agreement_at(T& values, std::size_t first) {
  return std::span(values).subspan(first).template first<agreement_elements>();
}

// Sums of rounded weights are not exact, so they show only large differences. The agreement shows
// small ones.
bool are_same(const HeaderValues& sums) {
  if (sums[active] == 0) return true;
  const double mean = sums[weights] / sums[active], mean_square = sums[squares] / sums[active];
  return std::abs(mean_square - mean * mean) <= 1e-9 * mean_square &&
         agreed(agreement_at(sums, same_weight), static_cast<int>(sums[active]));
}

void average_alike(StepPlan& plan, int size) {
  plan.wire_factor = plan.active == 0 ? 1 : 1.0 / plan.active;
  if (plan.active == size)
    plan.op = ReduceOp::mean;
  else if (plan.active != 0)
    plan.scale = 1.0 / plan.active;
}

}  // namespace

HeaderValues make_header(std::uint64_t buckets, std::uint64_t step, const StepOptions& options) {
  HeaderValues values{};
  values[weights] = options.weight;
  values[active] = options.weight > 0 ? 1 : 0;
  values[squares] = options.weight * options.weight;
  values[hints] = options.unused.empty() ? 0 : 1;
  if (options.weight > 0)
    put_agreement(agreement_at(values, same_weight), std::bit_cast<std::uint64_t>(options.weight));
  put_agreement(agreement_at(values, same_step), step);
  put_agreement(agreement_at(values, same_check), options.check);
  put_agreement(agreement_at(values, same_buckets), buckets);
  return values;
}

StepPlan make_plan(const HeaderValues& sums, Averaging averaging, double weight, int size) {
  StepPlan plan;
  plan.same_buckets = agreed(agreement_at(sums, same_buckets), size);
  plan.agreed = plan.same_buckets && agreed(agreement_at(sums, same_step), size) &&
                agreed(agreement_at(sums, same_check), size);
  plan.active = static_cast<int>(sums[active]);
  plan.same_weights = are_same(sums);
  plan.hints = sums[hints] > 0;
  plan.silent = weight == 0;
  if (averaging == Averaging::mean || (averaging == Averaging::weighted && plan.same_weights)) {
    average_alike(plan, size);
  } else if (averaging == Averaging::weighted) {
    const double share = weight / sums[weights];
    plan.wire_factor = share;
    plan.factor = share < least_share ? 0 : share;
  } else {
    plan.wire_scale = static_cast<double>(std::bit_ceil(static_cast<unsigned>(size)));
    plan.wire_factor = 1 / plan.wire_scale;
  }
  return plan;
}

}  // namespace rondo::grad
