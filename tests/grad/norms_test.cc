// SPDX-License-Identifier: Apache-2.0
//
// Norms of steps with infinite gradients, and of gradients that are not in buckets.
#include <cmath>
#include <limits>

#include "catch.h"
#include "grad/model.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// Only one rank has the infinite element. In the wire type overflow may cause it.
TEST_CASE(
    "a gradient that is infinite or NaN on one rank is found on all, and the step can be skipped") {
  const double bad = GENERATE(HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN());
  const Model model = Model::mixed();
  const std::size_t where =
      GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{6});
  const bool wire = GENERATE(false, true);
  Setup setup;
  setup.size = 3;
  CHECK_NOTHROW(run_communicators(setup, "found", [&](Communicator& communicator, int rank) {
    GradientOptions options;
    options.first_bucket_bytes = options.bucket_bytes = 256;
    options.norms = true;
    if (wire) options.wire = DType::f16;
    GradientBuckets buckets(communicator, model.parameters(), options);
    for (std::size_t step = 0; step < 4; ++step) {
      buckets.begin_step();
      for (std::size_t i = model.size(); i-- > 0;) {
        model.write(buckets.gradient(i), step, rank, i);
        if (step == 1 && rank == 2 && i == where)
          set_element(buckets.gradient(i), model.count(i) / 2, bad);
        buckets.ready(i);
      }
      buckets.finish();
      expect(buckets.finite() == (step != 1), "finite() in step " + std::to_string(step));
      if (step != 1)
        expect(buckets.clip_factor(1e-3) > 0 && std::isfinite(buckets.norm()), "a norm");
    }
  }));
}

TEST_CASE("gradients that are not in buckets count in the norm until the next step") {
  const Model model = Model::of({30, 40});
  CHECK_NOTHROW(run_communicators({}, "others", [&](Communicator& communicator, int rank) {
    GradientBuckets buckets(communicator, model.parameters(), {.norms = true});
    std::vector<float> single{3, 4};
    std::vector<double> twice{1, 2, 2};
    run_step(buckets, model, 0, rank);
    const double own = buckets.norm();
    buckets.count_in_norm(buffer_of(std::span(single)));
    buckets.count_in_norm(buffer_of(std::span(twice)));
    const double wanted = std::sqrt(own * own + 25 + 9);
    expect(std::abs(buckets.norm() - wanted) < 1e-12 * wanted, "the norm of all");
    expect(std::abs(buckets.clip_factor(wanted / 2) - 0.5) < 1e-5, "the factor of all");
    twice[1] = HUGE_VAL;
    buckets.count_in_norm(buffer_of(std::span(twice)));
    expect(!buckets.finite(), "an infinite one");
    run_step(buckets, model, 0, rank);
    expect(buckets.norm() == own, "the next step begins anew");
    std::vector<std::int32_t> wrong{1};
    expect_contains(error_of(Errc::invalid_argument,
                             [&] { buckets.count_in_norm(buffer_of(std::span(wrong))); }),
                    "gradients of type i32 have no norm");
    buckets.begin_step();
    expect_contains(error_of(Errc::invalid_argument,
                             [&] { buckets.count_in_norm(buffer_of(std::span(single))); }),
                    "count_in_norm() in step 3");
    for (std::size_t i = 0; i < model.size(); ++i) buckets.ready(i);
    buckets.finish();
    GradientBuckets none(communicator, model.parameters());
    expect_contains(
        error_of(Errc::invalid_argument, [&] { none.count_in_norm(buffer_of(std::span(single))); }),
        "needs GradientOptions::norms");
  }));
}

}  // namespace
}  // namespace rondo::testing
