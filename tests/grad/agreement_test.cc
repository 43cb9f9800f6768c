// SPDX-License-Identifier: Apache-2.0
//
// All ranks are told what one rank alone does wrong or cannot do.
#include <stdexcept>

#include "catch.h"
#include "grad/model.h"

namespace rondo::testing {
namespace {

TEST_CASE("what one rank cannot have is refused on all, and nobody waits") {
  run_each(ranks(), [&](Communicator& c, int rank) {
    const auto refused = [&](Errc code, const std::vector<Parameter>& parameters,
                             const GradientOptions& options, std::string_view part) {
      expect_contains(error_of(code, [&] { GradientBuckets(c, parameters, options); }), part);
    };
    const std::vector<Parameter> good = Model::of({3}).parameters();
    std::vector<Parameter> bad = good;
    bad[0].type = DType::i32;
    refused(Errc::invalid_argument, rank == 1 ? bad : good, {},
            "on rank 1: gradient buckets: parameter 'p0' is i32");
    bad[0].type = DType::f32;
    bad[0].device = 99;
    refused(Errc::unsupported, rank == 2 ? bad : good, {},
            "on rank 2: gradient buckets: gradients are on GPU 99");
    GradientOptions options;
    if (rank == 0) options.wire = DType::f64;
    refused(Errc::invalid_argument, good, options,
            "on rank 0: gradient buckets: the wire type is f64");
    constexpr std::size_t quarter = std::size_t{1} << 60;
    refused(Errc::invalid_argument,
            Model::of({quarter, quarter, quarter, quarter, quarter}).parameters(), {},
            "more bytes than 64 bits can count");
    c.barrier().wait();  // the communicator is unharmed
  });
}

TEST_CASE("ranks that take different buckets for the same are told which is where") {
  run_each(ranks(), [&](Communicator& c, int rank) {
    const Model model = Model::of({100});  // for both buckets: only their number differs
    GradientBuckets one(c, model.parameters()), other(c, model.parameters());
    run_step(one, model, 0, rank);
    run_step(other, model, 0, rank);
    const std::string message =
        error_of(Errc::mismatch, [&] { run_step(rank == 1 ? one : other, model, 1, rank); });
    expect_contains(message,
                    "gradient buckets: ranks differ: rank 1 is in step 2 of gradient buckets ");
    expect_contains(message,
                    "(1 parameters, first 'p0'); ranks 0, 2 are in step 2 of gradient buckets ");
  });
}

// Returns the message of a step in which rank 0 warns about weights that differ, and `fail` is
// called.
std::string message_of_failing_warning(Communicator& c, const std::function<void()>& fail) {
  const Model model = Model::of({100});
  GradientOptions options;
  options.warn = [&](const std::string&) { fail(); };
  GradientBuckets buckets(c, model.parameters(), options);
  try {
    run_step(buckets, model, 0, c.rank(), {.weight = 1.0 + c.rank()});
    run_step(buckets, model, 1, c.rank());
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST_CASE("a failure of one rank alone ends the step on all, with its cause") {
  const bool of_rondo = GENERATE(false, true);
  run_each(ranks(), [&](Communicator& c, int rank) {
    const std::string message = message_of_failing_warning(c, [&] {
      if (of_rondo) throw Error(Errc::system, "the disk is full");
      throw std::runtime_error("the disk is full");
    });
    expect_contains(message, "the disk is full");
    if (rank != 0)
      expect_contains(message, "rank 0 called abort: rank 0: gradient buckets: step 1: ");
  });
}

// As in a backward pass with collectives of its own: the others wait in one of them for this rank,
// which waits for their part of its buckets.
TEST_CASE("a rank that leaves a step by an exception ends it on all") {
  const Model model(std::vector<Tensor>(60, {16, DType::f32}));
  run_each(ranks(), [&](Communicator& c, int rank) {
    GradientOptions options;
    options.first_bucket_bytes = 64;
    std::string message = "no error";
    try {
      GradientBuckets buckets(c, model.parameters(), options);
      buckets.begin_step();
      const std::uint64_t before = c.statistics().operations;
      constexpr std::size_t barriers = 50;  // meanwhile the header arrives
      for (std::size_t i = 0; i < barriers; ++i) {
        if (rank == 1) buckets.ready(model.size() - 1 - i);
        c.barrier({.priority = Priority::urgent}).wait();
      }
      if (rank == 1) {
        expect(c.statistics().operations > before + barriers, "no bucket is under way");
        throw std::runtime_error("no more batches");
      }
      c.barrier({.priority = Priority::urgent}).wait();
    } catch (const std::exception& error) {
      message = error.what();
    }
    expect_contains(message, rank == 1 ? "no more batches"
                                       : "rank 1: an exception left step 1 of gradient buckets");
  });
}

TEST_CASE("mistakes of several ranks at once end the step, and each rank is told one of them") {
  const Model model = Model::of({10, 20, 30});
  const bool twice = GENERATE(false, true);
  run_each(ranks(), [&](Communicator& c, int rank) {
    const std::string message = message_of([&] {
      GradientBuckets buckets(c, model.parameters());
      buckets.begin_step();
      const auto own = static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < model.size(); ++i)
        if (twice || i != own) buckets.ready(i);
      if (twice) buckets.ready(own);
      buckets.finish();
    });
    expect_contains(message,
                    twice ? "became ready twice in step 1" : "never became ready in step 1");
    expect_contains(message, "parameter 'p");
    expect_contains(message, "rank ");
  });
}

}  // namespace
}  // namespace rondo::testing
