// SPDX-License-Identifier: Apache-2.0
//
// Backward passes: x must be that of the forward pass, and lie in memory as it did; gradients may
// have a mean far from 0. Those without dx have no collective, and ranks that do not agree on that
// are told.
#include <limits>
#include <utility>

#include "bn/places.h"

namespace rondo::testing {
namespace {

TEST_CASE("backward with the x of another forward pass is refused") {
  // x has one element, some, and more than are compared.
  for (const std::size_t spatial : {1, 50, 40'000}) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      run_on_processor(2, "another x", [&](Communicator& c, int rank) {
        constexpr std::size_t channels = 2;
        const auto first = static_cast<std::size_t>(rank);
        const auto tensor = [&](std::uint64_t seed) {
          return Tensor(type, TensorLayout::nchw, draw_batch(2, channels, spatial, seed), first, 1);
        };
        Tensor one = tensor(1), two = tensor(2), out = one;
        SyncBatchNorm layer(c, channels, {.name = "bn", .type = type});
        layer.forward(one.view(), out.view());
        const BatchNormPass pass = layer.forward(two.view(), out.view());
        refused(
            fmt::format("rank {}: batch norm layer bn: x is not what the forward pass of step 2 "
                        "was given; keep x unchanged until backward",
                        rank),
            [&] { layer.begin_backward(pass, one.view(), out.view()); });
        // The refusal changed nothing: the right x is accepted, at any address.
        Tensor elsewhere = two;
        layer.backward(pass, elsewhere.view(), out.view(), out.view(), {});
      });
    }
  }
}

TEST_CASE("backward with an x whose first or last element has changed is refused") {
  const std::size_t spatial = GENERATE(1u, 1000u, 1024u, 1025u, 5000u, 40'001u);
  run_on_processor(2, "an end", [&](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn"});
    std::vector<float> x(spatial, 1), y(spatial);
    x[0] = 2;
    const Activations in{x.data(), 1, spatial}, out{y.data(), 1, spatial};
    const BatchNormPass pass = layer.forward(in, out);
    for (float* const element : {x.data(), x.data() + spatial - 1}) {
      const float was = std::exchange(*element, 3.0f);
      refused("x is not what the forward pass of step 1 was given",
              [&] { layer.begin_backward(pass, in, out); });
      *element = was;
    }
    layer.backward(pass, in, out, out, {});
  });
}

TEST_CASE("backward after a forward pass in place is refused, and right with a copy of x") {
  run_on_processor(2, "in place", [](Communicator& c, int rank) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      SyncBatchNorm layer(c, 3, {.name = "bn", .type = type});
      const Batch batch = draw_batch(4, 3, 700, 3);
      Tensor x(type, TensorLayout::nchw, batch, static_cast<std::size_t>(rank) * 2, 2), kept = x,
                                                                                        dy = x;
      const BatchNormPass pass = layer.forward(x.view(), x.view());
      refused("that pass wrote its output over it",
              [&] { layer.begin_backward(pass, x.view(), dy.view()); });
      layer.backward(pass, kept.view(), dy.view(), x.view(), {});
    }
  });
}

TEST_CASE("an x with NaN is known again") {
  run_on_processor(1, "nan", [](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn"});
    std::vector<float> x{1, NAN, 3, -0.0F}, y(4);
    const Activations in{x.data(), 4, 1}, out{y.data(), 4, 1};
    layer.backward(layer.forward(in, out), in, out, out, {});
  });
}

// dy has a mean of a thousand deviations, which must not appear in dx.
TEST_CASE("gradients with a large mean cost dx no digits", "[places]") {
  constexpr std::size_t samples = 6, channels = 5, spatial = 33;
  const Place place = each_place();
  const auto layout = GENERATE(TensorLayout::nchw, TensorLayout::nhwc);
  const auto [type, mean, tolerance] =
      GENERATE(table<DType, double, double>({{DType::f32, 1000, 1e-6},
                                             {DType::f32, 0, 1e-6},
                                             {DType::f64, 1e8, 1e-7},
                                             {DType::f64, 0, 1e-14}}));
  const Batch x = stored(draw_batch(2 * samples, channels, spatial, 1), type);
  Batch dy = x;
  for (std::size_t i = 0; i < dy.size(); ++i) dy.values[i] = mean + normal(2, i);
  dy = stored(dy, type);
  const Reference wanted(x, dy, Numbers(channels, 1.0), Numbers(channels), 1e-5);
  run_on(place, 2, "large mean", [&, type = type, tolerance = tolerance](Rank& rank) {
    SyncBatchNorm layer = rank.layer(channels, {.name = "bn", .type = type, .layout = layout});
    const std::size_t first = rank.number == 0 ? 0 : samples;
    Step step(rank, type, x, dy, {first, samples}, layout);
    step.forward(layer);
    step.backward(layer);
    step.dx.expect_near(wanted.dx, tolerance, fmt::format("dx, {}", name_of(type)));
  });
}

constexpr std::size_t alone_channels = 3, alone_spatial = 4;
constexpr DType alone_types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
const Numbers alone_gamma{0.5, -1.5, 2}, alone_beta{1, 0, -0.25};

Batch alone_batch(std::uint64_t seed) {
  return draw_batch(8, alone_channels, alone_spatial, seed);
}
Step alone_step(Rank& rank, DType type, Share share) {
  return {rank, type, alone_batch(1), alone_batch(2), share};
}
SyncBatchNorm alone_layer(Rank& rank, const BatchNormOptions& options) {
  SyncBatchNorm layer = rank.layer(alone_channels, options);
  rank.assign(layer.buffers().gamma, alone_gamma);
  rank.assign(layer.buffers().beta, alone_beta);
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
      const auto operations = [&] { return rank.c.statistics().operations; };
      const std::uint64_t before = operations();
      layer.backward_parameters(step.pass, step.x.view(), step.dy.view(), without.here());
      expect(operations() == before, "collectives");
      step.backward(layer, with.here());
      expect(operations() == before + 1, "one collective");
      expect(without.are(with.gamma.values(), with.beta.values()), "gradients");
      expect(rank.number != 1 || with.gamma.values() == Numbers(alone_channels), "no samples");
      // Only one of the two is wanted.
      layer.backward_parameters(step.pass, step.x.view(), step.dy.view(), {{}, half.beta.buffer()});
      expect(half.are(Numbers(alone_channels, 7.0), with.beta.values()), "half");
    }
  });
}

TEST_CASE("a rank that leaves dx out where the others do not is named in its next call") {
  run_on(Place::processor, 3, "dx differs", [](Rank& rank) {
    SyncBatchNorm first = alone_layer(rank, {.name = "bn1"}),
                  second = alone_layer(rank, {.name = "bn2"});
    const Step one = alone_step(rank, DType::f32, uneven(rank.number)),
               two = alone_step(rank, DType::f32, uneven(rank.number));
    one.forward(first);
    two.forward(second);
    refused(Errc::mismatch,
            "rank 2 at layer bn1 backward step 1 (it ran a local backward of bn2 since it last "
            "trained); ranks 0, 1 at layer bn2 backward step 1",
            [&] {
              if (rank.number == 2)
                second.backward_parameters(two.pass, two.x.view(), two.dy.view(), {});
              else
                two.backward(second);
              one.backward(first);
            });
  });
}

TEST_CASE("a rank that leaves dx out and makes no further call is named by the deadline") {
  run_on(Place::processor, 2, "dx deadline", [](Rank& rank) {
    SyncBatchNorm layer =
        alone_layer(rank, {.name = "bn", .deadline = std::chrono::milliseconds{300}});
    const Step step = alone_step(rank, DType::f32, {0, 5});
    step.forward(layer);
    if (rank.number == 1) {
      layer.backward_parameters(step.pass, step.x.view(), step.dy.view(), {});
      return wait_until_others_fail(rank.c);
    }
    const std::string message = message_of(Errc::deadline_exceeded, [&] { step.backward(layer); });
    expect_parts(message, {"bwd 1 bn", "rank 1"});
  });
}

TEST_CASE("where no rank has samples gradients are written as 0", "[places]") {
  run_on(each_place(), 3, "no samples", [](Rank& rank) {
    SyncBatchNorm layer = alone_layer(rank, {.name = "bn", .type = DType::f64});
    for (const bool with_dx : {true, false}) {
      Gradients gradients(rank, alone_channels);
      const BatchNormPass pass = layer.forward({}, {});
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

TEST_CASE("where no rank has samples a NaN of an earlier pass is no gradient", "[places]") {
  run_on(each_place(), 2, "after NaN", [](Rank& rank) {
    SyncBatchNorm layer = alone_layer(rank, {.name = "bn", .type = DType::f64});
    {
      Batch torn = alone_batch(1);
      std::ranges::fill(torn.values, std::numeric_limits<double>::quiet_NaN());
      const Step step(rank, DType::f64, torn, alone_batch(2), uneven(rank.number));
      step.forward(layer);
    }
    Gradients gradients(rank, alone_channels);
    layer.backward(layer.forward({}, {}), {}, {}, {}, gradients.here());
    expect(gradients.are(Numbers(alone_channels), Numbers(alone_channels)), "gradients");
  });
}

// Each rank has a layout of its own, which need not be that of the options.
TEST_CASE("ranks may have different layouts; all activations of a pass have one", "[places]") {
  constexpr std::size_t channels = 6;
  const Batch whole_x = draw_batch(6, channels, 5, 1), whole_dy = draw_batch(6, channels, 5, 2);
  const Reference wanted(whole_x, whole_dy, Numbers(channels, 1.0), Numbers(channels), 1e-5);
  run_on(each_place(), 2, "layouts", [&](Rank& rank) {
    constexpr TensorLayout layouts[] = {TensorLayout::nhwc, TensorLayout::nchw};
    const auto number = static_cast<std::size_t>(rank.number);
    Step step(rank, DType::f64, whole_x, whole_dy, {2 * number, 2 * number + 2}, layouts[number]);
    const auto with = [](Placed& tensor, TensorLayout layout) {
      Activations view = tensor.view();
      view.layout = layout;
      return view;
    };
    const auto mine = [&](Placed& tensor) { return with(tensor, layouts[number]); };
    const auto other = [&](Placed& tensor) { return with(tensor, layouts[1 - number]); };
    const Activations x = mine(step.x), dy = mine(step.dy), y = mine(step.y), dx = mine(step.dx);
    SyncBatchNorm layer = rank.layer(channels, {.name = "bn", .type = DType::f64});
    layer.begin_forward(x);
    refused("layer bn: y is ", [&] { layer.end_forward(other(step.y)); });
    const BatchNormPass pass = layer.end_forward(y);
    step.y.expect_near(wanted.y, 1e-12, "y");
    refused("layer bn: x is ", [&] { layer.begin_backward(pass, other(step.x), dy); });
    refused("layer bn: dy is ", [&] { layer.begin_backward(pass, x, other(step.dy)); });
    layer.begin_backward(pass, x, dy);
    refused("layer bn: dx is ", [&] { layer.end_backward(other(step.dx), {}); });
    layer.end_backward(dx, {});
    step.dx.expect_near(wanted.dx, 1e-12, "dx");
    refused("the layout of x is neither",
            [&] { layer.begin_forward(with(step.x, static_cast<TensorLayout>(7))); });
  });
}

}  // namespace
}  // namespace rondo::testing
