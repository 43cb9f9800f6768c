// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include <rondo/sampler.h>

#include "catch.h"
#include "training/helpers.h"

namespace rondo::testing {
namespace {

using Position = ShardedSampler::Position;
using Batch = std::vector<Sample>;

std::vector<ShardedSampler> samplers(std::size_t samples, int size, const SamplerOptions& options) {
  std::vector<ShardedSampler> result;
  for (int rank = 0; rank < size; ++rank) result.emplace_back(samples, rank, size, options);
  return result;
}

// Returns the next global batch in the order of positions: the first sample of each rank, the
// second of each rank, ...
Batch global_batch(std::vector<ShardedSampler>& ranks, std::size_t each) {
  std::vector<Batch> parts;
  for (ShardedSampler& rank : ranks) parts.push_back(rank.next(each));
  Batch batch;
  for (std::size_t i = 0; i < each; ++i)
    for (const Batch& part : parts)
      if (i < part.size()) batch.push_back(part[i]);
  return batch;
}

std::vector<std::size_t> indices(const Batch& batch, bool padded = true) {
  std::vector<std::size_t> result;
  for (const Sample& each : batch)
    if (padded || each.weight != 0) result.push_back(each.index);
  return result;
}

std::vector<std::size_t> order_of(std::size_t samples, std::uint64_t seed, std::uint64_t epoch) {
  ShardedSampler alone(samples, 0, 1, {.seed = seed});
  alone.set_epoch(epoch);
  return indices(alone.next(samples));
}

TEST_CASE("each sample comes exactly once in an epoch over all ranks, and weights say so") {
  const int size = GENERATE(range(1, 10));
  const std::size_t samples = GENERATE(0, 1, 2, 5, 8, 9, 72, 101, 997);
  const Remainder remainder = GENERATE(Remainder::pad, Remainder::drop, Remainder::uneven);
  const bool shuffle = GENERATE(true, false);
  const auto ranks_here = static_cast<std::size_t>(size);
  std::vector<ShardedSampler> all = samplers(samples, size, {shuffle, 3, remainder});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int> seen(samples);
    double weights = 0;
    std::size_t dealt = 0;
    for (ShardedSampler& sampler : all) {
      sampler.set_epoch(epoch);
      const std::size_t promised = sampler.size();
      const std::size_t even = samples / ranks_here, more = (samples + ranks_here - 1) / ranks_here;
      if (remainder == Remainder::pad) CHECK(promised == more);
      if (remainder == Remainder::drop) CHECK(promised == even);
      if (remainder == Remainder::uneven) CHECK((promised == even || promised == more));
      std::size_t own = 0;
      while (sampler.remaining() > 0) {
        const std::size_t before = sampler.remaining();
        const Batch batch = sampler.next(7);
        REQUIRE(batch.size() == std::min<std::size_t>(before, 7));
        own += batch.size();
        for (const Sample& each : batch) {
          REQUIRE(each.index < samples);
          REQUIRE((each.weight == 0 || each.weight == 1));
          weights += each.weight;
          seen[each.index] += each.weight != 0;
        }
      }
      CHECK(own == promised);
      CHECK(sampler.next(7).empty());
      dealt += own;
    }
    const std::size_t in_epoch =
        remainder == Remainder::drop ? samples / ranks_here * ranks_here : samples;
    CHECK(weights == static_cast<double>(in_epoch));
    CHECK(static_cast<std::size_t>(std::count(seen.begin(), seen.end(), 1)) == in_epoch);
    CHECK(static_cast<std::size_t>(std::count(seen.begin(), seen.end(), 0)) == samples - in_epoch);
    if (remainder == Remainder::uneven) CHECK(dealt == samples);
  }
}

TEST_CASE("the k-th global batch is what one process sees") {
  const int size = GENERATE(range(1, 10));
  const bool shuffle = GENERATE(true, false);
  const Remainder remainder = GENERATE(Remainder::pad, Remainder::drop, Remainder::uneven);
  constexpr std::size_t samples = 533, each = 6;
  std::vector<ShardedSampler> all = samplers(samples, size, {shuffle, 9, remainder});
  ShardedSampler alone(samples, 0, 1, {.shuffle = shuffle, .seed = 9});
  for (std::uint64_t epoch : {0, 1, 7}) {
    for (ShardedSampler& sampler : all) sampler.set_epoch(epoch);
    alone.set_epoch(epoch);
    for (std::size_t k = 0; k < samples / each / static_cast<std::size_t>(size); ++k)
      REQUIRE(indices(global_batch(all, each)) ==
              indices(alone.next(each * static_cast<std::size_t>(size))));
    const Batch rest = global_batch(all, samples);
    const std::vector<std::size_t> wanted = indices(alone.next(samples)),
                                   got = indices(rest, false);
    REQUIRE(got.size() <= wanted.size());
    CHECK(std::equal(got.begin(), got.end(), wanted.begin()));
    if (remainder != Remainder::drop) CHECK(got.size() == wanted.size());
  }
}

TEST_CASE("padding takes the first samples of the epoch again") {
  std::vector<ShardedSampler> all = samplers(3, 8, {.seed = 5});
  const Batch batch = global_batch(all, 10);
  const std::vector<std::size_t> order = order_of(3, 5, 0);
  REQUIRE(batch.size() == 8);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    CHECK(batch[i].index == order[i % 3]);
    CHECK(batch[i].weight == (i < 3 ? 1 : 0));
  }
}

TEST_CASE("a position goes on with another number of ranks exactly where the others stopped") {
  const int before = GENERATE(1, 2, 3, 4, 7), after = GENERATE(1, 2, 3, 5, 8);
  const Remainder remainder = GENERATE(Remainder::pad, Remainder::drop, Remainder::uneven);
  constexpr std::size_t samples = 211, each = 3;
  const SamplerOptions options{true, 12, remainder};
  const std::vector<std::size_t> order = order_of(samples, 12, 4);
  std::vector<ShardedSampler> first = samplers(samples, before, options);
  for (ShardedSampler& sampler : first) sampler.set_epoch(4);
  for (int batches = 0; first.front().remaining() > 0; ++batches) {
    const Position position = first.front().position();
    for (const ShardedSampler& sampler : first) REQUIRE(sampler.position() == position);
    REQUIRE(position.epoch == 4);
    REQUIRE(position.taken ==
            static_cast<std::size_t>(batches) * each * static_cast<std::size_t>(before));
    std::vector<ShardedSampler> second = samplers(samples, after, options);
    for (ShardedSampler& sampler : second) sampler.resume(position);
    CHECK(second.front().epoch() == 4);
    const std::vector<std::size_t> rest = indices(global_batch(second, samples), false);
    const auto left = samples - static_cast<std::size_t>(position.taken);
    const auto sizes = static_cast<std::size_t>(after);
    REQUIRE(rest.size() == (remainder == Remainder::drop ? left / sizes * sizes : left));
    REQUIRE(std::equal(rest.begin(), rest.end(),
                       order.begin() + static_cast<std::ptrdiff_t>(position.taken)));
    (void)global_batch(first, each);
  }
}

TEST_CASE("at the end of an epoch all ranks stand at its end, and the next one is whole") {
  const Remainder remainder = GENERATE(Remainder::pad, Remainder::drop, Remainder::uneven);
  const std::size_t samples = GENERATE(0, 2, 10, 11, 12);
  std::vector<ShardedSampler> all = samplers(samples, 4, {true, 1, remainder});
  for (int i = 0; i < 4; ++i) (void)global_batch(all, 1);  // enough for all
  for (ShardedSampler& sampler : all) {
    CHECK(sampler.position() == Position{0, samples});
    CHECK(sampler.remaining() == 0);
  }
  ShardedSampler later(samples, 2, 3, {true, 1, remainder});
  later.resume({0, samples});
  CHECK(later.size() == 0);
  CHECK(later.next(5).empty());
  later.set_epoch(1);
  CHECK(later.size() == ShardedSampler(samples, 2, 3, {true, 1, remainder}).size());
  CHECK(later.next(samples).size() == later.size());
}

TEST_CASE("the order is the same on every machine") {
  // These values are from another program with the same definition.
  CHECK(order_of(10, 0, 0) == std::vector<std::size_t>{1, 2, 5, 7, 0, 8, 4, 3, 9, 6});
  CHECK(order_of(10, 1, 0) == std::vector<std::size_t>{6, 4, 7, 2, 9, 1, 5, 0, 8, 3});
  CHECK(order_of(10, 0, 1) == std::vector<std::size_t>{2, 5, 6, 9, 0, 4, 7, 3, 8, 1});
  CHECK(order_of(10, 42, 7) == std::vector<std::size_t>{5, 8, 1, 7, 0, 2, 4, 6, 3, 9});
}

TEST_CASE("seeds and epochs give different orders") {
  std::set<std::vector<std::size_t>> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (std::uint64_t epoch = 0; epoch < 20; ++epoch) orders.insert(order_of(30, seed, epoch));
  CHECK(orders.size() == 400);
}

TEST_CASE("every order of four samples comes equally often") {
  std::map<std::vector<std::size_t>, int> times;
  constexpr int epochs = 24'000;
  for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) ++times[order_of(4, 1, epoch)];
  REQUIRE(times.size() == 24);
  double chi_square = 0;
  for (const auto& [order, count] : times)
    chi_square += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi_square < 53.0);  // 23 degrees of freedom: more once in 2,500 generators that are fair
}

TEST_CASE("a sampler refuses what cannot be") {
  const auto refused = [](auto&& function) { return error_of(Errc::invalid_argument, function); };
  CHECK(refused([] { ShardedSampler(5, 2, 2); }) ==
        "ShardedSampler: there is no rank 2 among 2 ranks");
  CHECK(refused([] { ShardedSampler(5, -1, 2); }) ==
        "ShardedSampler: there is no rank -1 among 2 ranks");
  CHECK(refused([] { ShardedSampler(5, 0, 0); }) ==
        "ShardedSampler: there is no rank 0 among 0 ranks");
  CHECK(refused([] { ShardedSampler(std::numeric_limits<std::size_t>::max(), 0, 1); }) !=
        "no error");
  ShardedSampler sampler(5, 1, 2, {.shuffle = false});
  CHECK(refused([&] {
          sampler.resume({3, 6});
        }) == "ShardedSampler: cannot resume after 6 samples: the data set has 5");
  CHECK(sampler.position() == Position{0, 0});
}

TEST_CASE("a sampler takes rank and size from the communicator") {
  CHECK_NOTHROW(run_communicators(ranks(3), "sampler", [](Communicator& c, int rank) {
    ShardedSampler sampler(9, c, {.shuffle = false});
    expect(indices(sampler.next(1)) == std::vector<std::size_t>{static_cast<std::size_t>(rank)},
           "index");
  }));
}

}  // namespace
}  // namespace rondo::testing
