// SPDX-License-Identifier: Apache-2.0
//
// Backward passes: x must be that of the forward pass, and gradients may have a mean far from 0.
#include <rondo/error.h>
#include <utility>

#include "bn/reference.h"
#include "catch.h"

namespace rondo::testing {
namespace {

Setup ranks(int size) {
  Setup setup;
  setup.size = size;
  return setup;
}

std::string refusal_of(SyncBatchNorm& layer, const Activations& x, const Activations& dy) {
  try {
    layer.begin_backward(x, dy);
  } catch (const Error& error) {
    expect(error.code() == Errc::invalid_argument, error.what());
    return error.what();
  }
  return "nothing was noticed";
}

TEST_CASE("backward with the x of another forward pass is refused") {
  // x has one element, some, and more than are compared.
  for (const std::size_t spatial : {1, 50, 40'000}) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      CHECK_NOTHROW(run_communicators(ranks(2), "another x", [&](Communicator& c, int rank) {
        constexpr std::size_t channels = 2;
        const auto first = static_cast<std::size_t>(rank);
        const auto tensor = [&](std::uint64_t seed) {
          return Tensor(type, TensorLayout::nchw, draw_batch(2, channels, spatial, seed), first, 1);
        };
        Tensor one = tensor(1), two = tensor(2), out = one;
        SyncBatchNorm layer(c, channels, {.name = "bn", .type = type});
        layer.forward(one.view(), out.view());
        layer.forward(two.view(), out.view());
        const std::string message = refusal_of(layer, one.view(), out.view());
        expect(message.find(fmt::format(
                   "rank {}: batch norm layer bn: x is not what the last forward pass was "
                   "given; keep x unchanged until backward",
                   rank)) != std::string::npos,
               message);
        // The refusal changed nothing: the right x is accepted, at any address.
        Tensor elsewhere = two;
        layer.backward(elsewhere.view(), out.view(), out.view());
      }));
    }
  }
}

TEST_CASE("backward with an x whose first or last element has changed is refused") {
  const std::size_t spatial = GENERATE(1u, 1000u, 1024u, 1025u, 5000u, 40'001u);
  CHECK_NOTHROW(run_communicators(ranks(2), "an end", [&](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn"});
    std::vector<float> x(spatial, 1), y(spatial);
    x[0] = 2;
    const Activations in{x.data(), 1, spatial}, out{y.data(), 1, spatial};
    layer.forward(in, out);
    for (float* const element : {x.data(), x.data() + spatial - 1}) {
      const float was = std::exchange(*element, 3.0f);
      expect(refusal_of(layer, in, out).find("x is not what the last forward pass was given") !=
                 std::string::npos,
             "element " + std::to_string(element - x.data()));
      *element = was;
    }
    layer.backward(in, out, out);
  }));
}

TEST_CASE("backward after a forward pass in place is refused, and right with a copy of x") {
  CHECK_NOTHROW(run_communicators(ranks(2), "in place", [](Communicator& c, int rank) {
    for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      SyncBatchNorm layer(c, 3, {.name = "bn", .type = type});
      const Batch batch = draw_batch(4, 3, 700, 3);
      Tensor x(type, TensorLayout::nchw, batch, static_cast<std::size_t>(rank) * 2, 2), kept = x,
                                                                                        dy = x;
      layer.forward(x.view(), x.view());
      const std::string message = refusal_of(layer, x.view(), dy.view());
      expect(message.find("that pass wrote its output over it") != std::string::npos, message);
      layer.backward(kept.view(), dy.view(), x.view());
    }
  }));
}

TEST_CASE("an x with numbers that are none is known again") {
  CHECK_NOTHROW(run_communicators(ranks(1), "nan", [](Communicator& c, int) {
    SyncBatchNorm layer(c, 1, {.name = "bn"});
    std::vector<float> x{1, NAN, 3, -0.0F}, y(4);
    layer.forward({x.data(), 4, 1}, {y.data(), 4, 1});
    layer.backward({x.data(), 4, 1}, {y.data(), 4, 1}, {y.data(), 4, 1});
  }));
}

// dy has a mean of a thousand deviations, which must not appear in dx.
TEST_CASE("gradients with a large mean cost dx no digits") {
  constexpr std::size_t samples = 6, channels = 5, spatial = 33;
  const auto layout = GENERATE(TensorLayout::nchw, TensorLayout::nhwc);
  struct Wanted {
    DType type;
    double mean, tolerance;
  };
  for (const Wanted& row : {Wanted{DType::f32, 1000, 1e-6}, Wanted{DType::f32, 0, 1e-6},
                            Wanted{DType::f64, 1e8, 1e-7}, Wanted{DType::f64, 0, 1e-14}}) {
    const Batch x = stored(draw_batch(2 * samples, channels, spatial, 1), row.type);
    Batch dy = draw_batch(2 * samples, channels, spatial, 2);
    for (std::size_t i = 0; i < dy.size(); ++i) dy.values[i] = row.mean + normal(2, i);
    dy = stored(dy, row.type);
    const Reference reference(x, dy, Numbers(channels, 1.0), Numbers(channels), 1e-5);
    CHECK_NOTHROW(run_communicators(ranks(2), "large mean", [&](Communicator& c, int rank) {
      const std::size_t first = static_cast<std::size_t>(rank) * samples;
      SyncBatchNorm layer(c, channels, {.name = "bn", .type = row.type, .layout = layout});
      Tensor in(row.type, layout, x, first, samples),
          gradients(row.type, layout, dy, first, samples), out = in;
      layer.forward(in.view(), out.view());
      layer.backward(in.view(), gradients.view(), out.view());
      Batch got = x;
      got.values = reference.dx;
      out.unpack(got, first);
      expect_near_by_channel(got, reference.dx, row.tolerance,
                             fmt::format("dx, {}", name_of(row.type)));
    }));
  }
}

}  // namespace
}  // namespace rondo::testing
