// SPDX-License-Identifier: Apache-2.0
//
// Norms of steps with infinite and with unused gradients, and clipping by them.
#include <array>
#include <cmath>
#include <limits>

#include "catch.h"
#include "grad/trainer.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

// Only one rank has the infinite element. With a wire type, an overflow may cause it. On a GPU the
// host asks without waiting for anything first.
TEST_CASE("a gradient that is infinite or NaN on one rank is found on all, and clip() leaves it",
          "[devices]") {
  const double bad = GENERATE(HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN());
  const auto [where, element] =
      GENERATE(table<std::size_t, std::size_t>({{0, 150}, {1, 8}, {2, 64}, {4, 4100}, {5, 32}}));
  const bool wire = GENERATE(false, true);
  const Device device = GENERATE(from_range(devices()));
  // On a GPU the smaller sets run a third of the rows.
  const std::uint64_t number = 6 * where + (wire ? 3 : 0) + (std::isnan(bad) ? 2 : bad < 0 ? 1 : 0);
  if (device == Device::gpu && !drawn(number, std::max(effort(), 33))) return;
  INFO("row " << number << " with RONDO_TEST_SEED=" << test_seed());
  const Model model({{300},
                     {17, DType::f64},
                     {129, DType::f16},
                     {0},
                     {5000},
                     {64, DType::bf16},
                     {250, DType::f16}});
  GradientOptions options = small_buckets(1024);
  if (wire) options.wire = DType::f16;
  run_each(ranks(), [&, where = where, element = element](Communicator& c, int rank) {
    Trainer trainer(c, device, model, options);
    for (std::size_t step = 0; step < 4; ++step) {
      trainer.begin();
      for (std::size_t i = model.size(); i-- > 0;) {
        Bytes gradient = model.gradient(step, rank, i);
        if (step == 1 && rank == 2 && i == where)
          set_element(model.view(gradient, i), element, bad);
        trainer.give(i, gradient);
      }
      trainer.finish();
      trainer.clip(1e-3);
      expect(trainer.buckets.finite() == (step != 1), "finite() in step " + std::to_string(step));
      if (step != 1)
        expect(trainer.buckets.clip_factor(1e-3) > 0 && std::isfinite(trainer.buckets.norm()),
               "a norm");
      Bytes bytes = trainer.read(where);
      const Buffer values = model.view(bytes, where);
      double largest = 0;
      for (std::size_t j = 0; j < values.count; ++j)
        if (j != element) largest = std::max(largest, std::abs(element_of(values, j)));
      expect(std::isfinite(element_of(values, element)) == (step != 1), "the infinite one");
      expect(step == 1 ? std::isfinite(largest) && largest > 1e-2 : largest <= 1e-3, "clipped");
    }
  });
}

TEST_CASE("clip() multiplies all gradients by the factor that clips them") {
  const Model model = Model::mixed();
  run_buckets(ranks(2), model, {}, [&](auto& buckets, auto& c, int rank) {
    GradientBuckets whole(c, model.parameters());
    run_step(buckets, model, 0, rank);
    run_step(whole, model, 0, rank);
    buckets.clip(1e9);
    expect(all_bytes(buckets) == all_bytes(whole), "a large norm clips nothing");
    const double norm = buckets.norm(), factor = buckets.clip_factor(norm / 20);
    expect(norm > 0 && std::abs(factor - 0.05) < 1e-5, "the factor");
    buckets.clip(norm / 20);
    expect(buckets.norm() == norm, "norms stay");
    for (std::size_t i = 0; i < model.size(); ++i)
      for (std::size_t j = 0; j < model.count(i); ++j)
        expect(std::abs(element_of(buckets.gradient(i), j) -
                        element_of(whole.gradient(i), j) * factor) < 1e-2 * factor,
               "a gradient is clipped");
    expect_refused([&] { buckets.clip(-1); }, "cannot be negative or NaN");
    expect_refused([&] { buckets.clip(std::nan("")); }, "cannot be negative or NaN");
    buckets.begin_step();
    expect_refused([&] { buckets.clip(1); }, "clip() in step 2: call it after finish()");
    expect_refused([&] { (void)buckets.norm(); }, "norm() in step 2");
    for (std::size_t i = 0; i < model.size(); ++i) {
      set_element(buckets.gradient(2), 0, HUGE_VAL);
      buckets.ready(i);
    }
    buckets.finish();
    const auto before = all_bytes(buckets);
    buckets.clip(1);
    expect(!buckets.finite() && all_bytes(buckets) == before, "an infinite norm changes nothing");
  });
}

TEST_CASE("clip() leaves alone what no rank has given, and refuses after a local step") {
  const Model model = Model::of({30, 41, 17});
  run_buckets(ranks(2), model, {}, [&](auto& buckets, auto&, int rank) {
    for (const std::size_t unused : {0, 1, 2}) {
      run_step(buckets, model, 0, rank);
      const Bytes kept = bytes_of(buckets.gradient(unused));
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
    expect_refused([&] { buckets.clip(1); }, "clip() after step 7, which was local");
    expect_refused([&] { (void)buckets.finite(); }, "finite() after step 7");
    run_step(buckets, model, 3, rank);
    buckets.clip(1);
  });
}

}  // namespace
}  // namespace rondo::testing
