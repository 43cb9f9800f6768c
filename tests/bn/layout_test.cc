// SPDX-License-Identifier: Apache-2.0
//
// Activations that say how they lie in memory.
#include "bn/places.h"

namespace rondo::testing {
namespace {

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
    layer.end_forward(y);
    step.y.expect_near(wanted.y, 1e-12, "y");
    refused("layer bn: x is ", [&] { layer.begin_backward(other(step.x), dy); });
    refused("layer bn: dy is ", [&] { layer.begin_backward(x, other(step.dy)); });
    layer.begin_backward(x, dy);
    refused("layer bn: dx is ", [&] { layer.end_backward(other(step.dx)); });
    layer.end_backward(dx);
    step.dx.expect_near(wanted.dx, 1e-12, "dx");
    const BatchNormPass frozen = layer.evaluate_pass(x, y);
    layer.backward(frozen, x, dy, dx, {});
    Numbers scaled = whole_dy.values;
    const Numbers variance = rank.values(layer.running_variance());
    for (std::size_t i = 0; i < scaled.size(); ++i)
      scaled[i] /= std::sqrt(variance[i / 5 % channels] + 1e-5);
    step.dx.expect_near(scaled, 1e-12, "frozen");
    refused("the layout of x is neither",
            [&] { layer.begin_forward(with(step.x, static_cast<TensorLayout>(7))); });
  });
}

}  // namespace
}  // namespace rondo::testing
