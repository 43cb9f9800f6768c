// SPDX-License-Identifier: Apache-2.0
//
// The sums of a step are taken about a point that the step before leaves. NaN, infinity, means from
// far away and passes that failed must not harm the next step.
#include <cmath>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t channels = 3, spatial = 5, total = 15;
constexpr int size = 3;
constexpr std::size_t samples_of[size] = {5, 3, 7}, first_of[size] = {0, 5, 8};

struct Wanted {
  Batch batch = draw_batch(total, channels, spatial, 1);
  Reference reference{batch, batch, Numbers(channels, 1.0), Numbers(channels), 1e-5};
};

// One rank's part of a step.
struct Part {
  Part(DType type, const Batch& batch, int rank)
      : first(first_of[rank]),
        samples(samples_of[rank]),
        x(type, TensorLayout::nchw, batch, first, samples),
        y(x) {}
  std::size_t first, samples;
  Tensor x, y;
};

void expect_ordinary_step(SyncBatchNorm& layer, const Wanted& wanted, int rank,
                          const std::string& when) {
  Part part(layer.options().type, wanted.batch, rank);
  layer.forward(part.x.view(), part.y.view());
  expect_near({layer.mean().begin(), layer.mean().end()}, wanted.reference.mean, 1e-12,
              when + ", mean");
  expect_near({layer.variance().begin(), layer.variance().end()}, wanted.reference.variance, 1e-12,
              when + ", variance");
  Batch got = wanted.batch;
  got.values = wanted.reference.y;
  part.y.unpack(got, part.first);
  expect_near(got.values, wanted.reference.y, 1e-6, when + ", y");
}

template <class T>
void set(const Activations& x, std::size_t place, double value) {
  static_cast<T*>(x.data)[place] = static_cast<T>(value);
}

// Writes `odd` to channel 1: to all its elements, or to the first.
void spoil(Tensor& tensor, DType type, double odd, bool all) {
  const Activations x = tensor.view();
  for (std::size_t i = 0; i < x.samples * x.spatial; ++i) {
    if (!all && i > 0) return;
    const std::size_t place = (i / spatial * channels + 1) * spatial + i % spatial;
    type == DType::f64 ? set<double>(x, place, odd) : set<float>(x, place, odd);
  }
}

TEST_CASE("a step with odd numbers leaves nothing behind in the statistics of the next") {
  const double odd = GENERATE(std::nan(""), HUGE_VAL, -HUGE_VAL, 3e38, -1e30, 1e20, 1.7e13);
  const DType type = GENERATE(DType::f32, DType::f64);
  const int where = GENERATE(0, 2, size);  // the rank; size: all ranks
  Wanted wanted;
  wanted.batch = stored(wanted.batch, type);
  wanted.reference =
      Reference(wanted.batch, wanted.batch, Numbers(channels, 1.0), Numbers(channels), 1e-5);
  INFO("odd " << odd << ' ' << name_of(type) << " on rank " << where);
  run_on_processor(size, "odd numbers", [&](Communicator& c, int rank) {
    SyncBatchNorm layer(c, channels, {.name = "bn", .type = type});
    Part part(type, wanted.batch, rank);
    if (where == rank || where == size) spoil(part.x, type, odd, where == size);
    layer.forward(part.x.view(), part.y.view());
    expect(std::isfinite(odd) || !std::isfinite(layer.mean()[1]), "the mean says so");
    expect(std::abs(layer.mean()[0] - wanted.reference.mean[0]) < 1e-12,
           "other channels are as ever");
    expect_ordinary_step(layer, wanted, rank, "next");
    const std::uint64_t before = c.statistics().operations;
    expect_ordinary_step(layer, wanted, rank, "after next");
    expect(c.statistics().operations == before + 1, "collectives");
  });
}

TEST_CASE("16-bit sums of f32 about a point from far away are taken again") {
  run_on_processor(2, "far", [](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn", .type = DType::bf16});
    constexpr std::uint16_t huge = 0x7149, one = 0x3f80, three = 0x4040;  // about 1e30
    std::uint16_t x[4] = {huge, huge, huge, huge}, y[4];
    layer.forward({x, 4, 1}, {y, 4, 1});
    expect(layer.mean()[0] > 9e29 && layer.variance()[0] == 0, "huge");
    for (std::size_t i = 0; i < 4; ++i) x[i] = i % 2 == 0 ? one : three;
    layer.forward({x, 4, 1}, {y, 4, 1});
    expect(layer.mean()[0] == 2 && layer.variance()[0] == 1,
           fmt::format("{} {}", layer.mean()[0], layer.variance()[0]));
  });
}

TEST_CASE("squares that overflow about a far point are taken again") {
  const Wanted wanted;
  run_on_processor(size, "overflow", [&](Communicator& c, int rank) {
    SyncBatchNorm layer(c, channels, {.name = "bn", .type = DType::f64});
    Numbers x(channels, 1e300), y(channels);
    layer.forward({x.data(), 1, 1}, {y.data(), 1, 1});
    expect(layer.mean()[0] == 1e300 && layer.variance()[0] == 0, "constant");
    expect_ordinary_step(layer, wanted, rank, "next");
  });
}

TEST_CASE("there is no backward pass of a forward pass that failed") {
  run_on_processor(2, "failed", [&](Communicator& c, int rank) {
    SyncBatchNorm layer(c, 2, {.name = "bn"}), other(c, 2, {.name = "other"});
    std::vector<float> x{1, 2, 3, 4}, y(4);
    const Activations in{x.data(), 2, 1}, out{y.data(), 2, 1};
    layer.forward(in, out);
    SyncBatchNorm& mine = rank == 0 ? layer : other;
    refused(Errc::mismatch, "", [&] { mine.forward(in, out); });
    refused("", [&] { mine.backward(in, in, out); });
  });
}

}  // namespace
}  // namespace rondo::testing
