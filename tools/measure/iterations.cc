// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/iterations.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "tools/measure/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double seconds_per_row = 1.0;
constexpr std::uint64_t fewest_iterations = 10, most_iterations = 200;

// The smallest time that at least this share of the sorted times does not exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto place =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(place, 1, sorted.size()) - 1];
}

Times summarize(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  return {sum / static_cast<double>(times.size()), times.front(), percentile(times, 0.50),
          percentile(times, 0.99)};
}

}  // namespace

Iterations::Iterations(Communicator& communicator, const BenchOptions& options, IterationHook hook)
    : communicator_(communicator), options_(options), hook_(std::move(hook)) {}

// Runs the warmup iterations. Returns how many timed iterations to run: what was asked for, or as
// many as fit into a second, judged by the last warmup. All ranks get the same number.
std::uint64_t Iterations::choose_count(const std::function<double()>& iterate,
                                       const std::function<std::uint64_t()>& check) const {
  double seconds = 0;
  for (std::uint64_t i = 0; i < options_.warmups; ++i) {
    const auto begin = Clock::now();
    iterate();
    check();
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  if (options_.iterations > 0) return options_.iterations;
  seconds = maximum_over_ranks(communicator_, seconds);
  if (seconds <= seconds_per_row / most_iterations)
    return options_.warmups > 0 ? most_iterations : fewest_iterations;
  return std::max(fewest_iterations, static_cast<std::uint64_t>(seconds_per_row / seconds));
}

Iterations::Result Iterations::measure(const std::function<double()>& iterate,
                                       const std::function<std::uint64_t()>& check) const {
  std::vector<double> times(choose_count(iterate, check));
  Result result;
  for (std::size_t i = 0; i < times.size(); ++i) {
    hook_(i, times.size());
    times[i] = iterate();
    result.wrong += check();
  }
  maximum_over_ranks(communicator_, times);
  result.wrong = sum_over_ranks(communicator_, result.wrong);
  result.times = summarize(std::move(times));
  return result;
}

}  // namespace rondo::tools
