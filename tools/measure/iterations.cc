// SPDX-License-Identifier: Apache-2.0
#include "tools/measure/iterations.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "tools/late/arrivals.h"
#include "tools/shared/agree.h"
#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Far less than the 0.8 s after which a rank that was asked to stop aborts
// (tools/bench/early_end.cc): iterations may become ten times slower from one question to the next.
constexpr double seconds_between_questions = 0.05;
constexpr std::size_t most_times = std::size_t{1} << 20;
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
  Questions(Communicator& communicator, Stop& stop)
      : communicator_(communicator), stop_(stop), asked_(Clock::now()) {}
  // Call it after each iteration, with the number of those that are done.
  bool must_stop(std::uint64_t done) {
    if (done < next_) return false;
    const auto now = Clock::now();
    const double spent = Seconds(now - std::exchange(asked_, now)).count() /
                         static_cast<double>(done - std::exchange(done_, done));
    std::array<double, 2> agreed{stop_.asked() ? 1.0 : 0.0, spent};
    maximum_over_ranks(communicator_, agreed);
    next_ = done + static_cast<std::uint64_t>(std::clamp(seconds_between_questions / agreed[1], 1.0,
                                                         most_between_questions));
    if (agreed[0] > 0) stop_.agree();
    return agreed[0] > 0;
  }

 private:
  Communicator& communicator_;
  Stop& stop_;
  Clock::time_point asked_;
  std::uint64_t done_ = 0, next_ = 1;
};

}  // namespace

Times summarize(std::vector<double> times) {
  std::ranges::sort(times);
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
    return conditions.warmups > 0 ? conditions.most : conditions.fewest;
  return std::max(conditions.fewest, static_cast<std::uint64_t>(wanted / seconds));
}

void Iterations::measure(Row& row, bool together, const std::function<Timed()>& iterate,
                         const std::function<std::uint64_t()>& check) const {
  const std::uint64_t wanted = row.iterations > 0 ? row.iterations : choose_count(iterate, check);
  Samples<double> samples(most_times);
  Arrivals arrivals(communicator_.size());
  Questions questions(communicator_, context_.stop);
  std::uint64_t wrong = 0;
  bool stopped = false;
  while (samples.added() < wanted && !stopped) {
    hook_(samples.added(), wanted);
    const Timed timed = iterate();
    samples.add(timed.us);
    if (together) arrivals.add(timed.called, timed.ended);
    wrong += check();
    stopped = questions.must_stop(samples.added());
  }
  row.iterations = samples.added();
  row.cut_short = samples.added() < wanted;
  std::vector<double>& times = samples.values();
  row.rank_p50_us = gather_from_ranks(communicator_, summarize(times).p50_us);
  maximum_over_ranks(communicator_, times);
  row.time = summarize(times);
  if (context_.conditions.keep_times) row.times_us = std::move(times);
  row.wrong += sum_over_ranks(communicator_, wrong);
  if (!together) return;
  context_.clocks.mark();
  row.late = arrivals.judge(communicator_, context_.clocks);
}

}  // namespace rondo::tools
