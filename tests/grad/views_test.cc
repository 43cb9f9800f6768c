// SPDX-License-Identifier: Apache-2.0
//
// A view of a gradient stays valid, whatever order of readiness the buckets learn.
#include <rondo/batch_norm.h>

#include <vector>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

// Parameters of a batch norm layer between others, whose gradients it writes into views that were
// taken once. Gradients become ready in another order than the reverse of their registration.
TEST_CASE("gradients of batch norm that go into views are right in every step") {
  constexpr std::size_t channels = 6, samples = 5;
  const Model model = Model::of({40, channels, channels, 30});
  const Setup setup = ranks(2, GENERATE(Over::mem, Over::shm));
  const bool find_unused = GENERATE(false, true);
  GradientOptions options = small_buckets();
  options.averaging = Averaging::sum;
  options.find_unused = find_unused;
  run_buckets(setup, model, options, [&](auto& buckets, auto& c, int rank) {
    SyncBatchNorm norm(c, channels, {.name = "bn"});
    const BatchNormGradients views{buckets.gradient(1), buckets.gradient(2), true};
    std::vector<float> x(channels * samples), y(x.size()), dy(x.size());
    for (std::size_t step = 0; step < 5; ++step) {
      for (std::size_t i = 0; i < x.size(); ++i) {
        x[i] = static_cast<float>(model.value(step, rank, 0, i));
        dy[i] = static_cast<float>(model.value(step, rank, 1, i));
      }
      buckets.begin_step();
      buckets.zero();
      const BatchNormPass pass = norm.forward({x.data(), samples}, {y.data(), samples});
      // The gradient of beta is the sum of dy, that of gamma the sum of dy * (y - beta).
      std::vector<double> sums(2 * channels);
      for (std::size_t i = 0; i < x.size(); ++i) {
        sums[i % channels] += static_cast<double>(dy[i]) * static_cast<double>(y[i]);
        sums[channels + i % channels] += static_cast<double>(dy[i]);
      }
      norm.backward(pass, {x.data(), samples}, {dy.data(), samples}, {dy.data(), samples}, views);
      for (const std::size_t parameter :
           {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{2}}) {
        if (parameter == 0 || parameter == 3)
          model.write(buckets.gradient(parameter), step, rank, parameter);
        buckets.ready(parameter);
      }
      buckets.finish();
      c.all_reduce(buffer_of(std::span(sums)), buffer_of(std::span(sums)), ReduceOp::sum).wait();
      for (std::size_t channel = 0; channel < channels; ++channel) {
        expect(std::abs(element_of(buckets.gradient(1), channel) - sums[channel]) < 1e-4,
               "the gradient of gamma in step " + std::to_string(step));
        expect(std::abs(element_of(buckets.gradient(2), channel) - sums[channels + channel]) < 1e-4,
               "the gradient of beta in step " + std::to_string(step));
      }
      for (const std::size_t parameter : {std::size_t{0}, std::size_t{3}})
        for (std::size_t j = 0; j < model.count(parameter); ++j)
          expect(
              std::abs(element_of(buckets.gradient(parameter), j) -
                       model.value(step, 0, parameter, j) - model.value(step, 1, parameter, j)) <
                  1e-5,
              [&] { return "the gradient of another parameter in step " + std::to_string(step); });
    }
    expect(buckets.layout() == 1, "no other order was learnt, so that this shows nothing");
  });
}

}  // namespace
}  // namespace rondo::testing
