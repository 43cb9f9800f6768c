// SPDX-License-Identifier: Apache-2.0
//
// The variance merged over ranks, compared with long double, where the usual ways lose their
// digits.
#include "bn/merge.h"
#include "bn/passes.h"
#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

struct Row {
  double mean, deviation;
};
constexpr Row rows[] = {{0, 1e-4},   {1, 1e-4}, {100, 1e-4}, {1e4, 1},
                        {1e4, 1e-3}, {-3, 1},   {15, 1},     {1e8, 1}};
constexpr double most = 1e-13;  // relative error of the variance

double as(DType type, double value) {
  return type == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

// Draws the elements of one channel for each rank. Ranks have different numbers of elements, some
// none.
std::vector<Numbers> draw_ranks(const Row& row, DType type, std::size_t ranks, std::size_t each) {
  std::vector<Numbers> all(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::size_t count = r % 7 == 3 ? 0 : r % 7 == 5 ? 1 : each + r;
    for (std::size_t i = 0; i < count; ++i)
      all[r].push_back(as(type, row.mean + row.deviation * normal(r + 1, i)));
  }
  return all;
}

struct Exact {
  long double mean = 0, variance = 0;
  explicit Exact(const std::vector<Numbers>& ranks) {
    long double count = 0, rest = 0;
    for (const Numbers& rank : ranks) {
      for (const double value : rank) mean += static_cast<long double>(value);
      count += static_cast<long double>(rank.size());
    }
    mean /= count;
    for (const Numbers& rank : ranks)
      for (const double value : rank) {
        const long double d = static_cast<long double>(value) - mean;
        variance += d * d;
        rest += d;
      }
    variance = (variance - rest * rest / count) / count;
    mean += rest / count;
  }
  double error_of(double got) const {
    return static_cast<double>(std::abs(static_cast<long double>(got) - variance) / variance);
  }
};

// Adds over ranks like a chain: each sum is rounded.
bool merge(const std::vector<bn::LocalMoments>& locals, bn::GlobalMoments& global) {
  double count = 0;
  Numbers sums(2), own(2);
  for (const bn::LocalMoments& local : locals) {
    bn::put_sums(local, global.point, std::span(own).first(1), std::span(own).last(1));
    count += local.count;
    for (std::size_t i = 0; i < 2; ++i) sums[i] += own[i];
  }
  return bn::take_sums(global, count, std::span<const double>(sums).first(1),
                       std::span<const double>(sums).last(1));
}

bn::LocalMoments local_moments(const Numbers& values, DType type) {
  bn::Pool pool;
  bn::Passes passes(pool, 1, type, TensorLayout::nchw, 1);
  Tensor x(type, TensorLayout::nchw, Batch{1, 1, values.size(), values}, 0, 1);
  bn::LocalMoments local(1);
  passes.moments({x.view().data, values.empty() ? 0 : 1u, values.size()}, local, {});
  return local;
}

TEST_CASE("variance merged over 256 ranks keeps its digits") {
  for (const Row& row : rows) {
    for (const DType type : {DType::f64, DType::f32}) {
      if (type == DType::f32 && as(type, row.mean + row.deviation) == row.mean)
        continue;  // not representable
      const std::vector<Numbers> ranks = draw_ranks(row, type, 256, 300);
      const Exact exact(ranks);
      std::vector<bn::LocalMoments> locals;
      for (const Numbers& rank : ranks) locals.push_back(local_moments(rank, type));
      bn::GlobalMoments global(1);
      const bool near = merge(locals, global);
      INFO("mean " << row.mean << ", deviation " << row.deviation << ' ' << name_of(type));
      CHECK(near == (std::abs(row.mean) < 16 * row.deviation));
      if (!near) CHECK(merge(locals, global));
      CHECK(exact.error_of(global.variance(0)) <= most);
      CHECK(std::abs(static_cast<double>((static_cast<long double>(global.mean[0]) - exact.mean) +
                                         global.mean_rest[0])) <= 1e-12 * row.deviation + 1e-20);
      // The next step merges about the point where this one ended.
      CHECK(merge(locals, global));
      CHECK(exact.error_of(global.variance(0)) <= most);
    }
  }
}

TEST_CASE("variance over communicators keeps its digits, in the first step and later") {
  const int size = GENERATE(1, 3, 8);
  for (const Row& row : rows) {
    const std::vector<Numbers> ranks =
        draw_ranks(row, DType::f64, static_cast<std::size_t>(size), 500);
    const Exact exact(ranks);
    Setup setup;
    setup.size = size;
    CHECK_NOTHROW(run_communicators(setup, "variance", [&](Communicator& c, int rank) {
      Numbers x = ranks[static_cast<std::size_t>(rank)], y = x;
      SyncBatchNorm layer(c, 1, {.name = "bn", .type = DType::f64});
      for (int step = 0; step < 3; ++step) {
        layer.forward({x.data(), x.size(), 1}, {y.data(), y.size(), 1});
        const double error = exact.error_of(layer.variance()[0]);
        expect(error <= most, fmt::format("mean {}, deviation {}, step {}: {}", row.mean,
                                          row.deviation, step, error));
      }
    }));
  }
}

// The point of the sums is the mean of the step before. If the new mean is up to four deviations
// away, sums of 16-bit elements are not taken again. Few different values are the worst case,
// because their rounding errors do not cancel.
TEST_CASE("variance of 16-bit elements whose mean moves keeps its digits") {
  double worst = 0;
  for (const DType type : {DType::f16, DType::bf16}) {
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      const double moved = 4 * uniform(seed, 1), a = normal(seed, 2), b = normal(seed, 3);
      Numbers values;
      for (std::uint64_t i = 0; i < 600; ++i)
        values.push_back(seed % 2 == 0 ? moved + normal(seed, i) : i % 2 == 0 ? a : b);
      const Batch batch = stored(Batch{1, 1, values.size(), values}, type);
      const double point =
          seed % 2 == 0
              ? 0
              : (batch.values[0] + batch.values[1] + moved * (batch.values[0] - batch.values[1])) /
                    2;
      bn::Pool pool;
      bn::Passes passes(pool, 1, type, TensorLayout::nchw, 1);
      Tensor x(type, TensorLayout::nchw, batch, 0, 1);
      bn::LocalMoments local(1);
      passes.moments({x.view().data, 1, values.size()}, local, {&point, 1});
      bn::GlobalMoments global(1);
      if (!merge({local}, global)) merge({local}, global);
      worst = std::max(worst, Exact({batch.values}).error_of(global.variance(0)));
    }
  }
  INFO("worst " << worst);
  CHECK(worst <= 1e-5);
}

// One batch whose first element is far from all others, and channels that never vary.
TEST_CASE("a far first element, constant channels and numbers that are none do no harm") {
  Setup setup;
  setup.size = 3;
  CHECK_NOTHROW(run_communicators(setup, "odd channels", [](Communicator& c, int rank) {
    constexpr std::size_t samples = 1000, channels = 4;
    std::vector<Numbers> far(3);
    Numbers x(samples * channels), y(x.size());
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t n = 0; n < samples; ++n)
        far[r].push_back(n == 0 && r == 1 ? 0 : 1e4 + normal(r, n));
    for (std::size_t n = 0; n < samples; ++n) {
      double* const row = &x[n * channels];
      row[0] = far[static_cast<std::size_t>(rank)][n];
      row[1] = 0.1;
      row[2] = 0;
      row[3] = rank == 2 && n == 7 ? NAN : 1;
    }
    const Exact exact(far);
    SyncBatchNorm layer(c, channels,
                        {.name = "bn", .type = DType::f64, .layout = TensorLayout::nhwc});
    for (int step = 0; step < 3; ++step) {
      const std::uint64_t before = c.statistics().operations;
      layer.forward({x.data(), samples, 1}, {y.data(), samples, 1});
      // About the point of the step before, second sums are not needed.
      expect(c.statistics().operations - before == (step == 0 ? 2u : 1u), "collectives");
      expect(exact.error_of(layer.variance()[0]) <= 1e-12, "far first element");
      expect(layer.variance()[1] >= 0 && layer.variance()[1] < 1e-30 && std::abs(y[1]) < 1e-12,
             "constant");
      expect(layer.variance()[2] == 0 && y[2] == 0, "zero");
      expect(std::isnan(layer.variance()[3]) && std::isnan(y[3]), "not a number");
    }
  }));
}

// Compares dx with central differences of sum(y * w) over each element of x on all ranks.
TEST_CASE("dx is the derivative") {
  constexpr std::size_t samples = 4, channels = 2, spatial = 3;
  const Batch whole = draw_batch(2 * samples, channels, spatial, 5),
              weights = draw_batch(2 * samples, channels, spatial, 6);
  Setup setup;
  setup.size = 2;
  CHECK_NOTHROW(run_communicators(setup, "derivative", [&](Communicator& c, int rank) {
    const std::size_t first = static_cast<std::size_t>(rank) * samples;
    SyncBatchNorm layer(c, channels, {.name = "bn", .type = DType::f64});
    assign(layer.gamma(), {0.7, -1.3});
    Tensor w(DType::f64, TensorLayout::nchw, weights, first, samples), dx = w, y = w;
    const auto loss = [&](const Batch& batch) {
      Tensor x(DType::f64, TensorLayout::nchw, batch, first, samples);
      layer.forward(x.view(), y.view());
      Batch out = batch;
      y.unpack(out, first);
      double sum = 0;
      for (std::size_t i = 0; i < samples * channels * spatial; ++i) {
        const std::size_t at = first * channels * spatial + i;
        sum += out.values[at] * weights.values[at];
      }
      c.all_reduce({&sum, 1, DType::f64}, {&sum, 1, DType::f64}, ReduceOp::sum).wait();
      return sum;
    };
    Tensor x(DType::f64, TensorLayout::nchw, whole, first, samples);
    layer.forward(x.view(), y.view());
    layer.backward(x.view(), w.view(), dx.view());
    Batch derivative = whole;
    dx.unpack(derivative, first);
    constexpr double h = 1e-5;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      Batch up = whole, down = whole;
      up.values[i] += h;
      down.values[i] -= h;
      const double slope = (loss(up) - loss(down)) / (2 * h);
      const bool mine = i / (samples * channels * spatial) == static_cast<std::size_t>(rank);
      expect(!mine || std::abs(slope - derivative.values[i]) < 1e-8, fmt::format("element {}", i));
    }
  }));
}

TEST_CASE("the mean and its rest are exact, however far the mean is from the point before") {
  // Each sum has 54 binary digits, one more than a double.
  const auto [point, away] = GENERATE(table<double, double>(
      {{0x1.99999ap-4, 1e8 + 1}, {1e8 + 1, 0x1.99999ap-4}, {-0x1.99999ap-4, 1e8 + 1}}));
  bn::GlobalMoments global(1);
  global.point[0] = point;
  const double s1[] = {away}, s2[] = {away * away};
  bn::take_sums(global, 1, s1, s2);
  CHECK(global.mean_rest[0] != 0);
  CHECK(static_cast<long double>(global.mean[0]) + static_cast<long double>(global.mean_rest[0]) ==
        static_cast<long double>(point) + static_cast<long double>(away));
}

}  // namespace
}  // namespace rondo::testing
