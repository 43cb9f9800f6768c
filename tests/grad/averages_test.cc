// SPDX-License-Identifier: Apache-2.0
//
// Gradients after finish(), compared with a plain sum.
#include <cmath>
#include <limits>
#include <map>
#include <mutex>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

struct Case {
  Averaging averaging;
  std::vector<double> weights;  // by rank
};

// Returns the factor for the sum of weights * gradients.
double factor_of(const Case& what, std::vector<double>& weights) {
  double sum = 0, active = 0;
  for (double& weight : weights) {
    sum += weight;
    active += weight > 0 ? 1 : 0;
    if (what.averaging != Averaging::weighted && weight > 0) weight = 1;
  }
  if (active == 0) return 0;
  if (what.averaging == Averaging::sum) return 1;
  return 1 / (what.averaging == Averaging::mean ? active : sum);
}

const Case cases[] = {{Averaging::mean, {1, 1, 1}},        {Averaging::mean, {1, 0, 1}},
                      {Averaging::mean, {1, 1, 1, 1}},     {Averaging::sum, {1, 1, 1}},
                      {Averaging::sum, {0, 1, 1}},         {Averaging::weighted, {5, 3, 8, 0}},
                      {Averaging::weighted, {2, 2, 2}},    {Averaging::weighted, {0, 7, 7}},
                      {Averaging::weighted, {0.25, 1e-3}}, {Averaging::weighted, {4}},
                      {Averaging::mean, {0, 0, 0}},        {Averaging::weighted, {0, 0}}};

TEST_CASE("gradients of all types are averaged as one process would") {
  const Case what = GENERATE(from_range(std::begin(cases), std::end(cases)));
  const std::size_t cap = GENERATE(std::size_t{1}, std::size_t{256}, std::size_t{1} << 20);
  const Model model = Model::mixed();
  GradientOptions options = small_buckets(cap);
  options.averaging = what.averaging;
  options.warn = [](const std::string&) {};
  run_buckets(ranks(static_cast<int>(what.weights.size())), model, options,
              [&](auto& buckets, auto&, int rank) {
                std::vector<double> weights = what.weights;
                const double factor = factor_of(what, weights);
                for (std::size_t step = 0; step < 4; ++step) {
                  run_step(buckets, model, step, rank,
                           {.weight = what.weights[static_cast<std::size_t>(rank)]});
                  expect_gradients(buckets, model, step, weights, factor);
                }
              });
}

TEST_CASE("a rank of weight 0 gives nothing, whatever lies in its gradients") {
  const Averaging averaging = GENERATE(Averaging::mean, Averaging::sum, Averaging::weighted);
  const Model model = Model::mixed();
  run_buckets(ranks(), model, {.averaging = averaging}, [&](auto& buckets, auto&, int rank) {
    for (std::size_t step = 0; step < 3; ++step) {
      buckets.begin_step({.weight = rank == 1 ? 0.0 : 4.0});
      for (std::size_t i = 0; i < model.size(); ++i) {
        const Buffer view = buckets.gradient(i);
        model.write(view, step, rank, i);
        for (std::size_t j = 0; rank == 1 && j < view.count; ++j)
          set_element(view, j, std::numeric_limits<double>::quiet_NaN());
        buckets.ready(i);
      }
      buckets.finish();
      const double weights[] = {1, 0, 1};
      expect_gradients(buckets, model, step, weights, averaging == Averaging::sum ? 1 : 0.5);
    }
  });
}

TEST_CASE("ranks without data take part in every step") {
  const Model model = Model::mixed();
  GradientOptions options = small_buckets(512);
  options.averaging = Averaging::weighted;
  run_buckets(ranks(4), model, options, [&](auto& buckets, auto&, int rank) {
    for (std::size_t step = 0; step < 6; ++step) {
      std::vector<double> weights;  // rank r has data for r + 1 steps; from step 4 on no rank has
      double sum = 0;
      for (int r = 0; r < 4; ++r)
        sum += weights.emplace_back(step <= static_cast<std::size_t>(r) ? r + 2 : 0);
      if (weights[static_cast<std::size_t>(rank)] > 0)
        run_step(buckets, model, step, rank, {.weight = weights[static_cast<std::size_t>(rank)]});
      else
        buckets.step_without_data();
      expect_gradients(buckets, model, step, weights, sum > 0 ? 1 / sum : 0);
    }
  });
}

TEST_CASE("norms are those of all gradients, with the same bits for every bucket size and rank") {
  const Model model = Model::mixed();
  Setup setup = ranks();
  setup.options.reproducible = true;
  std::map<double, int> seen;
  std::mutex mutex;
  for (const std::size_t cap : {std::size_t{64}, std::size_t{1024}, std::size_t{1} << 20}) {
    GradientOptions options = small_buckets(cap);
    run_buckets(setup, model, options, [&](auto& buckets, auto&, int rank) {
      expect(buckets.norm() == 0, "a norm before the first step");
      for (std::size_t step = 0; step < 2; ++step) run_step(buckets, model, step, rank);
      double all = 0;
      for (std::size_t i = 0; i < model.size(); ++i) {
        const Buffer view = buckets.gradient(i);
        for (std::size_t j = 0; j < view.count; ++j) all += std::pow(element_of(view, j), 2);
      }
      const double norm = std::sqrt(all);
      expect(std::abs(buckets.norm() - norm) < 1e-12 * norm, "the norm of all");
      expect(std::abs(buckets.clip_factor(norm / 4) - 0.25) < 1e-5, "a factor that clips");
      expect(buckets.clip_factor(norm * 4) == 1, "a factor that does not");
      const std::lock_guard lock(mutex);
      ++seen[buckets.norm()];
    });
  }
  CHECK(seen.size() == 1);
}

TEST_CASE("weights that differ under a plain mean give one warning") {
  const Model model = Model::of({10});
  const auto [averaging, uneven, wanted] =
      GENERATE(table<Averaging, bool, int>({{Averaging::mean, true, 1},
                                            {Averaging::mean, false, 0},
                                            {Averaging::weighted, true, 0},
                                            {Averaging::sum, true, 0}}));
  int warnings = 0;
  run_each(ranks(), [&, averaging = averaging, uneven = uneven](Communicator& c, int rank) {
    GradientOptions options;
    options.averaging = averaging;
    options.warn = [&](const std::string& text) {
      ++warnings;
      expect_contains(text, "use Averaging::weighted");
    };
    GradientBuckets buckets(c, model.parameters(), options);
    for (std::size_t step = 0; step < 3; ++step)
      run_step(buckets, model, step, rank, {.weight = uneven ? 8.0 + rank : rank == 1 ? 0.0 : 8.0});
  });
  CHECK(warnings == wanted);
}

// They differ by less than sums of weights and of their squares can show.
TEST_CASE("weights that differ in their last digits differ") {
  const Model model = Model::of({10});
  int warnings = 0;
  run_each(ranks(2), [&](Communicator& c, int rank) {
    GradientOptions options;
    options.warn = [&](const std::string&) { ++warnings; };
    GradientBuckets buckets(c, model.parameters(), options);
    run_step(buckets, model, 0, rank, {.weight = rank == 0 ? 1.0 : 1.0 + 1e-12});
  });
  CHECK(warnings == 1);
}

}  // namespace
}  // namespace rondo::testing
