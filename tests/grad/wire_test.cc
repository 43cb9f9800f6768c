// SPDX-License-Identifier: Apache-2.0
//
// Tests gradients that travel in a shorter type.
#include <cmath>

#include "catch.h"
#include "grad/trainer.h"

namespace rondo::testing {
namespace {

GradientOptions options_of(DType wire, Averaging averaging) {
  GradientOptions options = small_buckets(256);
  options.wire = wire;
  options.averaging = averaging;
  return options;
}

// Returns the average of an element over three ranks with weights 1, 2 and 3.
double average_of(const Model& model, Averaging averaging, std::size_t step, std::size_t parameter,
                  std::size_t element) {
  double sum = 0;
  for (int rank = 0; rank < 3; ++rank)
    sum += model.value(step, rank, parameter, element) * (averaging == Averaging::sum ? 1
                                                          : averaging == Averaging::mean
                                                              ? 1.0 / 3
                                                              : (rank + 1) / 6.0);
  return sum;
}

TEST_CASE("gradients of f32 travel in half the bytes, others as they are") {
  const DType wire = GENERATE(DType::f16, DType::bf16);
  const Averaging averaging = GENERATE(Averaging::mean, Averaging::sum, Averaging::weighted);
  const Model model({{300, DType::f32}, {20, DType::f64}, {77, DType::f32}});
  run_buckets(ranks(), model, options_of(wire, averaging), [&](auto& buckets, auto&, int rank) {
    for (std::size_t step = 0; step < 3; ++step) {
      run_step(buckets, model, step, rank,
               {.weight = averaging == Averaging::weighted ? rank + 1.0 : 1.0});
      const double exactness = wire == DType::f16 ? 2e-3 : 2e-2;
      for (std::size_t i = 0; i < model.size(); ++i)
        for (std::size_t j = 0; j < model.count(i); ++j) {
          const double wanted = average_of(model, averaging, step, i, j);
          const double is = element_of(buckets.gradient(i), j);
          expect(std::abs(is - wanted) < (i == 1 ? 1e-14 : 3 * exactness), "a gradient");
        }
    }
    std::size_t short_bytes = 0, whole_bytes = 0;
    for (const BucketStatistics& s : buckets.statistics()) {
      expect(s.type == wire || s.type == DType::f64, "the type that travels");
      (s.type == wire ? short_bytes : whole_bytes) += s.bytes;
    }
    expect(short_bytes == 377 * 2, "f32 travels in the wire's type");
    expect(whole_bytes == 20 * 8, "f64 travels as it is");
  });
}

TEST_CASE("f16 does not overflow where the result does not, and a sum may be larger than f16") {
  const auto [averaging, wanted, exactness] =
      GENERATE(table<Averaging, double, double>({{Averaging::mean, 60'000, 100},
                                                 {Averaging::weighted, 60'000, 100},
                                                 {Averaging::sum, 180'000, 300}}));
  const Model model = Model::of({100});
  const double weight = averaging == Averaging::weighted ? 1000 : 1;
  run_buckets(ranks(), model, options_of(DType::f16, averaging),
              [&, wanted = wanted, exactness = exactness](auto& buckets, auto&, int rank) {
                buckets.begin_step({.weight = weight == 1 ? 1 : weight + rank});
                fill(buckets.gradient(0), 60'000);
                buckets.ready(0);
                buckets.finish();
                for (std::size_t j = 0; j < 100; ++j)
                  expect(std::abs(element_of(buckets.gradient(0), j) - wanted) < exactness,
                         "overflow");
              });
}

TEST_CASE("what is infinite or NaN comes through as f16, and the steps after it are right") {
  const double bad = GENERATE(HUGE_VAL, -HUGE_VAL, std::nan(""));
  const Model model = Model::of({100, 30});
  GradientOptions options = options_of(DType::f16, Averaging::mean);
  run_buckets(ranks(), model, options, [&](auto& buckets, auto&, int rank) {
    for (std::size_t step = 0; step < 3; ++step) {
      buckets.begin_step();
      for (std::size_t i = 0; i < 2; ++i) {
        model.write(buckets.gradient(i), step, rank, i);
        if (step == 1 && rank == 1 && i == 0) set_element(buckets.gradient(i), 70, bad);
        buckets.ready(i);
      }
      buckets.finish();
      expect(buckets.finite() == (step != 1), "finite()");
      for (std::size_t i = 0; i < 2; ++i)
        for (std::size_t j = 0; j < model.count(i); ++j) {
          const double is = element_of(buckets.gradient(i), j);
          if (step == 1 && i == 0 && j == 70)
            expect(!std::isfinite(is), "it is lost");
          else
            expect(std::abs(is - average_of(model, Averaging::mean, step, i, j)) < 6e-3,
                   "a gradient");
        }
    }
  });
}

// On a GPU the host knows of it when finish() has waited, or when the next step begins.
TEST_CASE("a finite gradient that f16 cannot hold ends a step on all ranks", "[devices]") {
  const Device device = GENERATE(from_range(devices()));
  const bool on_stream = GENERATE(false, true);
  const bool norms = GENERATE(false, true);
  const Model model = Model::of({100, 30});
  GradientOptions options = options_of(DType::f16, Averaging::mean);
  run_each(ranks(), [&](Communicator& c, int rank) {
    Trainer trainer(c, device, model, options);
    std::size_t step = 0;
    const std::string message = message_of([&] {
      for (; step < 3; ++step) {
        trainer.begin();
        for (std::size_t i = 2; i-- > 0;) {
          Bytes gradient = model.gradient(step, rank, i);
          if (step == 1 && rank == 1 && i == 0) set_element(model.view(gradient, i), 70, 1e6);
          trainer.give(i, gradient);
        }
        trainer.finish(on_stream);
        trainer.settle();
        if (norms && step == 1) expect(!trainer.buckets.finite(), "it has become infinite");
      }
    });
    expect(step == 1 || (step == 2 && device == Device::gpu), "the step");
    for (const char* part :
         {"rank 1", "the gradient of 'p0' has a finite element above 65504", "travel as bf16"})
      expect_contains(message, part);
  });
}

}  // namespace
}  // namespace rondo::testing
