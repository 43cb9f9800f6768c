// SPDX-License-Identifier: Apache-2.0
//
// Activations that say how they lie in memory.
#include <cmath>

#include "bn/places.h"

namespace rondo::testing {
namespace {

constexpr std::size_t layout_channels = 6;

Activations in_layout(Tensor& tensor, TensorLayout layout) {
  Activations view = tensor.view();
  view.layout = layout;
  return view;
}

// Each rank has a layout of its own, which need not be that of the options.
TEST_CASE("ranks may have different layouts; all activations of a pass have one") {
  const Batch x = draw_batch(6, layout_channels, 5, 1), dy = draw_batch(6, layout_channels, 5, 2);
  const Reference wanted(x, dy, Numbers(layout_channels, 1.0), Numbers(layout_channels), 1e-5);
  run_on_processor(2, "layouts", [&](Communicator& c, int rank) {
    const TensorLayout mine = rank == 0 ? TensorLayout::nhwc : TensorLayout::nchw,
                       other = rank == 0 ? TensorLayout::nchw : TensorLayout::nhwc;
    const auto first = static_cast<std::size_t>(rank) * 2,
               samples = static_cast<std::size_t>(rank) * 2 + 2;
    const auto part = [&](const Batch& batch) {
      return Tensor(DType::f64, mine, batch, first, samples);
    };
    SyncBatchNorm layer(c, layout_channels, {.name = "bn", .type = DType::f64});
    Tensor in = part(x), gradient = part(dy), out = in;
    layer.begin_forward(in_layout(in, mine));
    refused("layer bn: y is ", [&] { layer.end_forward(in_layout(out, other)); });
    layer.end_forward(in_layout(out, mine));
    Batch got = x;
    got.values = wanted.y;
    out.unpack(got, first);
    expect_near_by_channel(got, wanted.y, 1e-12, "y");
    refused("layer bn: x is ",
            [&] { layer.begin_backward(in_layout(in, other), in_layout(gradient, mine)); });
    refused("layer bn: dy is ",
            [&] { layer.begin_backward(in_layout(in, mine), in_layout(gradient, other)); });
    layer.begin_backward(in_layout(in, mine), in_layout(gradient, mine));
    refused("layer bn: dx is ", [&] { layer.end_backward(in_layout(out, other)); });
    layer.end_backward(in_layout(out, mine));
    got.values = wanted.dx;
    out.unpack(got, first);
    expect_near_by_channel(got, wanted.dx, 1e-12, "dx");
    const BatchNormPass frozen = layer.evaluate_pass(in_layout(in, mine), in_layout(out, mine));
    layer.backward(frozen, in_layout(in, mine), in_layout(gradient, mine), in_layout(out, mine),
                   {});
    for (double& value : got.values) value = 0;
    out.unpack(got, first);
    const double scale = 1 / std::sqrt(numbers(layer.running_variance())[2] + 1e-5);
    expect(
        std::abs(got.values[got.at(first, 2, 3)] - scale * dy.values[got.at(first, 2, 3)]) < 1e-12,
        "frozen");
    refused("the layout of x is neither",
            [&] { layer.begin_forward(in_layout(in, static_cast<TensorLayout>(7))); });
  });
}

}  // namespace
}  // namespace rondo::testing
