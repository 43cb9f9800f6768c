// SPDX-License-Identifier: Apache-2.0
//
// An exception that leaves a step ends it on all ranks at once, in every phase. The throwing rank's
// communicator outlives the step, so the others do not learn of it from a rank that left. The
// deadline is too long to wait for.
#include <latch>
#include <optional>
#include <stdexcept>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

constexpr int size = 3;
constexpr OpOptions urgent{.priority = Priority::urgent};

Setup settings() {
  Setup setup = over_each();
  setup.options.deadline = std::chrono::minutes{10};  // the test itself ends before
  return setup;
}

using Body = std::function<void(GradientBuckets&, Communicator&, int)>;

// Runs body on all ranks. The buckets are destroyed when it throws. Rank 1 must throw "no more
// batches"; the others must get an Error that says who left and `said`.
void check_told(const Setup& setup, const std::string& said, const Body& body) {
  const Model model(std::vector<Tensor>(20, {16, DType::f32}));
  std::latch told(size);
  run_each(setup, [&](Communicator& c, int rank) {
    std::string message = "no error";
    try {
      GradientBuckets buckets(c, model.parameters(), small_buckets());
      c.barrier(urgent).wait();  // all ranks have left the constructor
      body(buckets, c, rank);
    } catch (const std::exception& error) {
      message = error.what();
    }
    told.arrive_and_wait();
    if (rank == 1) return expect(message == "no more batches", message);
    expect_contains(message,
                    "rank 1 called abort: rank 1: an exception left step 1 of gradient buckets");
    expect_contains(message, said);
  });
}

TEST_CASE("an exception in any phase of a step") {
  enum class Phase { before_the_others, no_bucket_under_way, between_buckets, local };
  const Phase phase = GENERATE(Phase::before_the_others, Phase::no_bucket_under_way,
                               Phase::between_buckets, Phase::local);
  check_told(settings(), "", [&](GradientBuckets& buckets, Communicator& c, int rank) {
    // Rank 1 never comes to this barrier.
    if (phase == Phase::before_the_others && rank != 1) c.barrier(urgent).wait();
    std::optional<GradientBuckets::Accumulation> accumulation;
    if (phase == Phase::local) accumulation.emplace(buckets);
    buckets.begin_step();
    if (phase == Phase::between_buckets && rank == 1)
      for (std::size_t i = buckets.parameter_count(); i-- > 10;) buckets.ready(i);
    if (rank == 1) throw std::runtime_error("no more batches");
    all_ready(buckets);
    buckets.finish();
    if (phase != Phase::local) return;
    accumulation.reset();
    buckets.begin_step();
    all_ready(buckets);
    buckets.finish();
  });
}

TEST_CASE("step() tells all ranks what the exception says") {
  const bool begun = GENERATE(false, true);
  check_told(settings(), "before finish(): no more batches", [&](auto& buckets, auto& c, int rank) {
    if (!begun && rank != 1) c.barrier(urgent).wait();
    buckets.step({}, [&] {
      if (rank == 1) throw std::runtime_error("no more batches");
      all_ready(buckets);
    });
  });
}

// Like a training loop that catches, reports and continues.
TEST_CASE("after an exception in step() the buckets say so from then on") {
  const Model model = Model::of({30, 40});
  std::latch stepped(size), told(size);
  run_buckets(settings(), model, {}, [&](auto& buckets, auto&, int rank) {
    run_step(buckets, model, 0, rank);
    stepped.arrive_and_wait();  // all have left step 1
    const std::string text =
        "rank 1: an exception left step 2 of gradient buckets before finish(): batch 7 is torn";
    std::string message = "no error";
    try {
      buckets.step({}, [&] {
        if (rank == 1) throw std::runtime_error("batch 7 is torn");
        all_ready(buckets);
      });
    } catch (const std::exception& error) {
      message = error.what();
    }
    told.arrive_and_wait();
    expect_contains(message, rank == 1 ? "batch 7 is torn" : text);
    expect_contains(error_of(Errc::aborted, [&] { buckets.begin_step(); }), text);
    expect_contains(error_of(Errc::aborted, [&] { buckets.zero(); }), text);
  });
}

// The rank with the mistake does not wait until the others begin the step: they wait for it
// elsewhere.
TEST_CASE("a mistake is told also where the others never begin the step") {
  const Model model = Model::of({30, 40});
  std::latch told(size);
  run_buckets(settings(), model, {}, [&](auto& buckets, auto& c, int rank) {
    const std::string message = message_of([&] {
      c.barrier(urgent).wait();
      if (rank != 1) c.barrier(urgent).wait();
      buckets.begin_step();
      buckets.ready(0);
      buckets.ready(0);
    });
    told.arrive_and_wait();
    expect_contains(message, "rank 1: parameter 'p0' became ready twice in step 1");
  });
}

}  // namespace
}  // namespace rondo::testing
