// SPDX-License-Identifier: Apache-2.0
//
// Backward passes: x must be that of the forward pass, and gradients may have a mean far from 0.
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
        layer.forward(two.view(), out.view());
        refused(fmt::format("rank {}: batch norm layer bn: x is not what the last forward pass was "
                            "given; keep x unchanged until backward",
                            rank),
                [&] { layer.begin_backward(one.view(), out.view()); });
        // The refusal changed nothing: the right x is accepted, at any address.
        Tensor elsewhere = two;
        layer.backward(elsewhere.view(), out.view(), out.view());
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
    layer.forward(in, out);
    for (float* const element : {x.data(), x.data() + spatial - 1}) {
      const float was = std::exchange(*element, 3.0f);
      refused("x is not what the last forward pass was given",
              [&] { layer.begin_backward(in, out); });
      *element = was;
    }
    layer.backward(in, out, out);
  });
}

TEST_CASE("backward after a forward pass in place is refused, and right with a copy of x") {
  run_on_processor(2, "in place", [](Communicator& c, int rank) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      SyncBatchNorm layer(c, 3, {.name = "bn", .type = type});
      const Batch batch = draw_batch(4, 3, 700, 3);
      Tensor x(type, TensorLayout::nchw, batch, static_cast<std::size_t>(rank) * 2, 2), kept = x,
                                                                                        dy = x;
      layer.forward(x.view(), x.view());
      refused("that pass wrote its output over it",
              [&] { layer.begin_backward(x.view(), dy.view()); });
      layer.backward(kept.view(), dy.view(), x.view());
    }
  });
}

TEST_CASE("an x with numbers that are none is known again") {
  run_on_processor(1, "nan", [](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn"});
    std::vector<float> x{1, NAN, 3, -0.0F}, y(4);
    layer.forward({x.data(), 4, 1}, {y.data(), 4, 1});
    layer.backward({x.data(), 4, 1}, {y.data(), 4, 1}, {y.data(), 4, 1});
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

}  // namespace
}  // namespace rondo::testing
