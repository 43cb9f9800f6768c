// SPDX-License-Identifier: Apache-2.0
//
// Unused parameters if ranks are in different situations.
#include <cmath>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

void expect_all(const Buffer& view, double value, std::string_view what) {
  for (std::size_t i = 0; i < view.count; ++i)
    expect(std::abs(element_of(view, i) - value) < 1e-6, [&] {
      return std::string(what) + " is " + std::to_string(element_of(view, i)) + ", not " +
             std::to_string(value);
    });
}

TEST_CASE("a rank without data takes part where others name unused gradients") {
  const Model model = Model::of({40, 50});
  run_buckets(ranks(), model, small_buckets(), [&](auto& buckets, auto&, int rank) {
    const std::size_t unused[] = {0};
    for (std::size_t step = 0; step < 3; ++step) {
      fill(buckets.gradient(0), rank + 1);
      fill(buckets.gradient(1), rank);
      if (rank == 1) {
        buckets.step_without_data();
      } else {
        buckets.begin_step({.unused = unused});
        buckets.ready(1);
        buckets.finish();
      }
      expect_all(buckets.gradient(0), rank + 1, "a gradient that nobody uses");
      expect_all(buckets.gradient(1), 1, "the mean of 0 and 2");
    }
  });
}

// A part of a model that only some batches reach, such as an expert: rank 0 has reached parameter 0
// in a local step.
TEST_CASE("what a local step has given travels, also when the step that travels does not use it") {
  const bool find = GENERATE(false, true);
  const bool wire = GENERATE(false, true);
  const Model model = Model::of({40, 50});
  GradientOptions options = small_buckets();
  options.find_unused = find;
  if (wire) options.wire = DType::bf16;
  run_buckets(ranks(), model, options, [&](auto& buckets, auto&, int rank) {
    const std::size_t unused[] = {0};
    const StepOptions step = find ? StepOptions{} : StepOptions{.unused = unused};
    for (int times = 0; times < 3; ++times) {
      buckets.zero();
      {
        const GradientBuckets::Accumulation accumulation(buckets);
        buckets.begin_step(rank == 0 ? StepOptions{} : step);
        if (rank == 0) {
          fill(buckets.gradient(0), 6);
          buckets.ready(0);
        }
        fill(buckets.gradient(1), 1);
        buckets.ready(1);
        buckets.finish();
      }
      buckets.begin_step(step);
      fill(buckets.gradient(1), 3);
      buckets.ready(1);
      buckets.finish();
      expect_all(buckets.gradient(0), 2, "a third of what rank 0 has given");
      expect_all(buckets.gradient(1), 3, "what all have given");
    }
    // It has travelled: the value that lies there now must not travel.
    fill(buckets.gradient(0), rank + 7);
    buckets.begin_step(step);
    buckets.ready(1);
    buckets.finish();
    expect_all(buckets.gradient(0), rank + 7, "a gradient that nobody uses");
  });
}

TEST_CASE("zero() takes back what local steps have given") {
  const Model model = Model::of({40, 50});
  GradientOptions options = small_buckets();
  options.find_unused = true;
  run_buckets(ranks(), model, options, [&](auto& buckets, auto&, int rank) {
    {
      const GradientBuckets::Accumulation accumulation(buckets);
      buckets.begin_step();
      buckets.ready(0);
      buckets.ready(1);
      buckets.finish();
    }
    buckets.zero();
    fill(buckets.gradient(0), rank + 7);
    buckets.begin_step();
    buckets.ready(1);
    buckets.finish();
    expect_all(buckets.gradient(0), rank + 7, "a gradient that nobody uses");
  });
}

}  // namespace
}  // namespace rondo::testing
