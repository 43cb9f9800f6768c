// SPDX-License-Identifier: Apache-2.0
//
// Norms of steps with infinite gradients, and of gradients that are not in buckets.
#include <array>
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

TEST_CASE("clip() multiplies all gradients by the factor that clips them") {
  const Model model = Model::mixed();
  CHECK_NOTHROW(run_communicators({}, "clip", [&](Communicator& communicator, int rank) {
    GradientBuckets buckets(communicator, model.parameters(), {.norms = true});
    GradientBuckets whole(communicator, model.parameters());
    std::vector<double> other{3, 4};
    run_step(buckets, model, 0, rank);
    run_step(whole, model, 0, rank);
    buckets.clip(1e9);
    expect(all_bytes(buckets) == all_bytes(whole), "a large norm clips nothing");
    buckets.count_in_norm(buffer_of(std::span(other)));
    const double norm = buckets.norm(), factor = buckets.clip_factor(0.5);
    expect(norm > 5 && factor < 0.1, "the norm has all");
    buckets.clip(0.5);
    expect(buckets.norm() == norm, "norms stay");
    for (std::size_t i = 0; i < model.size(); ++i)
      for (std::size_t j = 0; j < model.count(i); ++j)
        expect(std::abs(element_of(buckets.gradient(i), j) -
                        element_of(whole.gradient(i), j) * factor) < 1e-2 * factor,
               "a gradient is clipped");
    const auto refused = [&](std::string_view part, const std::function<void()>& function) {
      expect_contains(error_of(Errc::invalid_argument, function), part);
    };
    refused("needs GradientOptions::norms", [&] { whole.clip(1); });
    refused("cannot be negative or NaN", [&] { buckets.clip(-1); });
    refused("cannot be negative or NaN", [&] { buckets.clip(std::nan("")); });
    buckets.begin_step();
    refused("clip() in step 2", [&] { buckets.clip(1); });
    for (std::size_t i = 0; i < model.size(); ++i) {
      set_element(buckets.gradient(2), 0, HUGE_VAL);
      buckets.ready(i);
    }
    buckets.finish();
    const auto before = all_bytes(buckets);
    buckets.clip(1);
    expect(!buckets.finite() && all_bytes(buckets) == before, "an infinite norm changes nothing");
  }));
}

TEST_CASE("clip() leaves alone what no rank has given, and refuses after a local step") {
  const Model model = Model::of({30, 41, 17});
  CHECK_NOTHROW(run_communicators({}, "left alone", [&](Communicator& communicator, int rank) {
    GradientBuckets buckets(communicator, model.parameters(), {.norms = true});
    for (const std::size_t unused : {0, 1, 2}) {
      run_step(buckets, model, 0, rank);
      const std::vector<std::byte> kept = bytes_of(buckets.gradient(unused));
      const std::array named{unused};
      buckets.begin_step({.unused = named});
      for (std::size_t i = 0; i < model.size(); ++i) {
        if (i == unused) continue;
        model.write(buckets.gradient(i), 1, rank, i);
        buckets.ready(i);
      }
      buckets.finish();
      buckets.clip(0);
      for (std::size_t i = 0; i < model.size(); ++i)
        expect(
            i == unused ? bytes_of(buckets.gradient(i)) == kept
                        : element_of(buckets.gradient(i), 0) == 0,
            "gradient " + std::to_string(i) + " where " + std::to_string(unused) + " is not given");
    }
    {
      const GradientBuckets::Accumulation accumulation(buckets);
      run_step(buckets, model, 2, rank);
    }
    expect_contains(error_of(Errc::invalid_argument, [&] { buckets.clip(1); }), "which was local");
    run_step(buckets, model, 3, rank);
    buckets.clip(1);
  }));
}

}  // namespace
}  // namespace rondo::testing
