// SPDX-License-Identifier: Apache-2.0
//
// Models, options, weights, unused gradients and orders of readiness, drawn from a seed, over links
// that delay and split, compared with a plain sum.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "catch.h"
#include "grad/model.h"
#include "support/draw.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

constexpr std::size_t steps = 5;
constexpr Averaging averagings[] = {Averaging::mean, Averaging::sum, Averaging::weighted};

// All ranks draw the same.
struct Drawn {
  explicit Drawn(std::uint64_t its_seed) : seed(its_seed), draw(seed), model(draw_tensors()) {
    size = 1 + static_cast<int>(draw(5));
    options.averaging = draw.one_of(averagings);
    options.first_bucket_bytes = 64 * (1 + draw(4));
    options.bucket_bytes = 64 * (1 + draw(60));
    options.find_unused = draw(3) == 0;
    options.rebuild = draw(3) != 0;
    options.norms = draw(2) == 0;
    options.warn = [](const std::string&) {};
    unused_in = draw(4);
    if (draw(3) == 0) options.wire = draw(2) == 0 ? DType::f16 : DType::bf16;
  }
  std::vector<Tensor> draw_tensors() {
    constexpr DType types[] = {DType::f64, DType::f32, DType::f32, DType::f16, DType::bf16};
    std::vector<Tensor> tensors(draw(12));
    for (Tensor& tensor : tensors) tensor = {draw(8) == 0 ? 0 : draw(400), draw.one_of(types)};
    return tensors;
  }
  double weight(std::size_t step, int rank) const {
    constexpr double weights[] = {1, 1, 2, 5, 0};
    return weights[mixed(seed, step, static_cast<std::uint64_t>(rank)) % 5];
  }
  // In some steps some parameters are unused on some ranks, and some of them on all.
  bool unused(std::size_t step, int rank, std::size_t parameter) const {
    if (unused_in == 0 || step % unused_in != 0) return false;
    const std::uint64_t everywhere = mixed(seed + step, parameter, 99) % 4;
    return everywhere == 0 ||
           mixed(seed + step, parameter, static_cast<std::uint64_t>(rank)) % 4 == 0;
  }

  std::uint64_t seed;
  Draw draw;
  Model model;
  int size = 1;
  GradientOptions options;
  std::size_t unused_in = 0;
};

// The value that this rank leaves in a gradient that it does not give.
constexpr double rest(int rank) {
  return rank + 0.5;
}

void run_drawn_step(GradientBuckets& buckets, const Drawn& drawn, std::size_t step, int rank) {
  Draw draw(drawn.seed, step * 8 + static_cast<std::uint64_t>(rank) + 1);
  std::vector<std::size_t> hints, order;
  for (std::size_t i = 0; i < drawn.model.size(); ++i) {
    const bool unused = drawn.unused(step, rank, i);
    if (!unused) order.push_back(i);
    if (unused && (!drawn.options.find_unused || draw(2) == 0)) hints.push_back(i);
  }
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(i)]);
  buckets.begin_step({.weight = drawn.weight(step, rank), .unused = hints});
  for (std::size_t i = 0; i < drawn.model.size(); ++i) {
    const Buffer view = buckets.gradient(i);
    for (std::size_t j = 0; j < view.count; ++j) set_element(view, j, rest(rank));
  }
  for (const std::size_t i : order) {
    drawn.model.write(buckets.gradient(i), step, rank, i);
    buckets.ready(i);
  }
  buckets.finish();
}

// Returns the factor of each rank's gradient in the average.
std::vector<double> shares_of(const Drawn& drawn, std::size_t step) {
  std::vector<double> shares;
  double sum = 0, active = 0;
  for (int rank = 0; rank < drawn.size; ++rank) {
    sum += shares.emplace_back(drawn.weight(step, rank));
    active += shares.back() > 0 ? 1 : 0;
  }
  for (double& share : shares) {
    if (drawn.options.averaging != Averaging::weighted) share = share > 0 ? 1 : 0;
    if (active > 0 && drawn.options.averaging != Averaging::sum)
      share /= drawn.options.averaging == Averaging::mean ? active : sum;
  }
  return shares;
}

bool any_hint(const Drawn& drawn, std::size_t step) {
  for (int rank = 0; rank < drawn.size; ++rank)
    for (std::size_t i = 0; i < drawn.model.size(); ++i)
      if (drawn.unused(step, rank, i)) return true;
  return false;
}

void check_drawn_step(const GradientBuckets& buckets, const Drawn& drawn, std::size_t step,
                      int rank) {
  const std::vector<double> shares = shares_of(drawn, step);
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  const bool told = drawn.options.find_unused || any_hint(drawn, step);
  for (std::size_t i = 0; i < drawn.model.size(); ++i) {
    bool used = all == 0 || !told;
    for (int r = 0; r < drawn.size; ++r)
      used = used || (shares[static_cast<std::size_t>(r)] > 0 && !drawn.unused(step, r, i));
    const Buffer view = buckets.gradient(i);
    const bool wire = drawn.options.wire && view.type == DType::f32;
    const DType type = wire ? *drawn.options.wire : view.type;
    const double exactness = type == DType::f64   ? 1e-14
                             : type == DType::f32 ? 1e-6
                             : type == DType::f16 ? 1e-2
                                                  : 8e-2;
    for (std::size_t j = 0; j < view.count; ++j) {
      const double is = element_of(view, j);
      double wanted = used                          ? 0
                      : drawn.unused(step, rank, i) ? rest(rank)
                                                    : drawn.model.value(step, rank, i, j);
      for (int r = 0; used && r < drawn.size; ++r)
        if (!drawn.unused(step, r, i))
          wanted += shares[static_cast<std::size_t>(r)] * drawn.model.value(step, r, i, j);
      expect(used ? std::abs(is - wanted) <= exactness * all : is == wanted, [&] {
        return "step " + std::to_string(step) + ", p" + std::to_string(i) + ", element " +
               std::to_string(j) + ": " + std::to_string(is) + ", not " + std::to_string(wanted);
      });
    }
  }
}

TEST_CASE("drawn steps give what one process would have") {
  const std::uint64_t seeds =
      std::max<std::uint64_t>(8, 150 * static_cast<std::uint64_t>(effort()) / 100);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const Drawn drawn(seed);
    Setup setup;
    setup.size = drawn.size;
    setup.seed = seed;
    setup.faults.windows = seed % 2 == 0;
    setup.faults.capacity = 300 + seed % 7 * 1000;
    setup.faults.delay = 20;
    setup.faults.split = 1 + seed % 5 * 50;
    INFO("seed " << seed);
    run_each(setup, [&](Communicator& c, int rank) {
      GradientBuckets buckets(c, drawn.model.parameters(), drawn.options);
      for (std::size_t step = 0; step < steps; ++step) {
        run_drawn_step(buckets, drawn, step, rank);
        check_drawn_step(buckets, drawn, step, rank);
      }
    });
  }
}

}  // namespace
}  // namespace rondo::testing
