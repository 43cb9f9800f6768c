// SPDX-License-Identifier: Apache-2.0
//
// Mistakes: at the end of the same step every rank gets the rank and the parameter.
#include <barrier>
#include <limits>
#include <thread>

#include "catch.h"
#include "grad/trainer.h"

namespace rondo::testing {
namespace {

TEST_CASE("a gradient that never becomes ready is named on every rank, in the same step") {
  const Model model = Model::mixed();
  const bool several = GENERATE(false, true);
  const std::string text = std::string("rank 2: parameter 'p3'") +
                           (several ? " (and 2 more)" : "") +
                           " never became ready in step 2: mark it unused, or set find_unused";
  run_buckets(over_each(), model, small_buckets(256), [&](auto& buckets, auto&, int rank) {
    run_step(buckets, model, 0, rank);
    buckets.begin_step();
    for (std::size_t i = model.size(); i-- > 0;)
      if (rank != 2 || i != 3)
        if (rank != 2 || !several || i < 5 || i > 6) buckets.ready(i);
    const std::string message = message_of([&] { buckets.finish(); });
    expect_contains(message, text);
    expect(message_of([&] { buckets.begin_step(); }) == message, "the first cause stays");
    expect(message_of([&] { buckets.ready(0); }) == message, "the first cause stays");
    expect(message_of([&] { buckets.finish(); }) == message, "the first cause stays");
    expect(message_of([&] { buckets.step_without_data(); }) == message, "the first cause stays");
  });
}

TEST_CASE("a gradient that is ready twice is named on every rank", "[devices]") {
  const Model model = Model::mixed();
  enum class Twice { in_turn, at_once, in_a_local_step };
  const Twice twice = GENERATE(Twice::in_turn, Twice::at_once, Twice::in_a_local_step);
  const Device device = GENERATE(from_range(devices()));
  run_each(over_each(), [&](Communicator& c, int rank) {
    // The others may still be in their constructor when this rank begins the first step.
    const std::string message = message_of([&] {
      GradientBuckets buckets(c, model.parameters(device_of(device, rank)), small_buckets(256));
      if (twice == Twice::in_a_local_step) {
        const GradientBuckets::Accumulation accumulation(buckets);
        buckets.begin_step();
        all_ready(buckets);
        if (rank == 1) buckets.ready(4);
        buckets.finish();
      }
      buckets.begin_step();
      for (std::size_t i = model.size(); i-- > 0;) {
        if (rank != 1 || i != 4) {
          buckets.ready(i);
        } else if (twice == Twice::at_once) {
          std::string beside, here;
          std::thread other([&] { beside = message_of([&] { buckets.ready(4); }); });
          here = message_of([&] { buckets.ready(4); });
          other.join();
          expect(beside != "no error" || here != "no error", "nobody was told");
        } else {
          buckets.ready(4);
          buckets.ready(4);
        }
      }
      buckets.finish();
    });
    expect_contains(message, "rank 1: parameter 'p4' became ready twice in step 1: ");
  });
}

TEST_CASE("an unused gradient that becomes ready is named on every rank") {
  const Model model = Model::mixed();
  run_buckets(over_each(), model, small_buckets(256), [&](auto& buckets, auto&, int rank) {
    const std::size_t unused[] = {5};
    const std::string message = message_of([&] {
      buckets.begin_step({.unused = rank == 0 ? std::span<const std::size_t>(unused)
                                              : std::span<const std::size_t>()});
      for (std::size_t i = model.size(); i-- > 0;) buckets.ready(i);
      buckets.finish();
    });
    expect_contains(message,
                    "rank 0: parameter 'p5' became ready in step 1 although it counts as unused");
  });
}

TEST_CASE("ranks in different steps, or with different checks, are told who is where") {
  const Model model = Model::mixed();
  const bool steps = GENERATE(true, false);
  run_buckets(over_each(), model, small_buckets(256), [&](auto& buckets, auto& c, int rank) {
    if (steps && rank == 1) {  // one more step, which stays local
      const GradientBuckets::Accumulation accumulation(buckets);
      run_step(buckets, model, 0, rank);
    }
    const std::string message = error_of(Errc::mismatch, [&] {
      run_step(buckets, model, 1, rank, {.check = !steps && rank == 1 ? 18U : 17U});
    });
    expect_contains(message, steps
                                 ? "gradient buckets: ranks differ: rank 1 is in step 2 with check "
                                   "0x11; ranks 0, 2 are in step 1"
                                 : "ranks differ: rank 1 is in step 1 with check 0x12; ranks 0, 2 "
                                   "are in step 1 with check 0x11");
    expect(message_of([&] { buckets.begin_step(); }) == message, "the first cause stays");
    c.barrier().wait();  // the communicator is unharmed
  });
}

// As when one rank evaluates a batch norm layer: no buckets of this step bring the ranks together.
TEST_CASE(
    "a rank whose check differs is named also where the others wait for it in an urgent "
    "operation") {
  const Model model = Model::mixed();
  run_buckets(over_each(), model, small_buckets(256), [&](auto& buckets, auto& c, int rank) {
    run_step(buckets, model, 0, rank, {.check = 1});
    const OpOptions urgent{.priority = Priority::urgent};
    const std::string message = message_of([&] {
      buckets.begin_step({.check = rank == 1 ? 2U : 1U});
      if (rank != 1) c.barrier(urgent).wait();
      for (std::size_t i = 0; i < model.size(); ++i) buckets.ready(i);
      buckets.finish();
    });
    expect_contains(message,
                    "gradient buckets: ranks differ: rank 1 is in step 2 with check 0x2; other "
                    "ranks are not");
  });
}

// Pairs of numbers that differ only in bits that are far apart.
TEST_CASE("checks and options that differ in any bit are noticed") {
  const Model model = Model::of({10});
  using Two = std::pair<std::uint64_t, std::uint64_t>;
  const Two two =
      GENERATE(Two{1, std::uint64_t{1} << 20}, Two{0, 0x100001}, Two{7, 0x7000000000000000});
  run_buckets(over_each(), model, small_buckets(256), [&](auto& buckets, auto& c, int rank) {
    const std::string message = error_of(Errc::mismatch, [&] {
      run_step(buckets, model, 0, rank, {.check = rank == 1 ? two.second : two.first});
    });
    expect_contains(message, "gradient buckets: ranks differ: rank 1 is in step 1 with check 0x");
    GradientOptions options;
    options.bucket_bytes = rank == 1 ? std::size_t{64} << 20 : 64;
    const std::string of_options =
        error_of(Errc::mismatch, [&] { GradientBuckets(c, model.parameters(), options); });
    expect_contains(of_options, "rank 1 with first_bucket_bytes 1048576, bucket_bytes 67108864, ");
  });
}

TEST_CASE("different models and options are named before the first step") {
  run_each(over_each(), [&](Communicator& c, int rank) {
    const Model model = rank == 2 ? Model::of({10, 21}) : Model::of({10, 20});
    expect_contains(error_of(Errc::mismatch, [&] { GradientBuckets(c, model.parameters()); }),
                    "'p1'");
    GradientOptions options = small_buckets(256);
    if (rank == 1) options.bucket_bytes = 1024;
    const Model same = Model::of({10});
    const std::string message =
        error_of(Errc::mismatch, [&] { GradientBuckets(c, same.parameters(), options); });
    expect_contains(message,
                    "gradient buckets: ranks differ: rank 1 with first_bucket_bytes 256, "
                    "bucket_bytes 1024, ");
    options = small_buckets(256);
    if (rank == 0) options.averaging = Averaging::sum;
    expect_contains(
        error_of(Errc::mismatch, [&] { GradientBuckets(c, same.parameters(), options); }),
        "averaging sum");
  });
}

TEST_CASE("arguments that cannot be are refused at once, and nothing has started") {
  run_each(ranks(2), [&](Communicator& c, int rank) {
    const Model model = Model::mixed();
    const auto refused = [&](const std::function<void()>& function, std::string_view part) {
      expect_refused(function, part);
    };
    const auto make = [&](const GradientOptions& options) {
      GradientBuckets(c, model.parameters(), options);
    };
    refused([&] { make({.wire = DType::f64}); }, "wire type is f64");
    refused([&] { make({.deadline = std::chrono::milliseconds{-1}}); }, "-1 ms");
    refused([&] { make({.averaging = static_cast<Averaging>(7)}); }, "averaging is 7");
    std::vector<Parameter> parameters = Model::of({3}).parameters();
    parameters[0].type = DType::i32;
    refused([&] { GradientBuckets(c, parameters); }, "'p0' is i32");
    parameters = model.parameters();
    parameters[2].device = 1;
    refused([&] { GradientBuckets(c, parameters); },
            "'p2' is on GPU 1, but 'p0' is in host memory");
    for (Parameter& each : parameters) each.device = 0;
    const auto unsupported = [&](const GradientOptions& options, std::string_view part) {
      expect_contains(error_of(Errc::unsupported, [&] { GradientBuckets(c, parameters, options); }),
                      part);
    };
    unsupported({}, "gradients are on GPU 0: ");
    GradientBuckets buckets(c, model.parameters(), small_buckets(256));
    refused([&] { buckets.finish(); }, "outside of a step");
    refused([&] { buckets.ready(0); }, "'p0' became ready outside of a step");
    refused([&] { buckets.ready(0, &model); }, "outside of a step");
    refused([&] { buckets.ready(10); }, "the model has 10");
    refused([&] { buckets.gradient(10); }, "the model has 10");
    for (const double weight :
         {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
      refused([&] { buckets.begin_step({.weight = weight}); }, "the weight is");
    const std::size_t beyond[] = {11}, twice[] = {1, 2, 1};
    refused([&] { buckets.begin_step({.unused = beyond}); }, "unused(11)");
    refused([&] { buckets.begin_step({.unused = twice}); }, "names 'p1' twice");
    run_step(buckets, model, 0, rank);
    buckets.begin_step();
    refused([&] { buckets.begin_step(); }, "step 2 has not been finished");
    refused([&] { buckets.ready(0, nullptr); }, "is null");
    for (std::size_t i = 0; i < model.size(); ++i) buckets.ready(i);
    buckets.finish();
    run_step(buckets, model, 7, rank);
    const double weights[] = {1, 1};
    expect_gradients(buckets, model, 7, weights, 0.5);
  });
}

TEST_CASE("a gradient that becomes ready when it is too late is named on every rank") {
  const Model model = Model::of({10, 20});
  run_each(over_each(2), [&](Communicator& c, int rank) {
    GradientOptions options = small_buckets(256);
    options.find_unused = true;
    GradientBuckets* self = nullptr;
    options.on_bucket = [&](const CompletedBucket&) {
      if (rank == 0) std::thread([&] { message_of([&] { self->ready(0); }); }).join();
    };
    GradientBuckets buckets(c, model.parameters(), options);
    self = &buckets;
    const std::string message = message_of([&] {
      for (int step = 0; step < 2; ++step) {
        buckets.begin_step();
        buckets.ready(1);
        buckets.finish();
      }
    });
    expect_contains(message,
                    "rank 0: parameter 'p0' became ready in step 1 although it counts as unused");
  });
}

TEST_CASE("a rank that does not come is named when the deadline has passed") {
  const Model model = Model::mixed();
  GradientOptions options = small_buckets(256);
  options.deadline = std::chrono::milliseconds{300};
  run_buckets(over_each(), model, options, [&](auto& buckets, auto& c, int rank) {
    if (rank == 1) {
      // Keeps its buckets, and what may be under way in them, until the others have given up.
      while (message_of([&] { c.barrier({.priority = Priority::urgent}).wait(); }) == "no error") {
      }
      return;
    }
    const std::string message =
        error_of(Errc::deadline_exceeded, [&] { run_step(buckets, model, 0, rank); });
    expect_contains(message, "\"gradients header\"");
    expect_contains(message, "rank 1 ");
  });
}

TEST_CASE("a rank that leaves before a step ends it on the others") {
  const Model model = Model::mixed();
  std::barrier all_done(3);  // of threads: until then a failure would end the first step too
  run_buckets(over_each(), model, small_buckets(256), [&](auto& buckets, auto&, int rank) {
    run_step(buckets, model, 0, rank);
    all_done.arrive_and_wait();
    if (rank == 2) return;
    const std::string message =
        error_of(Errc::peer_left, [&] { run_step(buckets, model, 1, rank); });
    expect_contains(message, "rank 2 has left");
  });
}

}  // namespace
}  // namespace rondo::testing
