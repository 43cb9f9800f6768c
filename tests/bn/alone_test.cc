// SPDX-License-Identifier: Apache-2.0
//
// Backward passes without a collective: without dx, with frozen statistics, or with those of this
// rank's batch. And what happens if ranks do not agree on that.
#include <algorithm>
#include <cmath>

#include <rondo/error.h>

#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

constexpr std::size_t alone_channels = 3, alone_spatial = 4, alone_total = 8;
constexpr int alone_size = 3;
constexpr std::size_t alone_samples[alone_size] = {5, 0, 3}, alone_first[alone_size] = {0, 5, 5};

Setup alone_ranks(int size = alone_size) {
  Setup setup;
  setup.size = size;
  return setup;
}

const Numbers alone_gamma{0.5, -1.5, 2}, alone_beta{1, 0, -0.25};

// One rank's part of a step, and its gradients.
struct Alone {
  Alone(int rank, DType type, TensorLayout layout = TensorLayout::nchw)
      : Alone(type, layout, alone_first[rank], alone_samples[rank]) {}
  Alone(DType type, TensorLayout layout, std::size_t first, std::size_t samples)
      : x(type, layout, draw_batch(alone_total, alone_channels, alone_spatial, 1), first, samples),
        dy(type, layout, draw_batch(alone_total, alone_channels, alone_spatial, 2), first, samples),
        y(x),
        dx(x),
        gamma(alone_channels, 7.0),
        beta(gamma) {}
  BatchNormGradients gradients() {
    return {buffer_of(std::span(gamma)), buffer_of(std::span(beta))};
  }
  Tensor x, dy, y, dx;
  Numbers gamma, beta;
};

SyncBatchNorm alone_layer(Communicator& c, BatchNormOptions options) {
  SyncBatchNorm layer(c, alone_channels, std::move(options));
  if (layer.gamma().count > 0) assign(layer.gamma(), alone_gamma);
  if (layer.beta().count > 0) assign(layer.beta(), alone_beta);
  return layer;
}

TEST_CASE("backward without dx has the gradients of parameters and no collective") {
  CHECK_NOTHROW(run_communicators(alone_ranks(), "no dx", [](Communicator& c, int rank) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      SyncBatchNorm layer = alone_layer(c, {.name = "bn", .type = type});
      Alone with(rank, type), without(rank, type);
      layer.forward(with.x.view(), with.y.view());
      const BatchNormPass pass = layer.take_pass();
      const std::uint64_t before = c.statistics().operations;
      layer.backward_parameters(pass, without.x.view(), without.dy.view(), without.gradients());
      expect(c.statistics().operations == before, "collectives");
      layer.backward(pass, with.x.view(), with.dy.view(), with.dx.view(), with.gradients());
      expect(c.statistics().operations == before + 1, "one collective");
      expect(with.gamma == without.gamma && with.beta == without.beta, "gradients");
      expect(rank != 1 || with.gamma == Numbers(alone_channels), "no samples");
      // Only one of the two is wanted.
      Alone half(rank, type);
      layer.backward_parameters(pass, half.x.view(), half.dy.view(),
                                {{}, buffer_of(std::span(half.beta))});
      expect(half.beta == with.beta && half.gamma == Numbers(alone_channels, 7.0), "half");
    }
  }));
}

TEST_CASE("a rank that leaves dx out where the others do not is named in its next call") {
  CHECK_NOTHROW(run_communicators(alone_ranks(), "dx differs", [](Communicator& c, int rank) {
    SyncBatchNorm first = alone_layer(c, {.name = "bn1"}), second = alone_layer(c, {.name = "bn2"});
    Alone mine(rank, DType::f32);
    first.forward(mine.x.view(), mine.y.view());
    second.forward(mine.x.view(), mine.y.view());
    const BatchNormPass one = first.take_pass(), two = second.take_pass();
    std::string message;
    try {
      if (rank == 2)
        second.backward_parameters(two, mine.x.view(), mine.dy.view(), mine.gradients());
      else
        second.backward(two, mine.x.view(), mine.dy.view(), mine.dx.view(), mine.gradients());
      first.backward(one, mine.x.view(), mine.dy.view(), mine.dx.view(), mine.gradients());
    } catch (const Error& error) {
      expect(error.code() == Errc::mismatch, error.what());
      message = error.what();
    }
    expect(message.find("rank 2 at layer bn1 backward step 1 (it ran a local backward of bn2 since "
                        "it last trained); ranks 0, 1 at layer bn2 backward step 1") !=
               std::string::npos,
           message);
  }));
}

TEST_CASE("a rank that leaves dx out and makes no further call is named by the deadline") {
  CHECK_NOTHROW(run_communicators(alone_ranks(2), "dx deadline", [](Communicator& c, int rank) {
    SyncBatchNorm layer =
        alone_layer(c, {.name = "bn", .deadline = std::chrono::milliseconds{300}});
    Alone mine(0, DType::f32);
    layer.forward(mine.x.view(), mine.y.view());
    const BatchNormPass pass = layer.take_pass();
    if (rank == 1) {
      layer.backward_parameters(pass, mine.x.view(), mine.dy.view(), {});
      // This rank waits here until the other has given up.
      std::byte done{};
      try {
        c.broadcast({&done, 1, DType::u8}, {&done, 1, DType::u8}, 0).wait();
      } catch (const Error&) {
      }
      return;
    }
    std::string message;
    try {
      layer.backward(pass, mine.x.view(), mine.dy.view(), mine.dx.view(), {});
    } catch (const Error& error) {
      message = error.what();
    }
    expect(message.find("bwd 1 bn") != std::string::npos &&
               message.find("rank 1") != std::string::npos,
           message);
  }));
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
  CHECK_NOTHROW(run_communicators(alone_ranks(2), "evaluation", [&](Communicator& c, int rank) {
    SyncBatchNorm layer =
        alone_layer(c, {.name = "bn", .type = DType::f64, .track_running = tracks});
    Numbers mean{-1, 0.5, 30}, variance{0.5, 2, 4}, gamma = alone_gamma, beta = alone_beta;
    layer.bind_statistics(buffer_of(std::span(mean)), buffer_of(std::span(variance)));
    layer.bind_parameters(buffer_of(std::span(gamma)), buffer_of(std::span(beta)));
    if (rank == 1) return;  // evaluation needs no other rank
    const Batch x = draw_batch(4, alone_channels, 2, 3), w = draw_batch(4, alone_channels, 2, 4);
    Tensor in(DType::f64, TensorLayout::nchw, x, 0, 4), dy(DType::f64, TensorLayout::nchw, w, 0, 4),
        y = in, dx = in;
    Numbers dgamma(alone_channels), dbeta(alone_channels);
    const BatchNormPass pass = layer.evaluate_pass(in.view(), y.view());
    layer.backward(pass, in.view(), dy.view(), dx.view(),
                   {buffer_of(std::span(dgamma)), buffer_of(std::span(dbeta))});
    // dx does not depend on which gradients are wanted.
    const BatchNormPass second = layer.evaluate_pass(in.view(), y.view());
    Tensor other = dx, same = dx;
    layer.backward(second, in.view(), in.view(), other.view(), {});
    layer.backward(pass, in.view(), dy.view(), same.view(), {});
    expect(same.bytes() == dx.bytes() && other.bytes() != dx.bytes(), "dx alone");
    constexpr double h = 1e-5;
    const auto slope = [&](double& value) {
      const double was = value;
      value = was + h;
      const double up = evaluated_loss(layer, x, w);
      value = was - h;
      const double down = evaluated_loss(layer, x, w);
      value = was;
      return (up - down) / (2 * h);
    };
    Batch derivative = x, moved = x;
    dx.unpack(derivative, 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      moved.values[i] = x.values[i] + h;
      const double up = evaluated_loss(layer, moved, w);
      moved.values[i] = x.values[i] - h;
      const double wanted = (up - evaluated_loss(layer, moved, w)) / (2 * h);
      moved.values[i] = x.values[i];
      expect(std::abs(wanted - derivative.values[i]) < 1e-7, fmt::format("dx {}", i));
    }
    for (std::size_t i = 0; i < alone_channels; ++i) {
      expect(std::abs(slope(gamma[i]) - dgamma[i]) < 1e-7, fmt::format("dgamma {}", i));
      expect(std::abs(slope(beta[i]) - dbeta[i]) < 1e-7, fmt::format("dbeta {}", i));
    }
  }));
}

TEST_CASE("frozen statistics in every type and layout; a NaN in x stays out of dx") {
  CHECK_NOTHROW(run_communicators(alone_ranks(), "frozen", [](Communicator& c, int rank) {
    for (const TensorLayout layout : {TensorLayout::nchw, TensorLayout::nhwc}) {
      for (const auto& [type, tolerance] :
           {std::pair(DType::f64, 1e-14), std::pair(DType::f32, 1e-6), std::pair(DType::f16, 1e-3),
            std::pair(DType::bf16, 8e-3)}) {
        SyncBatchNorm layer = alone_layer(c, {.name = "bn", .type = type, .layout = layout});
        const Numbers variance{0.5, 2, 4};
        assign(layer.running_variance(), variance);
        const Batch x = draw_batch(alone_total, alone_channels, alone_spatial, 1),
                    dy = stored(draw_batch(alone_total, alone_channels, alone_spatial, 2), type);
        const std::size_t first = alone_first[rank], samples = alone_samples[rank];
        Tensor in(type, layout, x, first, samples), gradient(type, layout, dy, first, samples),
            out = in;
        if (samples > 0 && type == DType::f64) static_cast<double*>(in.view().data)[0] = NAN;
        if (samples > 0 && type == DType::f32) static_cast<float*>(in.view().data)[0] = NAN;
        const std::uint64_t before = c.statistics().operations;
        const BatchNormPass pass = layer.evaluate_pass(in.view(), out.view());
        layer.backward(pass, in.view(), gradient.view(), out.view(), {});
        expect(c.statistics().operations == before, "collectives");
        Batch wanted = dy;
        for (std::size_t i = 0; i < dy.size(); ++i) {
          const std::size_t channel = i / alone_spatial % alone_channels;
          wanted.values[i] *= alone_gamma[channel] / std::sqrt(variance[channel] + 1e-5);
        }
        Batch got = wanted;
        out.unpack(got, first);
        expect_near_by_channel(got, wanted.values, tolerance, std::string(name_of(type)));
        expect(layer.batches() == 0 && numbers(layer.running_variance()) == variance, "frozen");
        // Gradients of parameters alone, and of a rank without samples.
        Alone mine(type, layout, first, 0);
        const BatchNormPass none = layer.evaluate_pass(mine.x.view(), mine.y.view());
        layer.backward_parameters(none, mine.x.view(), mine.dy.view(), mine.gradients());
        expect(mine.gamma == Numbers(alone_channels) && mine.beta == mine.gamma, "no samples");
      }
    }
  }));
}

TEST_CASE("where no rank has samples gradients are written as 0") {
  CHECK_NOTHROW(run_communicators(alone_ranks(), "no samples", [](Communicator& c, int) {
    SyncBatchNorm layer = alone_layer(c, {.name = "bn", .type = DType::f64});
    for (const bool with_dx : {true, false}) {
      Alone mine(DType::f64, TensorLayout::nchw, 0, 0);
      layer.forward({}, {});
      const BatchNormPass pass = layer.take_pass();
      if (with_dx)
        layer.backward(pass, {}, {}, {}, mine.gradients());
      else
        layer.backward_parameters(pass, {}, {}, mine.gradients());
      expect(mine.gamma == Numbers(alone_channels) && mine.beta == mine.gamma, "gradients");
    }
    expect(layer.batches() == 0, "batches");
  }));
}

}  // namespace
}  // namespace rondo::testing
