// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <vector>

#include <rondo/metrics.h>

#include "catch.h"
#include "training/helpers.h"

namespace rondo::testing {
namespace {

TEST_CASE("metrics are means over all samples, whatever ranks have") {
  const int size = GENERATE(1, 2, 5);
  CHECK_NOTHROW(run_communicators(ranks(size), "metrics", [&](Communicator& c, int rank) {
    // Loss over rank * 10 samples (none on rank 0 of several), accuracy over rank + 1.
    std::vector<WeightedMean> metrics(2);
    const int samples = size == 1 ? 10 : rank * 10;
    for (int i = 0; i < samples; ++i) metrics[0].add(rank + 0.5 * (i % 2));
    metrics[1].add(rank % 2, rank + 1);
    reduce_metrics(c, metrics);
    double loss = 0, weight = 0, hits = 0, tries = 0;
    for (int r = 0; r < size; ++r) {
      const int theirs = size == 1 ? 10 : r * 10;
      loss += theirs * (r + 0.25);
      weight += theirs;
      hits += r % 2 * (r + 1);
      tries += r + 1;
    }
    expect(metrics[0].sum == loss && metrics[0].weight == weight, "loss");
    expect(metrics[1].mean() == hits / tries, "accuracy");
  }));
}

TEST_CASE("what is not a number counts only with a weight") {
  CHECK_NOTHROW(run_communicators(ranks(3), "not a number", [](Communicator& c, int rank) {
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    std::vector<WeightedMean> metrics(4);
    metrics[0].add(rank == 1 ? nothing : 2, rank == 1 ? 0 : 1);
    metrics[1] = rank == 1 ? WeightedMean{nothing, 0} : WeightedMean{6, 2};
    metrics[2].add(rank == 1 ? nothing : 2, 1);
    reduce_metrics(c, metrics);
    expect(metrics[0].mean() == 2 && metrics[0].weight == 2, "added with weight 0");
    expect(metrics[1].mean() == 3 && metrics[1].weight == 4, "made by hand with weight 0");
    expect(std::isnan(metrics[2].mean()), "a loss that is not a number shows");
    expect(std::isnan(metrics[3].mean()) && metrics[3].weight == 0, "nothing anywhere");
    WeightedMean sum_alone{5, 0};
    reduce_metrics(c, std::span(&sum_alone, 1));
    expect(sum_alone.sum == 15, "a sum without a weight");
    reduce_metrics(c, {});
  }));
}

TEST_CASE("different numbers of metrics are an error on every rank") {
  CHECK_NOTHROW(run_communicators(ranks(3), "mismatch", [](Communicator& c, int rank) {
    std::vector<WeightedMean> metrics(rank == 2 ? 3 : 2);
    const std::string message = error_of(Errc::mismatch, [&] { reduce_metrics(c, metrics); });
    expect(message.find("reduce_metrics") != std::string::npos, message);
  }));
}

}  // namespace
}  // namespace rondo::testing
