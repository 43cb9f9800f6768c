// SPDX-License-Identifier: Apache-2.0
//
// Counts that batch norm allocates nothing from the third step of a shape on.
#include <vector>

#include <rondo/batch_norm.h>

#include "catch.h"
#include "hot_path/attempts.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// One layer alone, in training and evaluation, and two in one call, in training. Then one with
// passes as objects, of which two wait at a time, and with memory of the caller.
class Step {
 public:
  Step(Communicator& communicator, TensorLayout layout) : x_(elements), y_(elements) {
    for (std::size_t i = 0; i < elements; ++i) x_[i] = static_cast<float>(i % 101) / 7;
    for (const char* name : {"alone", "left", "right", "passes"})
      layers_.emplace_back(communicator, channels,
                           BatchNormOptions{.name = name, .layout = layout, .threads = 2});
    pair_[0] = &layers_[1];
    pair_[1] = &layers_[2];
  }

  void run() {
    const Activations x{x_.data(), samples, spatial}, y{y_.data(), samples, spatial};
    layers_[0].forward(x, y);
    layers_[0].backward(x, x, y);
    layers_[0].evaluate(x, y);
    // Half of the samples each.
    const std::size_t half = samples / 2;
    const Activations ins[] = {{x_.data(), half, spatial},
                               {x_.data() + elements / 2, half, spatial}};
    const Activations outs[] = {{y_.data(), half, spatial},
                                {y_.data() + elements / 2, half, spatial}};
    SyncBatchNorm::begin_forward(pair_, ins);
    SyncBatchNorm::end_forward(pair_, outs);
    SyncBatchNorm::begin_backward(pair_, ins, ins);
    SyncBatchNorm::end_backward(pair_, outs);
    run_passes(x, y);
  }

 private:
  void run_passes(const Activations& x, const Activations& y) {
    SyncBatchNorm& layer = layers_[3];
    const Buffer gamma{bound_, channels, DType::bf16},
        beta{bound_ + channels, channels, DType::f16},
        gradient{bound_ + 2 * channels, channels, DType::bf16};
    layer.bind_parameters(gamma, beta);
    layer.bind_statistics(layer.running_mean(), layer.running_variance());
    layer.forward(x, y);
    const BatchNormPass first = layer.take_pass();
    layer.forward(x, y);
    const BatchNormPass second = layer.take_pass(), frozen = layer.evaluate_pass(x, y);
    layer.backward(second, x, x, y, {gradient, {}});
    layer.backward(first, x, x, y, {gradient, gradient, true});
    layer.backward_parameters(first, x, x, {{}, gradient});
    layer.backward(frozen, x, x, y, {gradient, gradient, true});
  }

  static constexpr std::size_t samples = 4, channels = 24, spatial = 7000,
                               elements = samples * channels * spatial;
  std::vector<float> x_, y_;
  std::vector<SyncBatchNorm> layers_;
  SyncBatchNorm* pair_[2] = {};
  std::uint16_t bound_[3 * channels] = {};
};

}  // namespace

TEST_CASE("batch norm allocates nothing from its third step on") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const TensorLayout layout = GENERATE(TensorLayout::nchw, TensorLayout::nhwc);
  constexpr int size = 3;
  Attempts attempts(size);
  Setup setup;
  setup.over = over;
  setup.size = size;
  run_communicators(setup, "batch norm", [&](Communicator& c, int) {
    Step step(c, layout);
    step.run();
    step.run();
    attempts.run(c.rank(), 20, [&] { step.run(); });
  });
  INFO(name_of(over));
  CHECK(attempts.least() == 0);
}

}  // namespace rondo::testing
