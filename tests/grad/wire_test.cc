// SPDX-License-Identifier: Apache-2.0
//
// Gradients that travel in a shorter type.
#include <cmath>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

GradientOptions options_of(DType wire, Averaging averaging, bool feedback = false) {
  GradientOptions options = small_buckets(256);
  options.wire = wire;
  options.averaging = averaging;
  options.error_feedback = feedback;
  return options;
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
          double wanted = 0;
          for (int r = 0; r < 3; ++r) {
            const double part = averaging == Averaging::sum    ? 1
                                : averaging == Averaging::mean ? 1.0 / 3
                                                               : (r + 1) / 6.0;
            wanted += part * model.value(step, r, i, j);
          }
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

TEST_CASE("f16 does not overflow where the result does not") {
  const Averaging averaging = GENERATE(Averaging::mean, Averaging::weighted);
  const Model model = Model::of({100});
  run_buckets(
      ranks(), model, options_of(DType::f16, averaging), [&](auto& buckets, auto&, int rank) {
        buckets.begin_step({.weight = averaging == Averaging::weighted ? 1000.0 + rank : 1.0});
        for (std::size_t j = 0; j < 100; ++j) set_element(buckets.gradient(0), j, 60'000);
        buckets.ready(0);
        buckets.finish();
        for (std::size_t j = 0; j < 100; ++j)
          expect(std::abs(element_of(buckets.gradient(0), j) - 60'000) < 100, "overflow");
      });
}

TEST_CASE("a sum over f16 may be larger than f16") {
  const Model model = Model::of({100});
  run_buckets(ranks(), model, options_of(DType::f16, Averaging::sum),
              [&](auto& buckets, auto&, int) {
                buckets.begin_step();
                for (std::size_t j = 0; j < 100; ++j) set_element(buckets.gradient(0), j, 60'000);
                buckets.ready(0);
                buckets.finish();
                expect(std::abs(element_of(buckets.gradient(0), 7) - 180'000) < 300, "overflow");
              });
}

// The mean over many steps of a gradient that the wire type cannot represent: without feedback each
// step makes the same error.
double drift(bool feedback) {
  double worst = 0;
  const Model model = Model::of({64});
  run_communicators(ranks(), "feedback", [&](Communicator& c, int rank) {
    GradientBuckets buckets(c, model.parameters(),
                            options_of(DType::bf16, Averaging::mean, feedback));
    constexpr std::size_t steps = 200;
    std::vector<double> sums(64);
    const auto value = [](int r, std::size_t j) {
      return (1 + static_cast<double>(j) / 1000) * (r == 0 ? 3 : 0);
    };
    for (std::size_t step = 0; step < steps; ++step) {
      buckets.begin_step();
      for (std::size_t j = 0; j < 64; ++j) set_element(buckets.gradient(0), j, value(rank, j));
      buckets.ready(0);
      buckets.finish();
      for (std::size_t j = 0; j < 64; ++j) sums[j] += element_of(buckets.gradient(0), j);
    }
    double most = 0;
    for (std::size_t j = 0; j < 64; ++j)
      most = std::max(most, std::abs(sums[j] / steps - value(0, j) / 3));
    if (rank == 0) worst = most;
  });
  return worst;
}

TEST_CASE("error feedback gives back what rounding has taken") {
  double with = 1, without = 0;
  REQUIRE_NOTHROW(without = drift(false));
  REQUIRE_NOTHROW(with = drift(true));
  CHECK(without > 1e-3);
  CHECK(with < 1e-4);
}

TEST_CASE("a rank of weight 0 keeps what rounding has taken for its next step") {
  const Model model = Model::of({64});
  run_buckets(ranks(), model, options_of(DType::bf16, Averaging::sum, true),
              [&](auto& buckets, auto&, int rank) {
                const auto step = [&](double value, double weight) {
                  buckets.begin_step({.weight = weight});
                  for (std::size_t j = 0; j < 64; ++j) set_element(buckets.gradient(0), j, value);
                  buckets.ready(0);
                  buckets.finish();
                  return element_of(buckets.gradient(0), 5);
                };
                const double first = step(rank == 0 ? 1.003 : 0, 1);
                expect(first == 1, "rounded to bf16");
                expect(step(0, rank == 0 ? 0 : 1) == 0, "weight 0 gives nothing");
                const double kept = step(0, 1);
                expect(std::abs(kept - 0.003) < 1e-4, "what was lost comes later");
              });
}

TEST_CASE("what rounding has taken stays with its gradient when buckets start in another order") {
  const Model model = Model::of({8, 24, 40});
  run_buckets(ranks(), model, options_of(DType::bf16, Averaging::sum, true),
              [&](auto& buckets, auto&, int rank) {
                const double losses[] = {
                    0.001, 0.002, 0.003};  // of 1: less than half of what bf16 can tell there
                for (std::size_t step = 0; step < 2; ++step) {
                  buckets.begin_step();
                  for (std::size_t i = 0; i < model.size(); ++i) {
                    const Buffer view = buckets.gradient(i);
                    for (std::size_t j = 0; j < view.count; ++j)
                      set_element(view, j, step == 0 && rank == 0 ? 1 + losses[i] : 0);
                    buckets.ready(i);
                  }
                  buckets.finish();
                  expect(buckets.layout() == step, "another order at another time");
                  for (std::size_t i = 0; i < model.size(); ++i) {
                    const Buffer view = buckets.gradient(i);
                    for (std::size_t j = 0; j < view.count; ++j)
                      expect(std::abs(element_of(view, j) - (step == 0 ? 1 : losses[i])) < 1e-4,
                             "a gradient");
                  }
                }
              });
}

}  // namespace
}  // namespace rondo::testing
