// SPDX-License-Identifier: Apache-2.0
//
// In a step the buckets own the order of bulk operations on the communicator. Others are refused
// every time, without harm.
#include <optional>
#include <vector>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

void give(GradientBuckets& buckets, const Model& model, std::size_t step, int rank,
          std::size_t parameter) {
  model.write(buckets.gradient(parameter), step, rank, parameter);
  buckets.ready(parameter);
}

// Refused whether or not buckets have started, which differs between ranks.
TEST_CASE("a bulk operation in a step is refused every time, with the rule") {
  const Model model(std::vector<Tensor>(8, {16, DType::f32}));
  run_buckets(over_each(), model, small_buckets(), [&](auto& buckets, auto& c, int rank) {
    std::vector<float> own(4, 1.0f);
    const auto refused = [&](const OpOptions& how) {
      const std::string message = error_of(Errc::invalid_argument, [&] {
        c.all_reduce(buffer_of(std::span(own)), buffer_of(std::span(own)), ReduceOp::sum, how)
            .wait();
      });
      expect_contains(message,
                      "all_reduce on rank " + std::to_string(rank) + ": gradient buckets ");
      expect_contains(message,
                      "(8 parameters, first 'p0') hold the bulk operations of this communicator");
      expect_contains(message,
                      "use Priority::urgent, call this before begin_step() or after finish()");
    };
    for (std::size_t step = 0; step < 3; ++step) {
      buckets.begin_step();
      refused({});
      for (std::size_t i = model.size(); i-- > 0;) {
        give(buckets, model, step, rank, i);
        refused({.tag = "mine"});
      }
      expect_refused([&] { GradientBuckets(c, model.parameters()); }, "hold the bulk operations");
      std::vector<float> urgent(4, 1.0f);
      c.all_reduce(buffer_of(std::span(urgent)), buffer_of(std::span(urgent)), ReduceOp::sum,
                   {.priority = Priority::urgent})
          .wait();
      expect(urgent[3] == 3, "an urgent operation");
      buckets.finish();
      expect_means(buckets, model, step);
      own.assign(4, 1.0f);
      c.all_reduce(buffer_of(std::span(own)), buffer_of(std::span(own)), ReduceOp::sum).wait();
      expect(own[3] == 3, "an operation between steps");
    }
    const GradientBuckets::Accumulation local(buckets);
    buckets.begin_step();
    c.barrier().wait();  // nothing travels in a local step
    for (std::size_t i = 0; i < model.size(); ++i) buckets.ready(i);
    buckets.finish();
  });
}

TEST_CASE("steps of two gradient buckets do not interleave on one communicator, and do on two") {
  const Model model = Model::of({100, 30});
  run_each(over_each(), [&](Communicator& c, int rank) {
    std::optional<Communicator> second = c.split(0, rank);
    GradientBuckets one(c, model.parameters()), other(c, model.parameters());
    GradientBuckets apart(*second, model.parameters());
    for (std::size_t step = 0; step < 3; ++step) {
      one.begin_step();
      apart.begin_step();
      const std::string message = error_of(Errc::invalid_argument, [&] { other.begin_step(); });
      expect_contains(
          message,
          "hold the bulk operations of this communicator until their step ends: call finish()");
      for (std::size_t i = model.size(); i-- > 0;)
        for (GradientBuckets* buckets : {&one, &apart}) give(*buckets, model, step, rank, i);
      apart.finish();
      one.finish();
      expect_means(one, model, step);
      expect_means(apart, model, step);
      run_step(other, model, step + 7, rank);
      expect_means(other, model, step + 7);
    }
  });
}

// A step that fails releases the order.
TEST_CASE("after ranks have differed the communicator can be used again") {
  const Model model = Model::of({100, 30});
  run_buckets(over_each(), model, {}, [&](auto& buckets, auto& c, int rank) {
    (void)error_of(Errc::mismatch, [&] {
      run_step(buckets, model, 0, rank, {.check = static_cast<std::uint64_t>(rank)});
    });
    c.barrier().wait();
    GradientBuckets again(c, model.parameters());
    run_step(again, model, 1, rank);
    expect_means(again, model, 1);
  });
}

}  // namespace
}  // namespace rondo::testing
