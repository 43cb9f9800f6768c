// SPDX-License-Identifier: Apache-2.0
//
// The backward pass of the network must be the derivative of its forward pass.
#include "examples/train/network.h"

#include <cmath>

#include "catch.h"
#include "support/ranks.h"

namespace train {
namespace {

double mean_loss(Network<double>& network, const Batch<double>& batch) {
  return network.forward(batch, true).loss.mean();
}

void check_gradients(rondo::Communicator& communicator, NormMode norms) {
  Network<double> network(communicator, {.channels = {3, 8, 10}, .norms = norms, .seed = 5});
  const Digits digits(Digits::Set::training, 6, 3);
  Batch<double> batch;
  for (std::size_t i = 0; i < digits.count(); ++i) batch.add(digits, i);
  const auto parameters = network.parameters();
  rondo::GradientBuckets buckets(communicator, parameters);
  buckets.begin_step();
  buckets.zero();
  network.forward(batch, true);
  network.backward(batch, 1.0 / 6, buckets);
  buckets.finish();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::size_t count = element_count(parameters[p]);
    for (std::size_t k = 0; k < count; k += 1 + count / 7) {
      double& value = static_cast<double*>(parameters[p].value)[k];
      const double kept = value, step = 1e-6;
      value = kept + step;
      const double above = mean_loss(network, batch);
      value = kept - step;
      const double below = mean_loss(network, batch);
      value = kept;
      const double measured = (above - below) / (2 * step);
      const double told = static_cast<const double*>(buckets.gradient(p).data)[k];
      rondo::testing::expect(std::abs(told - measured) < 1e-6 + 1e-4 * std::abs(measured),
                             parameters[p].name + "[" + std::to_string(k) + "]: " +
                                 std::to_string(told) + " instead of " + std::to_string(measured));
    }
  }
}

TEST_CASE("gradients are those of the loss") {
  rondo::testing::Setup setup;
  setup.size = 1;
  for (const NormMode norms : {NormMode::sync, NormMode::local, NormMode::none})
    CHECK_NOTHROW(rondo::testing::run_communicators(
        setup, "gradients",
        [&](rondo::Communicator& communicator, int) { check_gradients(communicator, norms); }));
}

}  // namespace
}  // namespace train
