// SPDX-License-Identifier: Apache-2.0
//
// The variance merged over ranks, compared with long double, where the usual ways lose their
// digits.
#include <memory>
#include <numeric>

#include "bn/layer/host_place.h"
#include "bn/places.h"
#include "bn/statistics/moments.h"

namespace rondo::testing {
namespace {

struct Hard {
  double mean, deviation;
};
constexpr Hard rows[] = {{0, 1e-4},   {1, 1e-4}, {100, 1e-4}, {1e4, 1},
                         {1e4, 1e-3}, {-3, 1},   {15, 1},     {1e8, 1}};
constexpr double most = 1e-13;  // relative error of the variance

double as(DType type, double value) {
  return type == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}

// Draws the elements of one channel for each rank. Ranks have different numbers of elements, some
// none.
std::vector<Numbers> draw_ranks(const Hard& row, DType type, std::size_t ranks, std::size_t each) {
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

// A rank with the elements of a layer of one channel.
class OneChannel {
 public:
  // point: about which the elements are summed first.
  OneChannel(const Numbers& values, DType type, double point = 0)
      : place_(pool_, 1, type, 1, layer::array_count) {
    using layer::ChannelTask;
    arguments_.type = type;
    arguments_.channels = 1;
    arguments_.count = static_cast<double>(values.size());
    arguments_.arrays = place_.arrays();
    arguments_.at(layer::point_at, 0) = point;
    if (values.empty()) return;
    const Tensor x(type, TensorLayout::nchw, Batch{1, 1, values.size(), values}, 0, 1);
    const Activations view{const_cast<unsigned char*>(x.bytes().data()), 1, values.size()};
    arguments_.x = reinterpret_cast<const std::byte*>(x.bytes().data());
    for (const ChannelTask task : {ChannelTask::moments, ChannelTask::moments_again}) {
      const bool first = task == ChannelTask::moments;
      place_.sum({view, TensorLayout::nchw, nullptr,
                  &arguments_.at(first ? layer::point_at : layer::center_at, 0),
                  first ? nullptr : &arguments_.far(0)});
      arguments_.task = task;
      arguments_.last = !first;
      place_.fold(arguments_);
    }
  }
  double count() const { return arguments_.count; }
  // Sums about K.
  std::pair<double, double> sums(double K) {
    arguments_.at(layer::point_at, 0) = K;
    arguments_.task = layer::ChannelTask::nothing;
    arguments_.section = {section_, &far_};
    place_.fold(arguments_);
    return {section_[layer::SectionHead::elements], section_[layer::SectionHead::elements + 1]};
  }

 private:
  layer::Pool pool_;
  layer::HostPlace place_;
  layer::ChannelArguments arguments_{};
  double far_ = 0, section_[layer::SectionHead::elements + 2];
};

// The statistics of all ranks.
struct All {
  double count = 0;
  statistics::Merged merged{};
  double variance() const { return merged.m2 / count; }
};

// Adds over ranks like a chain: each sum is rounded. Returns whether the point was near enough.
bool merge(const std::vector<std::unique_ptr<OneChannel>>& ranks, All& all) {
  double count = 0, first = 0, second = 0;
  for (const auto& rank : ranks) {
    const auto [own_first, own_second] = rank->sums(all.merged.point);
    count += rank->count();
    first += own_first;
    second += own_second;
  }
  all = {count, statistics::merged(all.merged.point, count, first, second)};
  return !all.merged.far;
}

TEST_CASE("variance merged over 256 ranks keeps its digits") {
  for (const Hard& row : rows) {
    for (const DType type : {DType::f64, DType::f32}) {
      if (type == DType::f32 && as(type, row.mean + row.deviation) == row.mean)
        continue;  // not representable
      const std::vector<Numbers> ranks = draw_ranks(row, type, 256, 300);
      const Exact exact(ranks);
      std::vector<std::unique_ptr<OneChannel>> locals;
      for (const Numbers& rank : ranks) locals.push_back(std::make_unique<OneChannel>(rank, type));
      All global;
      const bool near = merge(locals, global);
      INFO("mean " << row.mean << ", deviation " << row.deviation << ' ' << name_of(type));
      CHECK(near == (std::abs(row.mean) < 16 * row.deviation));
      if (!near) CHECK(merge(locals, global));
      CHECK(exact.error_of(global.variance()) <= most);
      CHECK(
          std::abs(static_cast<double>((static_cast<long double>(global.merged.mean) - exact.mean) +
                                       global.merged.rest)) <= 1e-12 * row.deviation + 1e-20);
      // The next step merges about the point where this one ended.
      CHECK(merge(locals, global));
      CHECK(exact.error_of(global.variance()) <= most);
    }
  }
}

TEST_CASE("hard numbers, and a mean that jumps", "[places]") {
  constexpr std::size_t channels = 3, spatial = 50;
  constexpr double deviations[channels] = {1e-3, 1, 1e-4};
  const Place place = each_place();
  for (const DType type : {DType::f64, DType::f32})
    run_on(place, 2, "hard", [&](Rank& rank) {
      const double allowed = type == DType::f64 ? 3e-12 : 1e-5;
      const Batch dy = draw_batch(6, channels, spatial, 9);
      SyncBatchNorm layer = rank.layer(channels, {.type = type});
      const auto check = [&](std::uint64_t seed, double mean, bool exact) {
        Batch x{6, channels, spatial, {}};
        for (std::size_t i = 0; i < dy.size(); ++i)
          x.values.push_back(mean + deviations[i / spatial % channels] * normal(seed, i));
        x = stored(x, type);
        Step step(rank, type, x, dy, rank.number == 0 ? Share{0, 2} : Share{2, 4});
        Gradients gradients(rank, channels);
        step.forward(layer);
        step.backward(layer, gradients.here());
        if (!exact) return rank.settle();
        const Reference wanted(x, stored(dy, type), Numbers(channels, 1), Numbers(channels), 1e-5);
        const auto near = [&](const Numbers& got, const Numbers& right, const Numbers& scales,
                              double most_apart, const std::string& what) {
          const double apart = difference_of_scales(got, right, scales);
          expect(apart <= most_apart, fmt::format("{}: {} apart, mean {}", what, apart, mean));
        };
        near(rank.values(layer.statistics().variance), wanted.variance, wanted.variance, 1e-12,
             "variance");
        near(rank.values(layer.statistics().mean), wanted.mean, wanted.mean, 1e-12, "mean");
        near(gradients.sum(gradients.gamma), wanted.dgamma, wanted.dgamma_scale, 3e-12, "dgamma");
        near(gradients.sum(gradients.beta), wanted.dbeta, wanted.dbeta_scale, 3e-12, "dbeta");
        step.y.expect_near(wanted.y, allowed, "y");
        step.dx.expect_near(wanted.dx, allowed, "dx");
      };
      // The mean moves by less than 60 deviations, the most that sums of f64 bear unchecked.
      for (const double mean : {1e4, 1e4 + 0.005, 1e4, 1e4 - 0.002})
        check(static_cast<std::uint64_t>(mean * 1000), mean, true);
      // The mean jumps. A GPU checks the sums only later, so this step may lose digits of f64
      // there, but none of f32. The next steps are exact again.
      check(77, 1e4 + 10, type == DType::f32 || !rank.on);
      for (const double mean : {2e4, 1e4}) check(78, mean, true);
    });
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
      std::vector<std::unique_ptr<OneChannel>> rank;
      rank.push_back(std::make_unique<OneChannel>(batch.values, type, point));
      All global;
      if (!merge(rank, global)) merge(rank, global);
      worst = std::max(worst, Exact({batch.values}).error_of(global.variance()));
    }
  }
  INFO("worst " << worst);
  CHECK(worst <= 1e-5);
}

// The ranks have uneven parts: one has no samples, and one has another mean. The step before has
// left the point `away` deviations from the mean.
TEST_CASE("the point of the sums may be anywhere", "[places]") {
  constexpr Hard some[] = {{0, 1e-4}, {1, 1e-4},   {100, 1e-4}, {1e4, 1}, {1e4, 1e-3},
                           {1e8, 1},  {-1e-3, 50}, {3, 0},      {0, 0},   {1e-30, 1e-33}};
  constexpr std::size_t channels = std::size(some), spatial = 11;
  constexpr Share shares[] = {{0, 7}, {7, 30}, {37, 0}, {37, 2}};
  const Place place = each_place();
  const DType type = GENERATE(DType::f64, DType::f32);
  Batch x{39, channels, spatial, {}};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Hard& row = some[i / spatial % channels];
    const double moved = i < 37 * channels * spatial ? 0 : 1;
    x.values.push_back(row.mean + row.deviation * (normal(1, i) + moved));
  }
  x = stored(x, type);
  const Reference wanted(x, x, Numbers(channels, 1.0), Numbers(channels), 1e-5);
  for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc})
    for (const double away : {0.0, 1e-3, 40.0, 1e7, 1e20})
      run_on(place, 4, fmt::format("{} away", away), [&](Rank& rank) {
        SyncBatchNorm layer = rank.layer(channels, {.type = type, .layout = layout});
        Numbers point;
        for (const Hard& row : some) point.push_back(row.mean + away * (row.deviation + 1e-9));
        rank.assign(layer.buffers().point, point);
        Step step(rank, type, x, x, shares[rank.number], layout);
        step.forward(layer);
        const Numbers mean = rank.values(layer.statistics().mean),
                      variance = rank.values(layer.statistics().variance);
        for (std::size_t c = 0; c < channels; ++c) {
          const double error = std::abs(variance[c] - wanted.variance[c]);
          expect(error <= 1e-12 * wanted.variance[c] + 1e-25 &&
                     std::abs(mean[c] - wanted.mean[c]) <=
                         1e-12 * wanted.deviation[c] + 2e-16 * std::abs(some[c].mean),
                 fmt::format("channel {}: {} {}, not {} {}", c, mean[c], variance[c],
                             wanted.mean[c], wanted.variance[c]));
        }
      });
}

// Channel 0 has a first element far from all others. The other channels never vary, or are not
// finite.
TEST_CASE("a far first element, constant channels, NaN and infinity do no harm", "[places]") {
  run_on(each_place(), 3, "odd channels", [](Rank& rank) {
    constexpr std::size_t samples = 1000, channels = 5;
    const auto number = static_cast<std::size_t>(rank.number);
    std::vector<Numbers> far(3);
    Batch x{samples, channels, 1, {}};
    for (std::size_t r = 0; r < 3; ++r)
      for (std::size_t n = 0; n < samples; ++n)
        far[r].push_back(n == 0 && r == 1 ? 0 : 1e4 + normal(r, n));
    for (std::size_t n = 0; n < samples; ++n) {
      const bool odd = rank.number == 2 && n == 7;
      const double row[channels] = {far[number][n], 0.1, 0, odd ? NAN : 1, odd ? HUGE_VAL : 1};
      x.values.insert(x.values.end(), std::begin(row), std::end(row));
    }
    const Exact exact(far);
    SyncBatchNorm layer = rank.layer(channels, {.type = DType::f64, .layout = TensorLayout::nhwc});
    Step step(rank, DType::f64, x, x, {0, samples}, TensorLayout::nhwc);
    for (int round = 0; round < 3; ++round) {
      const std::uint64_t before = rank.c.statistics().operations;
      step.forward(layer);
      // About the point of the step before, second sums are not needed.
      expect(rank.c.statistics().operations - before == (round == 0 ? 2u : 1u), "collectives");
      const Numbers variance = rank.values(layer.statistics().variance),
                    mean = rank.values(layer.statistics().mean),
                    point = rank.values(layer.buffers().point);
      Batch y = x;
      step.y.read().unpack(y, 0);
      expect(exact.error_of(variance[0]) <= 1e-12, "far first element");
      expect(variance[1] >= 0 && variance[1] < 1e-30 && std::abs(y.values[1]) < 1e-12, "constant");
      expect(variance[2] == 0 && y.values[2] == 0, "zero");
      expect(std::isfinite(mean[0]) && point[0] == mean[0], "finite");
      for (const std::size_t c : {3, 4})
        expect(!std::isfinite(variance[c]) && !std::isfinite(y.values[7 * channels + c]) &&
                   point[c] == 0,
               "not finite");
    }
  });
}

// Compares dx with central differences of sum(y * w) over each element of x on all ranks.
TEST_CASE("dx is the derivative", "[places]") {
  constexpr std::size_t samples = 4, channels = 2, spatial = 3;
  const Batch whole = draw_batch(2 * samples, channels, spatial, 5),
              weights = draw_batch(2 * samples, channels, spatial, 6);
  run_on(each_place(), 2, "derivative", [&](Rank& rank) {
    const Share share{rank.number == 0 ? 0 : samples, samples};
    SyncBatchNorm layer = rank.layer(channels, {.name = "bn", .type = DType::f64});
    rank.assign(layer.buffers().gamma, {0.7, -1.3});
    const auto loss = [&](const Batch& batch) {
      Step step(rank, DType::f64, batch, weights, share);
      step.forward(layer);
      Batch y = batch;
      std::ranges::fill(y.values, 0);
      step.y.read().unpack(y, share.first);
      double sum =
          std::inner_product(y.values.begin(), y.values.end(), weights.values.begin(), 0.0);
      rank.c.all_reduce({&sum, 1, DType::f64}, {&sum, 1, DType::f64}, ReduceOp::sum).wait();
      return sum;
    };
    Step step(rank, DType::f64, whole, weights, share);
    step.forward(layer);
    step.backward(layer);
    Batch derivative = whole;
    step.dx.read().unpack(derivative, share.first);
    constexpr double h = 1e-5;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      Batch up = whole, down = whole;
      up.values[i] += h;
      down.values[i] -= h;
      const double slope = (loss(up) - loss(down)) / (2 * h);
      const bool mine = i / (samples * channels * spatial) == share.first / samples;
      expect(!mine || std::abs(slope - derivative.values[i]) < 1e-8, fmt::format("element {}", i));
    }
  });
}

TEST_CASE("the mean and its rest are exact, however far the mean is from the point before") {
  // Each sum has 54 binary digits, one more than a double.
  const auto [point, away] = GENERATE(table<double, double>(
      {{0x1.99999ap-4, 1e8 + 1}, {1e8 + 1, 0x1.99999ap-4}, {-0x1.99999ap-4, 1e8 + 1}}));
  const statistics::Merged got = statistics::merged(point, 1, away, away * away);
  CHECK(got.rest != 0);
  CHECK(static_cast<long double>(got.mean) + static_cast<long double>(got.rest) ==
        static_cast<long double>(point) + static_cast<long double>(away));
}

}  // namespace
}  // namespace rondo::testing
