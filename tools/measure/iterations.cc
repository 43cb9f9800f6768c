// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/iterations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "tools/late/arrivals.h"
#include "tools/measure/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::uint64_t fewest_iterations = 10;
constexpr double seconds_between_questions = 0.2;
constexpr std::uint64_t most_reserved = 1'000'000;
constexpr double most_between_questions = 1e6;

// The smallest time that at least this share of the sorted times does not exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto place =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(place, 1, sorted.size()) - 1];
}

// Asks all ranks now and then, after the same iterations on all of them, whether one has to stop.
class Questions {
 public:
  Questions(Communicator& communicator, const Stop& stop)
      : communicator_(communicator), stop_(stop), begin_(Clock::now()) {}
  // Call it after each iteration, with the number of those that are done.
  bool must_stop(std::uint64_t done) {
    if (done < next_) return false;
    const double spent = Seconds(Clock::now() - begin_).count() / static_cast<double>(done);
    std::array<double, 2> agreed{stop_.asked() ? 1.0 : 0.0, spent};
    maximum_over_ranks(communicator_, agreed);
    next_ = done + static_cast<std::uint64_t>(std::clamp(seconds_between_questions / agreed[1], 1.0,
                                                         most_between_questions));
    return agreed[0] > 0;
  }

 private:
  Communicator& communicator_;
  const Stop& stop_;
  const Clock::time_point begin_;
  std::uint64_t next_ = 1;
};

}  // namespace

Times summarize(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  return {sum / static_cast<double>(times.size()),
          times.front(),
          percentile(times, 0.50),
          percentile(times, 0.90),
          percentile(times, 0.99),
          times.back()};
}

Iterations::Iterations(Communicator& communicator, const Context& context, IterationHook hook)
    : communicator_(communicator), context_(context), hook_(std::move(hook)) {}

// Runs the warmup iterations. Returns how many timed iterations to run: what was asked for, or as
// many as fit into the time of a row, judged by the last warmup. All ranks get the same number.
std::uint64_t Iterations::choose_count(const std::function<Timed()>& iterate,
                                       const std::function<std::uint64_t()>& check) const {
  const Conditions& conditions = context_.conditions;
  double seconds = 0;
  for (std::uint64_t i = 0; i < conditions.warmups; ++i) {
    const auto begin = Clock::now();
    iterate();
    check();
    seconds = Seconds(Clock::now() - begin).count();
  }
  if (conditions.iterations > 0) return conditions.iterations;
  seconds = maximum_over_ranks(communicator_, seconds);
  const double wanted = Seconds(conditions.row_time).count();
  if (seconds <= wanted / static_cast<double>(conditions.most))
    return conditions.warmups > 0 ? conditions.most : fewest_iterations;
  return std::max(fewest_iterations, static_cast<std::uint64_t>(wanted / seconds));
}

void Iterations::measure(Row& row, bool together, const std::function<Timed()>& iterate,
                         const std::function<std::uint64_t()>& check) const {
  const std::uint64_t wanted = row.iterations > 0 ? row.iterations : choose_count(iterate, check);
  std::vector<double> times;
  times.reserve(std::min(wanted, most_reserved));
  Arrivals arrivals(communicator_.size());
  Questions questions(communicator_, context_.stop);
  std::uint64_t wrong = 0;
  bool stopped = false;
  while (times.size() < wanted && !stopped) {
    hook_(times.size(), wanted);
    const Timed timed = iterate();
    times.push_back(timed.us);
    if (together) arrivals.add(timed.called, timed.ended);
    wrong += check();
    stopped = questions.must_stop(times.size());
  }
  row.iterations = times.size();
  row.cut_short = times.size() < wanted;
  row.rank_p50_us.assign(static_cast<std::size_t>(communicator_.size()), 0);
  double own = summarize(times).p50_us;
  communicator_.all_gather(Buffer{&own, 1, DType::f64}, buffer_of(std::span(row.rank_p50_us)))
      .wait();
  maximum_over_ranks(communicator_, times);
  row.time = summarize(times);
  if (context_.conditions.keep_times) row.times_us = std::move(times);
  row.wrong += sum_over_ranks(communicator_, wrong);
  if (!together) return;
  context_.clocks.mark();
  row.late = arrivals.judge(communicator_, context_.clocks);
}

}  // namespace rondo::tools
