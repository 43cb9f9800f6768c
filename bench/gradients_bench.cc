// SPDX-License-Identifier: Apache-2.0
//
// Measures the cost of gradient buckets themselves.
//
//   rondo run -n 4 gradients_bench [tensors] [elements of each] [bucket bytes] [steps]
//
// ready: nanoseconds of one call. Calls that start nothing, calls that start collectives (most of
// the time is their own start), and calls in local steps are shown apart. Each figure includes one
// read of the clock, which is shown too.
// local step: microseconds of begin_step, all ready calls and finish. It does not grow with the
// number of elements, because nothing is copied.
#include <rondo/gradients.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace rondo;
using Clock = std::chrono::steady_clock;

double nanoseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
}

void print(const char* what, std::vector<double>& values, const char* unit) {
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  std::printf("%-34s %8zu values   p50 %8.0f   p99 %8.0f   max %8.0f %s\n", what, values.size(),
              values[values.size() / 2], values[values.size() * 99 / 100], values.back(), unit);
}

struct Figures {
  std::vector<double> quiet, starting, local, local_steps, clock;
};

void synchronized_step(Communicator& communicator, GradientBuckets& buckets, Figures& figures,
                       bool count) {
  buckets.begin_step();
  communicator.barrier({.priority = Priority::urgent}).wait();  // then buckets can start at once
  for (std::size_t i = buckets.parameter_count(); i-- > 0;) {
    const std::uint64_t before = communicator.statistics().operations;
    const Clock::time_point begin = Clock::now();
    buckets.ready(i);
    const double time = nanoseconds_since(begin);
    if (count)
      (communicator.statistics().operations == before ? figures.quiet : figures.starting)
          .push_back(time);
  }
  buckets.finish();
}

void local_step(GradientBuckets& buckets, Figures& figures) {
  const GradientBuckets::Accumulation accumulation(buckets);
  const Clock::time_point step = Clock::now();
  buckets.begin_step();
  for (std::size_t i = buckets.parameter_count(); i-- > 0;) buckets.ready(i);
  buckets.finish();
  figures.local_steps.push_back(nanoseconds_since(step) / 1000);
  buckets.begin_step();
  for (std::size_t i = buckets.parameter_count(); i-- > 0;) {
    const Clock::time_point begin = Clock::now();
    buckets.ready(i);
    figures.local.push_back(nanoseconds_since(begin));
  }
  buckets.finish();
  const Clock::time_point begin = Clock::now();
  figures.clock.push_back(nanoseconds_since(begin));
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int place, std::size_t otherwise) {
    return argc > place ? static_cast<std::size_t>(std::strtoull(argv[place], nullptr, 10))
                        : otherwise;
  };
  const std::size_t tensors = argument(1, 160), elements = argument(2, 1000);
  const std::size_t bucket_bytes = argument(3, 64 << 10), steps = argument(4, 500);
  try {
    Communicator communicator = Communicator::connect();
    std::vector<Parameter> parameters(tensors);
    for (std::size_t i = 0; i < tensors; ++i) {
      parameters[i].name = std::string(i + 1, 'p');
      parameters[i].shape = {elements};
    }
    GradientOptions options;
    options.first_bucket_bytes = options.bucket_bytes = bucket_bytes;
    GradientBuckets buckets(communicator, parameters, options);
    Figures figures;
    for (std::size_t step = 0; step < steps + 2; ++step)
      synchronized_step(communicator, buckets, figures, step >= 2);
    for (std::size_t step = 0; step < steps; ++step) local_step(buckets, figures);
    if (communicator.rank() == 0) {
      std::printf("%d ranks, %zu tensors of %zu f32, %zu buckets\n", communicator.size(), tensors,
                  elements, buckets.statistics().size());
      print("reading the clock", figures.clock, "ns");
      print("ready, nothing to start", figures.quiet, "ns");
      print("ready, starts collectives", figures.starting, "ns");
      print("ready in a local step", figures.local, "ns");
      print("local step", figures.local_steps, "us");
    }
    communicator.barrier().wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gradients_bench: %s\n", error.what());
    return 1;
  }
}
