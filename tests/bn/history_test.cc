// SPDX-License-Identifier: Apache-2.0
//
// The sums of a step are taken about a point that the step before leaves. NaN, infinity and means
// from far away must not harm the next step.
#include <cmath>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t past_channels = 3, past_spatial = 5;
constexpr Share past_shares[] = {{0, 5}, {5, 3}, {8, 7}};

struct Past {
  explicit Past(DType type)
      : batch(stored(draw_batch(15, past_channels, past_spatial, 1), type)),
        reference(batch, batch, Numbers(past_channels, 1.0), Numbers(past_channels), 1e-5) {}
  Batch batch;
  Reference reference;
};

void expect_ordinary_step(Rank& rank, SyncBatchNorm& layer, const Past& wanted,
                          const std::string& when) {
  const Share share = past_shares[rank.number];
  Step step(rank, layer.options().type, wanted.batch, wanted.batch, share);
  step.forward(layer);
  expect_near(numbers(layer.statistics().mean), wanted.reference.mean, 1e-12, when + ", mean");
  expect_near(numbers(layer.statistics().variance), wanted.reference.variance, 1e-12,
              when + ", variance");
  step.y.expect_near(wanted.reference.y, 1e-6, when + ", y");
}

// In channel 1 the first element of one rank is the odd number, or all elements of all ranks are.
TEST_CASE("a step with odd numbers leaves nothing behind in the statistics of the next") {
  const double odd = GENERATE(std::nan(""), HUGE_VAL, -HUGE_VAL, 3e38, -1e30, 1e20, 1.7e13);
  const DType type = GENERATE(DType::f32, DType::f64);
  const int where = GENERATE(0, 2, 3);  // the rank; 3: all ranks
  const Past wanted(type);
  INFO("odd " << odd << ' ' << name_of(type) << " on rank " << where);
  run_on(Place::processor, 3, "odd numbers", [&](Rank& rank) {
    SyncBatchNorm layer = rank.layer(past_channels, {.name = "bn", .type = type});
    const auto [first, count] = past_shares[rank.number];
    Batch batch = wanted.batch;
    if (where == rank.number) batch.values[batch.at(first, 1, 0)] = odd;
    for (std::size_t i = 0; where == 3 && i < count * past_spatial; ++i)
      batch.values[batch.at(first + i / past_spatial, 1, i % past_spatial)] = odd;
    Step(rank, type, batch, batch, {first, count}).forward(layer);
    expect(std::isfinite(odd) || !std::isfinite(numbers(layer.statistics().mean)[1]),
           "the mean says so");
    expect(std::abs(numbers(layer.statistics().mean)[0] - wanted.reference.mean[0]) < 1e-12,
           "other channels are as ever");
    expect_ordinary_step(rank, layer, wanted, "next");
    const std::uint64_t before = rank.c.statistics().operations;
    expect_ordinary_step(rank, layer, wanted, "after next");
    expect(rank.c.statistics().operations == before + 1, "collectives");
  });
}

TEST_CASE("16-bit sums of f32 about a point from far away are taken again") {
  run_on_processor(2, "far", [](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn", .type = DType::bf16});
    constexpr std::uint16_t huge = 0x7149, one = 0x3f80, three = 0x4040;  // about 1e30
    std::uint16_t x[4] = {huge, huge, huge, huge}, y[4];
    layer.forward({x, 4, 1}, {y, 4, 1});
    expect(
        numbers(layer.statistics().mean)[0] > 9e29 && numbers(layer.statistics().variance)[0] == 0,
        "huge");
    for (std::size_t i = 0; i < 4; ++i) x[i] = i % 2 == 0 ? one : three;
    layer.forward({x, 4, 1}, {y, 4, 1});
    expect(numbers(layer.statistics().mean)[0] == 2 && numbers(layer.statistics().variance)[0] == 1,
           fmt::format("{} {}", numbers(layer.statistics().mean)[0],
                       numbers(layer.statistics().variance)[0]));
  });
}

TEST_CASE("a constant whose squares overflow has no variance") {
  run_on_processor(1, "constant", [](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn", .type = DType::f64});
    Numbers x(7, 1.1e170), y(7);  // their mean is off by one unit in the last place
    layer.forward({x.data(), 7, 1}, {y.data(), 7, 1});
    expect(
        numbers(layer.statistics().mean)[0] == x[0] && numbers(layer.statistics().variance)[0] == 0,
        fmt::format("{}", numbers(layer.statistics().variance)[0]));
  });
}

TEST_CASE("squares that overflow about a far point are taken again") {
  run_on(Place::processor, 3, "overflow", [](Rank& rank) {
    SyncBatchNorm layer = rank.layer(past_channels, {.name = "bn", .type = DType::f64});
    Numbers x(past_channels, 1e300), y(past_channels);
    layer.forward({x.data(), 1, 1}, {y.data(), 1, 1});
    expect(numbers(layer.statistics().mean)[0] == 1e300 &&
               numbers(layer.statistics().variance)[0] == 0,
           "constant");
    expect_ordinary_step(rank, layer, Past(DType::f64), "next");
  });
}

}  // namespace
}  // namespace rondo::testing
