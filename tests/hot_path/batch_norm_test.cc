// SPDX-License-Identifier: Apache-2.0
//
// Counts that batch norm allocates nothing from the third step of a shape on.
#include <span>
#include <vector>

#include <rondo/batch_norm.h>

#include "catch.h"
#include "hot_path/attempts.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// One layer in training and evaluation. Then one of which two passes wait at a time, with memory of
// the caller.
class Step {
 public:
  Step(Communicator& communicator, TensorLayout layout) : x_(elements), y_(elements) {
    for (std::size_t i = 0; i < elements; ++i) x_[i] = static_cast<float>(i % 101) / 7;
    for (const char* name : {"alone", "passes"})
      layers_.emplace_back(communicator, channels,
                           BatchNormOptions{.name = name, .layout = layout, .threads = 2});
  }

  void run() {
    const Activations x{x_.data(), samples, spatial}, y{y_.data(), samples, spatial};
    const BatchNormPass pass = layers_[0].forward(x, y);
    const std::span gradients(gradients_);
    layers_[0].backward(
        pass, x, x, y,
        {buffer_of(gradients.first(channels)), buffer_of(gradients.last(channels)), true});
    layers_[0].evaluate(x, y);
    run_passes(x, y);
  }

 private:
  void run_passes(const Activations& x, const Activations& y) {
    SyncBatchNorm& layer = layers_[1];
    const Buffer gamma{bound_, channels, DType::bf16},
        beta{bound_ + channels, channels, DType::f16},
        gradient{bound_ + 2 * channels, channels, DType::bf16};
    layer.bind_parameters(gamma, beta);
    layer.bind_statistics(layer.buffers().running_mean, layer.buffers().running_variance);
    const BatchNormPass first = layer.forward(x, y), second = layer.forward(x, y);
    layer.backward(second, x, x, y, {gradient, {}});
    layer.backward(first, x, x, y, {gradient, gradient, true});
    layer.backward_parameters(first, x, x, {{}, gradient});
  }

  static constexpr std::size_t samples = 4, channels = 24, spatial = 7000,
                               elements = samples * channels * spatial;
  std::vector<float> x_, y_, gradients_ = std::vector<float>(2 * channels);
  std::vector<SyncBatchNorm> layers_;
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
