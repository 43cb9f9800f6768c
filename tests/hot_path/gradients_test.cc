// SPDX-License-Identifier: Apache-2.0
//
// Counts that steps of gradient buckets allocate nothing after the second
// (docs/reference/hot-path.md).
#include <rondo/gradients.h>

#include <vector>

#include "catch.h"
#include "hot_path/attempts.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

std::vector<Parameter> some_parameters() {
  std::vector<Parameter> parameters;
  for (std::size_t i = 0; i < 60; ++i) {
    Parameter& parameter = parameters.emplace_back();
    parameter.name = std::string(i + 1, 'p');
    parameter.shape = {i % 7 == 0 ? 5000 : 100 * i};
    parameter.type = i % 11 == 0 ? DType::f64 : i % 5 == 0 ? DType::bf16 : DType::f32;
  }
  return parameters;
}

// Everything at once: weights, gradients found unused, a wire type, norms, callbacks.
// The test adds weights that differ.
GradientOptions all_options(std::size_t& called) {
  GradientOptions options;
  options.first_bucket_bytes = 4096;
  options.bucket_bytes = 20'000;
  options.averaging = Averaging::weighted;
  options.wire = DType::f16;
  options.find_unused = true;
  options.on_bucket = [&called](const CompletedBucket& bucket) {
    called += bucket.parameters.size();
  };
  return options;
}

TEST_CASE("nothing is allocated after the second step of gradient buckets") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const bool everything = GENERATE(false, true);
  const std::size_t named[] = {5, 18};
  const std::span<const std::size_t> unused = everything ? std::span<const std::size_t>() : named;
  constexpr int size = 3;
  Attempts attempts(size);
  Setup setup;
  setup.over = over;
  setup.size = size;
  run_communicators(setup, "gradients", [&](Communicator& communicator, int rank) {
    std::size_t called = 0;
    GradientBuckets buckets(communicator, some_parameters(),
                            everything ? all_options(called) : GradientOptions());
    std::uint64_t steps = 0;
    const auto step = [&] {
      buckets.begin_step({.weight = everything ? static_cast<double>(1 + (++steps + rank) % 3) : 1,
                          .unused = unused});
      for (std::size_t i = 0; i < buckets.parameter_count(); ++i)
        if (everything ? i % 13 != 5 : i != named[0] && i != named[1]) buckets.ready(i);
      buckets.finish();
      if (everything) (void)buckets.norm();
    };
    step();
    step();
    attempts.run(rank, 100, step);
  });
  INFO(name_of(over) << (everything ? ", everything" : ""));
  CHECK(attempts.least() == 0);
}

}  // namespace
}  // namespace rondo::testing
