// SPDX-License-Identifier: Apache-2.0
//
// Tests gradients that travel in a shorter type. As f16 they keep their digits, however small or
// large they are.
#include <cmath>

#include "catch.h"
#include "grad/model.h"

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

// ---- f16: each parameter has its own power of two ----

GradientOptions f16_options(Averaging averaging) {
  GradientOptions options = options_of(DType::f16, averaging);
  options.norms = true;
  return options;
}

// Makes one step with gradients of magnitudes[parameter]. Throws unless each average is right to
// the digits of f16.
void check_step(GradientBuckets& buckets, const Model& model, std::size_t step, int rank,
                Averaging averaging, const std::vector<double>& magnitudes) {
  const double weight = averaging == Averaging::weighted ? rank + 1 : 1;
  buckets.begin_step({.weight = weight});
  for (std::size_t i = model.size(); i-- > 0;) {
    model.write(buckets.gradient(i), step, rank, i, magnitudes[i]);
    buckets.ready(i);
  }
  buckets.finish();
  for (std::size_t i = 0; i < model.size(); ++i)
    for (std::size_t j = 0; j < model.count(i); ++j) {
      const double wanted = magnitudes[i] * average_of(model, averaging, step, i, j);
      const double is = element_of(buckets.gradient(i), j);
      expect(std::abs(is - wanted) <= 4e-3 * magnitudes[i],
             "step " + std::to_string(step) + ", parameter " + std::to_string(i) +
                 " of magnitude " + std::to_string(magnitudes[i]) + ": " + std::to_string(is) +
                 ", not " + std::to_string(wanted));
    }
  expect(buckets.finite(), "finite");
}

TEST_CASE("f16 on the wire keeps small and large gradients side by side, from the first step on") {
  const Averaging averaging = GENERATE(Averaging::mean, Averaging::sum, Averaging::weighted);
  const Model model = Model::of({100, 30, 64, 7, 300});
  const std::vector<double> magnitudes{1e-6, 3e-8, 1, 5e4, 1e-30};
  run_buckets(ranks(), model, f16_options(averaging), [&](auto& buckets, auto&, int rank) {
    for (std::size_t step = 0; step < 4; ++step)
      check_step(buckets, model, step, rank, averaging, magnitudes);
  });
}

// They grow by more than the power leaves room for, so the bucket travels again. If they shrink,
// the power changes in the next step.
TEST_CASE("gradients that grow a million times in a step are right in that step") {
  const Model model = Model::of({100, 30, 64});
  run_buckets(ranks(), model, f16_options(Averaging::mean), [&](auto& buckets, auto&, int rank) {
    std::size_t step = 0;
    for (const std::vector<double>& magnitudes :
         {std::vector<double>{1e-6, 1e-3, 1}, {1, 1e-3, 1e6}, {1e6, 1e4, 1e12}, {1e6, 1e4, 1e12}})
      check_step(buckets, model, step++, rank, Averaging::mean, magnitudes);
  });
}

TEST_CASE("an infinite gradient comes through as f16, and the steps after it are right") {
  const Model model = Model::of({100, 30});
  run_buckets(ranks(), model, f16_options(Averaging::mean), [&](auto& buckets, auto&, int rank) {
    check_step(buckets, model, 0, rank, Averaging::mean, {1e-5, 1e-5});
    buckets.begin_step();
    for (std::size_t i = 0; i < 2; ++i) {
      model.write(buckets.gradient(i), 1, rank, i, 1e-5);
      if (rank == 1 && i == 0) set_element(buckets.gradient(i), 70, HUGE_VAL);
      buckets.ready(i);
    }
    buckets.finish();
    expect(std::isinf(element_of(buckets.gradient(0), 70)) && !buckets.finite(), "infinite");
    expect(std::isfinite(element_of(buckets.gradient(0), 69)), "its neighbour");
    check_step(buckets, model, 2, rank, Averaging::mean, {1e-5, 1e-5});
  });
}

TEST_CASE("a parameter that is first used later keeps its digits then") {
  const Model model = Model::of({100, 30});
  run_buckets(ranks(), model, f16_options(Averaging::mean), [&](auto& buckets, auto&, int rank) {
    const std::size_t unused[] = {1};
    for (std::size_t step = 0; step < 2; ++step) {
      buckets.begin_step({.unused = unused});
      model.write(buckets.gradient(0), step, rank, 0);
      buckets.ready(0);
      buckets.finish();
    }
    buckets.step_without_data();
    for (std::size_t step = 2; step < 4; ++step)
      check_step(buckets, model, step, rank, Averaging::mean, {1, 3e-8});
  });
}

// Zeros give no size. After one measurement buckets start before finish() again.
TEST_CASE("a gradient that is always zero does not keep buckets from starting early") {
  const Model model = Model::of({64, 64, 64, 64});
  run_buckets(ranks(), model, f16_options(Averaging::mean), [&](auto& buckets, auto& c, int rank) {
    // A slow header may delay the buckets of some steps, but not of every step.
    double early = 0;
    for (std::size_t step = 0; step < 1000 && early == 0; ++step) {
      buckets.begin_step();
      for (std::size_t i = model.size(); i-- > 0;) {
        model.write(buckets.gradient(i), step, rank, i, i == 1 ? 0 : 1);
        c.barrier({.priority = Priority::urgent}).wait();
        buckets.ready(i);
      }
      buckets.finish();
      const BucketStatistics& first = buckets.statistics()[0];
      const StepStatistics whole = buckets.step_statistics();
      if (step > 0 && first.ready_us + first.queued_us < whole.step_us - whole.exposed_us)
        early = 1;
      const Buffer flag{&early, 1, DType::f64};
      c.all_reduce(flag, flag, ReduceOp::max).wait();
    }
    expect(early == 1, "in 1,000 steps no bucket has started before finish()");
    check_step(buckets, model, 1000, rank, Averaging::mean, {1, 3e-8, 1, 1});
  });
}

}  // namespace
}  // namespace rondo::testing
