// SPDX-License-Identifier: Apache-2.0
//
// Ranks with parts of a batch get the results of one process with the whole batch: forward, dx,
// dgamma, dbeta, running statistics.
#include <numeric>

#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

struct Shape {
  TensorLayout layout;
  DType type;
  std::size_t channels, spatial;
};

// The allowed differences for a type: of f64 sums, of values stored as parameters, and of
// activations, which are rounded once.
struct Tolerance {
  double sums, parameters, activations;
};
Tolerance tolerance_of(DType type) {
  switch (type) {
    case DType::f64:
      return {1e-12, 1e-12, 1e-12};
    case DType::f32:
      return {1e-12, 1e-6, 1e-5};
    case DType::f16:
      return {1e-6, 1e-6, 0x1p-11 * 1.01};
    default:
      return {1e-6, 1e-6, 0x1p-8 * 1.01};
  }
}

// Compares one number for each channel, by the scale of that channel.
void expect_each(std::span<const double> got, const Numbers& wanted, const Numbers& scales,
                 double tolerance, const std::string& what) {
  const double apart = difference_of_scales({got.begin(), got.end()}, wanted, scales);
  expect(apart <= tolerance,
         fmt::format("{}: {} apart in a channel, {} allowed", what, apart, tolerance));
}

std::string describe(const Shape& shape, const std::vector<std::size_t>& split) {
  std::string text = fmt::format("{} {} {} channels, {} positions, split",
                                 shape.layout == TensorLayout::nchw ? "nchw" : "nhwc",
                                 name_of(shape.type), shape.channels, shape.spatial);
  for (const std::size_t samples : split) text += fmt::format(" {}", samples);
  return text;
}

// Makes three training steps. The parts of the ranks follow each other in the whole batch.
void check_equal(const Shape& shape, const std::vector<std::size_t>& split) {
  const std::string what = describe(shape, split);
  const std::size_t total = std::accumulate(split.begin(), split.end(), std::size_t{0});
  Numbers gamma, beta;
  for (std::size_t c = 0; c < shape.channels; ++c) {
    gamma.push_back(0.5 + 0.125 * static_cast<double>(c % 7));
    beta.push_back(0.25 * static_cast<double>(c % 5) - 0.5);
  }
  constexpr int steps = 3;
  std::vector<Batch> xs, dys, ys, dxs;
  std::vector<Reference> references;
  for (int step = 0; step < steps; ++step) {
    const auto seed = static_cast<std::uint64_t>(step);
    xs.push_back(stored(draw_batch(total, shape.channels, shape.spatial, 10 + seed), shape.type));
    dys.push_back(stored(draw_batch(total, shape.channels, shape.spatial, 20 + seed), shape.type));
    references.emplace_back(xs.back(), dys.back(), gamma, beta, 1e-5);
    ys.push_back(xs.back());
    dxs.push_back(xs.back());
  }
  std::vector<Numbers> dgammas(split.size()), dbetas(split.size()), means(split.size()),
      variances(split.size());
  const Tolerance allowed = tolerance_of(shape.type);
  Setup setup;
  setup.size = static_cast<int>(split.size());
  REQUIRE_NOTHROW(run_communicators(setup, what, [&](Communicator& c, int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::size_t first = std::accumulate(split.begin(), split.begin() + rank, std::size_t{0});
    SyncBatchNorm layer(c, shape.channels,
                        {.name = "bn", .type = shape.type, .layout = shape.layout});
    assign(layer.gamma(), gamma);
    assign(layer.beta(), beta);
    for (int step = 0; step < steps; ++step) {
      const auto k = static_cast<std::size_t>(step);
      Tensor x(shape.type, shape.layout, xs[k], first, split[r]),
          dy(shape.type, shape.layout, dys[k], first, split[r]);
      Tensor y(shape.type, shape.layout, split[r], shape.channels, shape.spatial), dx = y;
      layer.forward(x.view(), y.view());
      expect(layer.count() == total * shape.spatial, "count");
      const Reference& wanted = references[k];
      expect_each(layer.mean(), wanted.mean, wanted.deviation, allowed.sums, "mean");
      expect_each(layer.variance(), wanted.variance, wanted.variance, allowed.sums, "variance");
      layer.backward(x.view(), dy.view(), dx.view());
      expect_each(layer.gamma_gradient_sum(), wanted.dgamma, wanted.dgamma_scale, allowed.sums,
                  "sum of dgamma");
      expect_each(layer.beta_gradient_sum(), wanted.dbeta, wanted.dbeta_scale, allowed.sums,
                  "sum of dbeta");
      y.unpack(ys[k], first);
      dx.unpack(dxs[k], first);
    }
    dgammas[r] = numbers(layer.gamma_gradient());
    dbetas[r] = numbers(layer.beta_gradient());
    means[r] = numbers(layer.running_mean());
    variances[r] = numbers(layer.running_variance());
    expect(layer.batches() == steps, "batches");
  }));

  INFO(what);
  Numbers dgamma(shape.channels), dbeta(shape.channels), dgamma_got(shape.channels),
      dbeta_got(shape.channels);
  Numbers mean(shape.channels), variance(shape.channels, 1.0);
  Numbers dgamma_scale(shape.channels), dbeta_scale(shape.channels), deviation(shape.channels);
  const auto n = static_cast<double>(total * shape.spatial);
  for (std::size_t k = 0; k < steps; ++k) {
    CHECK(difference_by_channel(ys[k], references[k].y) <= allowed.activations);
    CHECK(difference_by_channel(dxs[k], references[k].dx) <= allowed.activations);
    for (std::size_t c = 0; c < shape.channels; ++c) {
      dgamma[c] += references[k].dgamma[c];
      dbeta[c] += references[k].dbeta[c];
      dgamma_scale[c] += references[k].dgamma_scale[c];
      dbeta_scale[c] += references[k].dbeta_scale[c];
      deviation[c] += 0.1 * references[k].deviation[c];
      mean[c] = 0.9 * mean[c] + 0.1 * references[k].mean[c];
      variance[c] = 0.9 * variance[c] + 0.1 * references[k].variance[c] * n / (n - 1);
    }
  }
  for (std::size_t r = 0; r < split.size(); ++r) {
    CHECK(means[r] == means[0]);
    CHECK(variances[r] == variances[0]);
    for (std::size_t c = 0; c < shape.channels; ++c) {
      dgamma_got[c] += dgammas[r][c];
      dbeta_got[c] += dbetas[r][c];
    }
  }
  CHECK(difference_of_scales(means[0], mean, deviation) <= allowed.parameters);
  CHECK(difference_of_scales(variances[0], variance, variance) <= allowed.parameters);
  CHECK(difference_of_scales(dgamma_got, dgamma, dgamma_scale) <= allowed.parameters);
  CHECK(difference_of_scales(dbeta_got, dbeta, dbeta_scale) <= allowed.parameters);
}

TEST_CASE("ranks with parts of a batch get what one process gets with all of it") {
  const auto layout = GENERATE(TensorLayout::nchw, TensorLayout::nhwc);
  const auto type = GENERATE(DType::f64, DType::f32, DType::f16, DType::bf16);
  for (const std::vector<std::size_t>& split : std::vector<std::vector<std::size_t>>{
           {16}, {8, 8}, {7, 1, 8}, {5, 3, 8, 0}, {4, 4, 4, 4}, {0, 1, 2, 3, 4, 5, 0, 1}}) {
    check_equal({layout, type, 5, 7}, split);
    check_equal({layout, type, 37, 1}, split);
  }
  check_equal({layout, type, 19, 67}, {5, 3, 8, 0});
  check_equal({layout, type, 64, 9}, {5, 3, 8, 0});
}

}  // namespace
}  // namespace rondo::testing
