// SPDX-License-Identifier: Apache-2.0
//
// When buckets start, in which order, and what a step leaves in the gradients.
#include <algorithm>
#include <latch>
#include <limits>
#include <numeric>
#include <thread>

#include "catch.h"
#include "grad/layout.h"
#include "grad/model.h"
#include "support/draw.h"

namespace rondo::testing {
namespace {

TEST_CASE("gradients become ready on several threads in any order") {
  const Model model = Model::mixed();
  const std::size_t cap = GENERATE(std::size_t{64}, std::size_t{1000}, std::size_t{1} << 20);
  run_buckets(ranks(), model, small_buckets(cap), [&](auto& buckets, auto&, int rank) {
    for (std::size_t step = 0; step < 20; ++step) {
      std::vector<std::size_t> order(model.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      Draw draw(step, static_cast<std::uint64_t>(rank));
      for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(i)]);
      buckets.begin_step();
      std::vector<std::jthread> threads;
      for (std::size_t thread = 0; thread < 4; ++thread)
        threads.emplace_back([&, thread] {
          for (std::size_t i = thread; i < order.size(); i += 4) {
            model.write(buckets.gradient(order[i]), step, rank, order[i]);
            buckets.ready(order[i]);
          }
        });
      threads.clear();
      buckets.finish();
      expect_means(buckets, model, step);
    }
  });
}

TEST_CASE("buckets start while the backward pass runs") {
  std::vector<Tensor> tensors(500, {16, DType::f32});
  const Model model(tensors);
  run_buckets(ranks(), model, small_buckets(), [&](auto& buckets, auto& c, int rank) {
    buckets.begin_step();
    const std::uint64_t before = c.statistics().operations;
    const OpOptions urgent{.priority = Priority::urgent};
    for (std::size_t i = model.size(); i-- > 0;) {
      model.write(buckets.gradient(i), 0, rank, i);
      buckets.ready(i);
      c.barrier(urgent).wait();
    }
    const std::uint64_t started = c.statistics().operations - before - model.size();
    expect(started > 400, std::to_string(started) + " of 500 buckets had started before finish()");
    buckets.finish();
    expect_means(buckets, model, 0);
    expect(buckets.statistics().size() == 500, "statistics of each bucket");
    double ready = 0;
    for (const BucketStatistics& s : buckets.statistics()) {
      expect(s.bytes == 64 && s.parameters == 1 && s.type == DType::f32, "what a bucket is");
      expect(s.ready_us >= ready && s.queued_us >= 0 && s.wire_us > 0, "the order of its times");
      expect(s.exposed_us >= 0 && s.exposed_us <= s.wire_us, "exposed is a part of what it took");
      expect(s.bus_bandwidth > 0, "bandwidth");
      ready = s.ready_us;
    }
    const StepStatistics step = buckets.step_statistics();
    double waited = 0;
    for (const BucketStatistics& s : buckets.statistics()) waited += s.exposed_us;
    expect(step.step == 1 && step.exposed_us >= waited && step.step_us >= step.exposed_us + ready,
           "a step is the time until finish() and what finish() took");
  });
}

std::vector<const void*> addresses(const GradientBuckets& buckets) {
  std::vector<const void*> all;
  for (std::size_t i = 0; i < buckets.parameter_count(); ++i)
    all.push_back(buckets.gradient(i).data);
  return all;
}

TEST_CASE("buckets start in the order that rank 0 has seen, and no gradient moves") {
  const Model model = Model::mixed();
  const bool wire = GENERATE(false, true);
  GradientOptions options = small_buckets(256);
  if (wire) options.wire = DType::bf16;
  run_each(ranks(), [&](Communicator& c, int rank) {
    std::vector<std::vector<std::size_t>> completed;  // by bucket of this step
    GradientOptions own = options;
    own.on_bucket = [&](const CompletedBucket& bucket) {
      completed.emplace_back(bucket.parameters.begin(), bucket.parameters.end());
    };
    GradientBuckets buckets(c, model.parameters(), own);
    const auto views = addresses(buckets);
    for (std::size_t step = 0; step < 4; ++step) {
      const auto before = all_bytes(buckets);
      // A rank 0 without data has seen no order and sends one in the next step.
      buckets.begin_step({.weight = step == 0 && rank == 0 ? 0.0 : 1.0});
      expect(before == all_bytes(buckets), "contents have changed in begin_step()");
      expect(addresses(buckets) == views, "a gradient has moved");
      expect(buckets.layout() == (step < 2 ? 0 : 1), "another order at another time");
      completed.clear();
      for (std::size_t i = 0; i < model.size(); ++i) {
        const std::size_t parameter = rank == 0 ? (i + 3) % model.size() : i;
        if (step == 0 && rank == 0) break;
        model.write(buckets.gradient(parameter), step, rank, parameter);
        buckets.ready(parameter);
      }
      buckets.finish();
      if (step > 0 && !wire) expect_means(buckets, model, step);
      std::vector<std::size_t> order = grad::reverse_order(model.size());
      for (std::size_t i = 0; step >= 2 && i < order.size(); ++i)
        order[i] = (i + 3) % model.size();  // as rank 0 calls ready()
      const grad::GradientLayout expected = grad::make_layout(
          model.parameters(), order, options.first_bucket_bytes, options.bucket_bytes);
      expect(completed.size() == expected.buckets.size(), "buckets");
      for (std::size_t bucket = 0; bucket < completed.size(); ++bucket)
        expect(completed[bucket] == expected.buckets[bucket].completed,
               "buckets start in the order of rank 0");
    }
  });
}

TEST_CASE("a layout in the right order stays") {
  const Model model = Model::mixed();
  run_buckets(ranks(), model, small_buckets(), [&](auto& buckets, auto& c, int rank) {
    for (std::size_t step = 0; step < 3; ++step) run_step(buckets, model, step, rank);
    expect(buckets.layout() == 0, "a layout that needs no change has been changed");
    GradientOptions fixed = small_buckets();
    fixed.rebuild = false;
    GradientBuckets others(c, model.parameters(), fixed);
    for (std::size_t step = 0; step < 3; ++step) {
      others.begin_step();
      for (std::size_t i = 0; i < model.size(); ++i) others.ready(i);
      others.finish();
    }
    expect(others.layout() == 0, "a layout that must not change has been changed");
  });
}

// Parameter 0 is unused on all ranks, parameter 1 on rank 1. Parameter 2 is used only on rank 2,
// whose weight is 0: the same as unused on all ranks.
bool is_unused(int rank, std::size_t parameter) {
  return parameter == 0 || (parameter == 1 && rank == 1) || (parameter == 2 && rank != 2);
}

void unused_step(GradientBuckets& buckets, const Model& model, std::size_t step, int rank,
                 bool find) {
  std::vector<std::size_t> unused;
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (is_unused(rank, i)) unused.push_back(i);
    // Parameter 0 must stay as it is, so each rank has another number there. The others are NaN,
    // which must not matter.
    fill(buckets.gradient(i), i == 0 ? rank + 1 : std::numeric_limits<double>::quiet_NaN());
  }
  StepOptions options{.weight = rank == 2 ? 0.0 : 2.0};
  if (!find) options.unused = unused;
  buckets.begin_step(options);
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (is_unused(rank, i)) continue;
    if (rank != 2) model.write(buckets.gradient(i), step, rank, i);
    buckets.ready(i);
  }
  buckets.finish();
}

TEST_CASE("unused gradients count as zero, and stay as they are where no rank has used them") {
  const bool find = GENERATE(false, true);
  const bool wire = GENERATE(false, true);
  const std::size_t cap = GENERATE(std::size_t{64}, std::size_t{1} << 20);
  const Model model = Model::of({40, 50, 60, 70});
  GradientOptions options = small_buckets(cap);
  options.find_unused = find;
  if (wire) options.wire = DType::bf16;
  run_buckets(ranks(), model, options, [&](auto& buckets, auto&, int rank) {
    for (std::size_t step = 0; step < 3; ++step) {
      unused_step(buckets, model, step, rank, find);
      for (std::size_t j = 0; j < 40; ++j)
        expect(element_of(buckets.gradient(0), j) == rank + 1,
               "a gradient that nobody uses has changed");
      for (std::size_t j = 0; j < 60; ++j)
        expect(std::isnan(element_of(buckets.gradient(2), j)),
               "only a rank of weight 0 has used it");
      for (std::size_t j = 0; j < 50; ++j)
        expect(element_of(buckets.gradient(1), j) == model.value(step, 0, 1, j) / 2,
               "unused on one rank");
      for (std::size_t j = 0; j < 70; ++j) {
        const double wanted = (model.value(step, 0, 3, j) + model.value(step, 1, 3, j)) / 2;
        expect(std::abs(element_of(buckets.gradient(3), j) - wanted) < (wire ? 0.02 : 1e-7),
               "used on both");
      }
      double squares = 0;
      for (const std::size_t i : {1, 3})
        for (std::size_t j = 0; j < model.count(i); ++j)
          squares += std::pow(element_of(buckets.gradient(i), j), 2);
      expect(std::abs(buckets.norm() - std::sqrt(squares)) < 1e-12, "the norm of what is used");
    }
    // If no rank takes part, all gradients become zero.
    buckets.step_without_data();
    expect(element_of(buckets.gradient(0), 0) == 0, "nobody took part");
  });
}

TEST_CASE("accumulated gradients travel once") {
  const Model model = Model::mixed();
  run_buckets(ranks(), model, small_buckets(256), [&](auto& buckets, auto& c, int rank) {
    for (std::size_t step = 0; step < 3; ++step) {
      buckets.zero();
      const std::uint64_t before = c.statistics().operations;
      {
        const GradientBuckets::Accumulation outer(buckets);
        for (int micro = 0; micro < 3; ++micro) {
          const GradientBuckets::Accumulation inner(buckets);
          buckets.begin_step();
          for (std::size_t i = 0; i < model.size(); ++i) {
            const Buffer view = buckets.gradient(i);
            for (std::size_t j = 0; j < view.count; ++j)
              set_element(view, j, element_of(view, j) + model.value(step, rank, i, j));
            buckets.ready(i);
          }
          buckets.finish();
        }
        buckets.begin_step();
        for (std::size_t i = 0; i < model.size(); ++i) buckets.ready(i);
        buckets.finish();
      }
      expect(c.statistics().operations == before, "something has travelled");
      buckets.begin_step();
      for (std::size_t i = 0; i < model.size(); ++i) buckets.ready(i);
      buckets.finish();
      expect_gradients(buckets, model, step, std::vector<double>(3, 1), 1);
    }
  });
}

TEST_CASE("callbacks come in the order of buckets, and the gradients they name are final") {
  const Model model = Model::mixed();
  const bool find_unused = GENERATE(false, true);
  run_each(ranks(), [&](Communicator& c, int rank) {
    GradientBuckets* self = nullptr;
    std::size_t step = 0, next = 0;
    std::vector<std::size_t> seen;
    GradientOptions options = small_buckets(256);
    options.find_unused = find_unused;
    options.on_bucket = [&](const CompletedBucket& completed) {
      expect(completed.bucket == next++, "another bucket");
      for (const std::size_t parameter : completed.parameters) {
        seen.push_back(parameter);
        const Buffer view = self->gradient(parameter);
        for (std::size_t j = 0; j < view.count; ++j) {
          double wanted = 0;
          for (int r = 0; r < 3; ++r) wanted += model.value(step, r, parameter, j) / 3;
          expect(std::abs(element_of(view, j) - wanted) < 0.03, "a gradient that is not final");
        }
      }
      if (step == 1 && completed.bucket == 1) throw std::runtime_error("from a callback");
    };
    GradientBuckets buckets(c, model.parameters(), options);
    self = &buckets;
    for (step = 0; step < 3; ++step) {
      next = 0;
      seen.clear();
      std::string thrown;
      try {
        run_step(buckets, model, step, rank);
      } catch (const std::runtime_error& error) {
        thrown = error.what();
      }
      // Its exception is thrown after the step has ended; it is not called for later buckets.
      expect(thrown == (step == 1 ? "from a callback" : ""), thrown);
      expect_means(buckets, model, step);
      std::sort(seen.begin(), seen.end());
      if (step != 1)
        expect(seen.size() == model.size() &&
                   std::adjacent_find(seen.begin(), seen.end()) == seen.end(),
               "each once");
    }
  });
}

TEST_CASE("gradients from elsewhere are copied, and buckets may move") {
  const Model model = Model::of({100, 0, 30});
  run_each(ranks(), [&](Communicator& c, int rank) {
    GradientBuckets first(c, model.parameters(), small_buckets());
    std::vector<float> values(100);
    const auto give = [&](GradientBuckets& buckets, std::size_t i) {
      model.write({values.data(), model.count(i), DType::f32}, 0, rank, i);
      buckets.ready(i, values.data());
    };
    first.begin_step();
    give(first, 2);
    GradientBuckets second(std::move(first));
    second.ready(1, nullptr);
    give(second, 0);
    second.finish();
    expect_means(second, model, 0);
    second.zero();
    for (const std::size_t i : {0, 2})
      for (std::size_t j = 0; j < model.count(i); ++j)
        expect(element_of(second.gradient(i), j) == 0, "zero()");
  });
}

TEST_CASE("models without gradients, and ranks alone") {
  const int size = GENERATE(1, 2);
  run_each(ranks(size), [&](Communicator& c, int rank) {
    for (const Model& model : {Model::of({}), Model::of({0, 0}), Model::of({5, 0}), Model::mixed()})
      for (const bool find_unused : {false, true}) {
        GradientOptions options = small_buckets();
        options.find_unused = find_unused;
        GradientBuckets buckets(c, model.parameters(), options);
        for (std::size_t step = 0; step < 3; ++step) run_step(buckets, model, step, rank);
        const std::vector<double> ones(static_cast<std::size_t>(size), 1);
        expect_gradients(buckets, model, 2, ones, 1.0 / size);
        buckets.step_without_data();
      }
  });
}

TEST_CASE("buckets that are destroyed in a step end it on all ranks") {
  const Model model = Model::of({5000, 5000});
  std::latch stepped(3), told(3);
  run_each(over_each(), [&](Communicator& c, int rank) {
    std::string message;
    {
      GradientBuckets buckets(c, model.parameters(), small_buckets(1024));
      run_step(buckets, model, 0, rank);
      stepped.arrive_and_wait();
      buckets.begin_step();
      for (std::size_t i = 0; rank != 1 && i < model.size(); ++i) buckets.ready(i);
      if (rank != 1) message = error_of(Errc::aborted, [&] { buckets.finish(); });
    }
    told.arrive_and_wait();
    if (rank == 1) message = error_of(Errc::aborted, [&] { c.barrier().wait(); });
    expect_contains(message,
                    "rank 1: nobody finished step 2 of gradient buckets before finish(): the "
                    "buckets were destroyed");
  });
}

}  // namespace
}  // namespace rondo::testing
