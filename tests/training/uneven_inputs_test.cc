// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include <rondo/metrics.h>
#include <rondo/uneven_inputs.h>

#include "catch.h"
#include "training/helpers.h"

namespace rondo::testing {
namespace {

TEST_CASE("ranks with different numbers of batches stop together, and none is lost") {
  const int size = GENERATE(1, 2, 4, 5);
  CHECK_NOTHROW(run_communicators(ranks(size), "uneven", [&](Communicator& c, int rank) {
    for (int epoch = 0; epoch < 3; ++epoch) {
      // Rank r has (r * 3 + epoch) % 7 batches of one sample.
      const auto batches_of = [&](int r) { return (r * 3 + epoch) % 7; };
      int left = batches_of(rank), steps = 0, most = 0;
      UnevenInputs inputs(c);
      WeightedMean seen;
      while (inputs.next(left > 0)) {
        int active = 0;
        for (int r = 0; r < size; ++r) active += batches_of(r) > steps;
        expect(inputs.active() == active, "active");
        WeightedMean step;
        if (left > 0) step.add(rank);
        reduce_metrics(c, std::span(&step, 1));
        expect(step.weight == active, "weight");
        seen.add(step.mean(), step.weight);
        left -= left > 0;
        ++steps;
      }
      double samples = 0;
      for (int r = 0; r < size; ++r) {
        most = std::max(most, batches_of(r));
        samples += batches_of(r);
      }
      expect(steps == most && left == 0 && seen.weight == samples, "steps");
      expect(inputs.active() == 0, "active at the end");
    }
  }));
}

TEST_CASE("shadows run in the order in which they were added") {
  CHECK_NOTHROW(run_communicators(ranks(2), "shadow", [](Communicator& c, int rank) {
    // Rank 1 has no batch; its shadows take part in the operations of rank 0's steps.
    UnevenInputs inputs(c);
    std::vector<float> first(3, 0.0f), second(5, 0.0f);
    const auto sum = [&c](std::vector<float>& values) {
      c.all_reduce(buffer_of(std::span(values)), buffer_of(std::span(values)), ReduceOp::sum)
          .wait();
    };
    inputs.add_shadow([&] { sum(first); });
    inputs.add_shadow([&] { sum(second); });
    int left = rank == 0 ? 3 : 0;
    while (inputs.next(left > 0)) {
      std::fill(first.begin(), first.end(), rank == 0 ? 1.0f : 0.0f);
      if (rank == 0) {
        --left;
        sum(first);
        sum(second);
      } else {
        inputs.shadow_step();
      }
      expect(first == std::vector<float>(3, 1.0f), "sum");
    }
  }));
}

TEST_CASE("next() after the end is an error on each rank, and nothing travels") {
  CHECK_NOTHROW(run_communicators(ranks(3), "after the end", [](Communicator& c, int) {
    UnevenInputs inputs(c);
    expect(!inputs.next(false), "the end");
    const std::uint64_t before = c.statistics().operations;
    for (const bool have : {false, true}) {
      const std::string message =
          error_of(Errc::invalid_argument, [&] { (void)inputs.next(have); });
      expect(message.find("make new UnevenInputs") != std::string::npos, message);
    }
    expect(c.statistics().operations == before, "operations");
    expect(UnevenInputs(c).next(true), "a new epoch");
  }));
}

TEST_CASE("a rank that has batches again after it had none is named") {
  CHECK_NOTHROW(run_communicators(ranks(3), "again", [](Communicator& c, int rank) {
    UnevenInputs inputs(c);
    expect(inputs.next(rank != 2), "first");
    const std::string message = error_of(Errc::mismatch, [&] { (void)inputs.next(true); });
    expect(
        message ==
            "uneven inputs: ranks differ: rank 2 is in call 2 of next() with a batch, although it "
            "had none; "
            "ranks 0, 1 are in call 2 of next()",
        message);
  }));
}

TEST_CASE("ranks that have called next() another number of times are named") {
  CHECK_NOTHROW(run_communicators(ranks(4), "calls", [](Communicator& c, int rank) {
    UnevenInputs inputs(c);
    for (int i = 0; i < 5; ++i) expect(inputs.next(true), "step");
    UnevenInputs anew(c);  // rank 1 has begun an epoch that the others have not
    const std::string message =
        error_of(Errc::mismatch, [&] { (void)(rank == 1 ? anew : inputs).next(true); });
    expect(message ==
               "uneven inputs: ranks differ: rank 1 is in call 1 of next(); ranks 0, 2, 3 are in "
               "call 6 of "
               "next()",
           message);
  }));
}

}  // namespace
}  // namespace rondo::testing
