// SPDX-License-Identifier: Apache-2.0
//
// A step is local or not from its beginning to its end, and a weight that would not count there is
// refused.
#include <optional>

#include "catch.h"
#include "grad/model.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

void make_ready(GradientBuckets& buckets) {
  for (std::size_t i = buckets.parameter_count(); i-- > 0;) buckets.ready(i);
}

TEST_CASE("an Accumulation lives around whole steps") {
  const Model model = Model::of({30, 40});
  CHECK_NOTHROW(run_communicators({}, "whole steps", [&](Communicator& communicator, int rank) {
    GradientBuckets buckets(communicator, model.parameters());
    buckets.begin_step();
    expect_contains(
        error_of(Errc::invalid_argument,
                 [&] { const GradientBuckets::Accumulation late(buckets); }),
        "an Accumulation was made in the middle of step 1: make it before begin_step()");
    make_ready(buckets);
    buckets.finish();
    std::optional<GradientBuckets::Accumulation> early(buckets);
    buckets.begin_step();
    make_ready(buckets);
    early.reset();
    expect_contains(error_of(Errc::invalid_argument, [&] { buckets.finish(); }),
                    "finish(): the Accumulation of step 2 was destroyed too early");
    // The refused finish() changed nothing: the step still needs its Accumulation, and a late one
    // is refused.
    expect_contains(error_of(Errc::invalid_argument,
                             [&] { const GradientBuckets::Accumulation late(buckets); }),
                    "an Accumulation was made in the middle of step 2");
    (void)rank;
  }));
}

TEST_CASE("a weight that would not count is refused") {
  const Model model = Model::of({30, 40});
  CHECK_NOTHROW(run_communicators({}, "weights", [&](Communicator& communicator, int rank) {
    GradientBuckets buckets(communicator, model.parameters(), {.averaging = Averaging::weighted});
    {
      const GradientBuckets::Accumulation accumulation(buckets);
      expect_contains(error_of(Errc::invalid_argument, [&] { buckets.begin_step({.weight = 8}); }),
                      "a local step cannot have weight 8");
      for (const double weight : {0.0, 1.0}) {
        buckets.begin_step({.weight = weight});
        make_ready(buckets);
        buckets.finish();
      }
    }
    run_step(buckets, model, 0, rank, {.weight = 8});
    const double weights[] = {8, 8};
    expect_gradients(buckets, model, 0, weights, 1.0 / 16);
  }));
}

}  // namespace
}  // namespace rondo::testing
