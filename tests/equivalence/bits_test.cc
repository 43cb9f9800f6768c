// SPDX-License-Identifier: Apache-2.0
//
// With Options::reproducible the bits of a training run do not depend on buckets, segments,
// transports or algorithms.
#include <algorithm>
#include <string>
#include <vector>

#include "catch.h"
#include "equivalence/job.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

struct Way {
  Over over = Over::mem;
  bool windows = false;
  std::string algorithm;
  std::size_t bucket_bytes = 4096;
  std::size_t segment_bytes = 0;
};

Setup setup_of(const Way& way, bool reproducible = true) {
  Setup setup;
  setup.over = way.over;
  setup.faults.windows = way.windows;
  setup.options.reproducible = reproducible;
  setup.options.algorithm = way.algorithm;
  setup.options.segment_bytes = way.segment_bytes;
  return setup;
}

constexpr std::size_t model_bytes = 4000;  // the model has at least so many, in f32

template <class T>
Tensors train_way(const Way& way) {
  const Job job{.split = {5, 3, 8, 0},
                .steps = few_cases() ? 4u : 20u,
                .bucket_bytes = way.bucket_bytes,
                .least_buckets = std::max<std::size_t>(1, model_bytes / way.bucket_bytes)};
  return train_ranks<T>(job, setup_of(way));
}

template <class T>
void check_ways(const std::vector<Way>& ways) {
  const Tensors reference = train_way<T>({});
  for (const Way& way : ways) {
    INFO(name_of(way.over) << (way.windows ? " with windows" : "") << ", algorithm '"
                           << way.algorithm << "', buckets of " << way.bucket_bytes
                           << ", segments of " << way.segment_bytes);
    CHECK(same_bits(reference, train_way<T>(way)));
  }
}

// For about sixty buckets, four, and one.
constexpr std::size_t bucket_sizes[] = {64, 1000, 25 << 20};
constexpr std::size_t segment_sizes[] = {0, 512, 16 << 10};

TEST_CASE("reproducible: the same bits for all sizes of buckets and segments") {
  std::vector<Way> ways;
  for (const std::size_t bucket : bucket_sizes)
    for (const std::size_t segment : segment_sizes)
      ways.push_back({Over::mem, false, "", bucket, segment});
  check_ways<float>(ways);
  check_ways<double>(ways);
}

TEST_CASE("reproducible: the same bits for all transports and algorithms") {
  std::vector<Way> ways;
  for (const Over over : {Over::mem, Over::tcp, Over::shm})
    for (const bool windows : {false, true})
      for (const char* algorithm : {"", "chain", "star", "direct"}) {
        const bool direct = windows || over == Over::shm;
        if ((windows && over != Over::mem) || (!direct && std::string(algorithm) == "direct"))
          continue;
        const std::size_t n = ways.size();
        ways.push_back({over, windows, algorithm, bucket_sizes[n % 3], segment_sizes[n / 3 % 3]});
      }
  check_ways<float>(ways);
}

}  // namespace
}  // namespace rondo::testing
