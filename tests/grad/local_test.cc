// SPDX-License-Identifier: Apache-2.0
//
// A step is local or not from its beginning to its end, and a weight that would not count there is
// refused.
#include <barrier>
#include <optional>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

TEST_CASE("an Accumulation lives around whole steps") {
  const Model model = Model::of({30, 40});
  std::barrier all_refused(2);  // of threads: a message could be overtaken by the end
  run_buckets(ranks(2), model, {}, [&](auto& buckets, auto&, int) {
    buckets.begin_step();
    expect_refused([&] { const GradientBuckets::Accumulation late(buckets); },
                   "an Accumulation was made in the middle of step 1: make it before begin_step()");
    all_ready(buckets);
    buckets.finish();
    std::optional<GradientBuckets::Accumulation> early(buckets);
    buckets.begin_step();
    all_ready(buckets);
    early.reset();
    expect_refused([&] { buckets.finish(); },
                   "finish(): the Accumulation of step 2 was destroyed too early");
    // The refused finish() changed nothing: the step still needs its Accumulation, and a late one
    // is refused.
    expect_refused([&] { const GradientBuckets::Accumulation late(buckets); },
                   "an Accumulation was made in the middle of step 2");
    // The buckets end in the middle of a step, which ends the communicator: not before the other
    // rank is through.
    all_refused.arrive_and_wait();
  });
}

TEST_CASE("a weight that would not count is refused") {
  const Model model = Model::of({30, 40});
  run_buckets(ranks(2), model, {.averaging = Averaging::weighted},
              [&](auto& buckets, auto&, int rank) {
                {
                  const GradientBuckets::Accumulation accumulation(buckets);
                  expect_refused([&] { buckets.begin_step({.weight = 8}); },
                                 "a local step cannot have weight 8");
                  for (const double weight : {0.0, 1.0}) {
                    buckets.begin_step({.weight = weight});
                    all_ready(buckets);
                    buckets.finish();
                  }
                }
                run_step(buckets, model, 0, rank, {.weight = 8});
                const double weights[] = {8, 8};
                expect_gradients(buckets, model, 0, weights, 1.0 / 16);
              });
}

}  // namespace
}  // namespace rondo::testing
