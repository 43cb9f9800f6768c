// SPDX-License-Identifier: Apache-2.0
//
// Backward passes without a collective: without dx, with frozen statistics, or with those of this
// rank's batch. And what happens if ranks do not agree on that.
#include <cmath>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t alone_channels = 3, alone_spatial = 4;
constexpr DType alone_types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
const Numbers alone_gamma{0.5, -1.5, 2}, alone_beta{1, 0, -0.25};

Batch alone_batch(std::uint64_t seed) {
  return draw_batch(8, alone_channels, alone_spatial, seed);
}
Step alone_step(Rank& rank, DType type, Share share, TensorLayout layout = TensorLayout::nchw) {
  return {rank, type, alone_batch(1), alone_batch(2), share, layout};
}
SyncBatchNorm alone_layer(Rank& rank, const BatchNormOptions& options) {
  SyncBatchNorm layer = rank.layer(alone_channels, options);
  rank.assign(layer.gamma(), alone_gamma);
  rank.assign(layer.beta(), alone_beta);
  return layer;
}

TEST_CASE("backward without dx has the gradients of parameters and no collective", "[places]") {
  run_on(each_place(), 3, "no dx", [](Rank& rank) {
    for (const DType type : alone_types) {
      SyncBatchNorm layer = alone_layer(rank, {.name = "bn", .type = type});
      const Step step = alone_step(rank, type, uneven(rank.number));
      Gradients with(rank, alone_channels), without(rank, alone_channels),
          half(rank, alone_channels);
      step.forward(layer);
      const BatchNormPass pass = layer.take_pass();
      const auto operations = [&] { return rank.c.statistics().operations; };
      const std::uint64_t before = operations();
      layer.backward_parameters(pass, step.x.view(), step.dy.view(), without.here());
      expect(operations() == before, "collectives");
      step.backward(layer, pass, with.here());
      expect(operations() == before + 1, "one collective");
      expect(without.are(with.gamma.values(), with.beta.values()), "gradients");
      expect(rank.number != 1 || with.gamma.values() == Numbers(alone_channels), "no samples");
      // Only one of the two is wanted.
      layer.backward_parameters(pass, step.x.view(), step.dy.view(), {{}, half.beta.buffer()});
      expect(half.are(Numbers(alone_channels, 7.0), with.beta.values()), "half");
    }
  });
}

TEST_CASE("a rank that leaves dx out where the others do not is named in its next call") {
  run_on(Place::processor, 3, "dx differs", [](Rank& rank) {
    SyncBatchNorm first = alone_layer(rank, {.name = "bn1"}),
                  second = alone_layer(rank, {.name = "bn2"});
    const Step step = alone_step(rank, DType::f32, uneven(rank.number));
    step.forward(first);
    step.forward(second);
    const BatchNormPass one = first.take_pass(), two = second.take_pass();
    refused(Errc::mismatch,
            "rank 2 at layer bn1 backward step 1 (it ran a local backward of bn2 since it last "
            "trained); ranks 0, 1 at layer bn2 backward step 1",
            [&] {
              if (rank.number == 2)
                second.backward_parameters(two, step.x.view(), step.dy.view(), {});
              else
                step.backward(second, two, {});
              step.backward(first, one, {});
            });
  });
}

TEST_CASE("a rank that leaves dx out and makes no further call is named by the deadline") {
  run_on(Place::processor, 2, "dx deadline", [](Rank& rank) {
    SyncBatchNorm layer =
        alone_layer(rank, {.name = "bn", .deadline = std::chrono::milliseconds{300}});
    const Step step = alone_step(rank, DType::f32, {0, 5});
    step.forward(layer);
    const BatchNormPass pass = layer.take_pass();
    if (rank.number == 1) {
      layer.backward_parameters(pass, step.x.view(), step.dy.view(), {});
      return wait_until_others_fail(rank.c);
    }
    const std::string message =
        message_of(Errc::deadline_exceeded, [&] { step.backward(layer, pass, {}); });
    expect_parts(message, {"bwd 1 bn", "rank 1"});
  });
}

// The value of sum(y * w) when a layer evaluates.
double evaluated_loss(SyncBatchNorm& layer, const Batch& x, const Batch& w) {
  Tensor in(DType::f64, TensorLayout::nchw, x, 0, x.samples), out = in;
  layer.evaluate(in.view(), out.view());
  Batch y = x;
  out.unpack(y, 0);
  double sum = 0;
  for (std::size_t i = 0; i < y.size(); ++i) sum += y.values[i] * w.values[i];
  return sum;
}

TEST_CASE("gradients of an evaluation are the derivatives; frozen statistics or own ones") {
  const bool tracks = GENERATE(true, false);
  run_on(Place::processor, 2, "evaluation", [&](Rank& rank) {
    SyncBatchNorm layer =
        alone_layer(rank, {.name = "bn", .type = DType::f64, .track_running = tracks});
    Numbers mean{-1, 0.5, 30}, variance{0.5, 2, 4}, gamma = alone_gamma, beta = alone_beta;
    layer.bind_statistics(buffer_of(std::span(mean)), buffer_of(std::span(variance)));
    layer.bind_parameters(buffer_of(std::span(gamma)), buffer_of(std::span(beta)));
    if (rank.number == 1) return;  // evaluation needs no other rank
    const Batch x = draw_batch(4, alone_channels, 2, 3), w = draw_batch(4, alone_channels, 2, 4);
    Step step(rank, DType::f64, x, w, {0, 4});
    Gradients gradients(rank, alone_channels);
    const BatchNormPass pass = layer.evaluate_pass(step.x.view(), step.y.view());
    step.backward(layer, pass, gradients.here());
    // dx does not depend on which gradients are wanted.
    const auto dx = step.dx.bytes();
    const BatchNormPass second = layer.evaluate_pass(step.x.view(), step.y.view());
    layer.backward(second, step.x.view(), step.x.view(), step.dx.view(), {});
    expect(step.dx.bytes() != dx, "dx of another dy");
    step.backward(layer, pass, {});
    expect(step.dx.bytes() == dx, "dx alone");
    constexpr double h = 1e-5;
    Batch moved = x, derivative = x;
    const auto slope = [&](double& value) {
      const double was = std::exchange(value, value + h);
      const double up = evaluated_loss(layer, moved, w);
      value = was - h;
      const double down = evaluated_loss(layer, moved, w);
      value = was;
      return (up - down) / (2 * h);
    };
    step.dx.read().unpack(derivative, 0);
    for (std::size_t i = 0; i < x.size(); ++i)
      expect(std::abs(slope(moved.values[i]) - derivative.values[i]) < 1e-7,
             fmt::format("dx {}", i));
    for (std::size_t i = 0; i < alone_channels; ++i) {
      expect(std::abs(slope(gamma[i]) - gradients.gamma.values()[i]) < 1e-7,
             fmt::format("dgamma {}", i));
      expect(std::abs(slope(beta[i]) - gradients.beta.values()[i]) < 1e-7,
             fmt::format("dbeta {}", i));
    }
  });
}

void check_frozen(Rank& rank, DType type, TensorLayout layout, double tolerance) {
  SyncBatchNorm layer = alone_layer(rank, {.name = "bn", .type = type, .layout = layout});
  const Numbers variance{0.5, 2, 4};
  rank.assign(layer.running_variance(), variance);
  const Share share = uneven(rank.number);
  const Batch dy = stored(alone_batch(2), type);
  Step step(rank, type, alone_batch(1), dy, share, layout);
  if (share.count > 0 && size_of(type) >= 4) rank.assign({step.x.view().data, 1, type}, {NAN});
  const std::uint64_t before = rank.c.statistics().operations;
  const BatchNormPass pass = layer.evaluate_pass(step.x.view(), step.y.view());
  layer.backward(pass, step.x.view(), step.dy.view(), step.y.view(), {});
  expect(rank.c.statistics().operations == before, "collectives");
  Numbers wanted = dy.values;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::size_t channel = i / alone_spatial % alone_channels;
    wanted[i] *= alone_gamma[channel] / std::sqrt(variance[channel] + 1e-5);
  }
  step.y.expect_near(wanted, tolerance, std::string(name_of(type)));
  expect(layer.batches() == 0 && rank.values(layer.running_variance()) == variance, "frozen");
  // Gradients of parameters alone, and of a rank without samples.
  const Step none = alone_step(rank, type, {share.first, 0}, layout);
  Gradients gradients(rank, alone_channels);
  const BatchNormPass empty = layer.evaluate_pass(none.x.view(), none.y.view());
  layer.backward_parameters(empty, none.x.view(), none.dy.view(), gradients.here());
  expect(gradients.are(Numbers(alone_channels), Numbers(alone_channels)), "no samples");
}

TEST_CASE("frozen statistics in every type and layout; a NaN in x stays out of dx", "[places]") {
  run_on(each_place(), 3, "frozen", [](Rank& rank) {
    for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc})
      for (const auto& [type, tolerance] :
           {std::pair(DType::f64, 1e-14), std::pair(DType::f32, 1e-6), std::pair(DType::f16, 1e-3),
            std::pair(DType::bf16, 8e-3)})
        check_frozen(rank, type, layout, tolerance);
  });
}

TEST_CASE("where no rank has samples gradients are written as 0", "[places]") {
  run_on(each_place(), 3, "no samples", [](Rank& rank) {
    SyncBatchNorm layer = alone_layer(rank, {.name = "bn", .type = DType::f64});
    for (const bool with_dx : {true, false}) {
      Gradients gradients(rank, alone_channels);
      layer.forward({}, {});
      const BatchNormPass pass = layer.take_pass();
      if (with_dx)
        layer.backward(pass, {}, {}, {}, gradients.here());
      else
        layer.backward_parameters(pass, {}, {}, gradients.here());
      expect(gradients.are(Numbers(alone_channels), Numbers(alone_channels)), "gradients");
    }
    // On a GPU the batch is counted until the sums are checked, later.
    expect(rank.on || layer.batches() == 0, "batches");
  });
}

}  // namespace
}  // namespace rondo::testing
