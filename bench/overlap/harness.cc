// SPDX-License-Identifier: Apache-2.0
//
// The lines between the driver (bench/hosts/overlap.py) and a rank: a command of the driver, and
// the rank's answer.
//
//   (rank, when the library is up)                             ready RANK SIZE ALGORITHM...
//   turn ALGORITHM BUCKET_BYTES COMPUTE_NANOSECONDS STEPS      times NANOSECONDS...
//                                                              (this rank's time for every step)
//   rest                                                       (nothing)
//   quit                                                       (nothing: the rank ends)
//
// Instead of an answer a rank may send "failed EXPLANATION" and end.
//
// A step is a backward pass of 100 tensors with 25 million elements in all. Its computation stands
// for that of an accelerator, which uses no core of this machine: the rank sleeps until each
// gradient is ready.
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "../peers/control.h"
#include "trainer.h"

namespace rondo::overlap {
namespace {

using std::chrono::nanoseconds;
constexpr std::size_t tensors = 100;
constexpr std::size_t elements_of_a_tensor = 250'000;

nanoseconds now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

void sleep_until(nanoseconds moment) {
  const timespec time{static_cast<time_t>(moment.count() / 1'000'000'000),
                      moment.count() % 1'000'000'000};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, nullptr) == EINTR) continue;
}

class Steps {
 public:
  explicit Steps(Trainer& trainer) : trainer_(trainer), counts_(tensors, elements_of_a_tensor) {}

  std::string turn(std::istringstream& arguments) {
    std::string algorithm;
    std::size_t bucket_bytes = 0, steps = 0;
    std::int64_t compute = 0;
    if (!(arguments >> algorithm >> bucket_bytes >> compute >> steps))
      throw std::invalid_argument("turn: four words");
    if (algorithm != algorithm_ || bucket_bytes != bucket_bytes_) {
      trainer_.prepare(algorithm, counts_, bucket_bytes);
      algorithm_ = algorithm;
      bucket_bytes_ = bucket_bytes;
      for (int i = 0; i < 2; ++i) check();
    }
    std::ostringstream reply("times", std::ios::ate);
    for (std::size_t i = 0; i < steps; ++i) {
      trainer_.barrier();
      reply << ' ' << step(nanoseconds(compute)).count();
    }
    trainer_.barrier();  // so that no answer wakes the driver while a rank is still measuring
    return reply.str();
  }

 private:
  nanoseconds step(nanoseconds compute) {
    const nanoseconds start = now();
    trainer_.begin_step();
    for (std::size_t i = 0; i < tensors; ++i) {
      if (compute.count() > 0) sleep_until(start + compute * (i + 1) / tensors);
      trainer_.ready(tensors - 1 - i);
    }
    trainer_.finish();
    return now() - start;
  }

  // Runs a step and checks the sums of the first, second and last element of each gradient.
  void check() {
    trainer_.begin_step();
    for (std::size_t i = 0; i < tensors; ++i) {
      const std::span<float> gradient = trainer_.gradient(tensors - 1 - i);
      std::fill(gradient.begin(), gradient.end(), 0.0F);
      gradient.front() = gradient.back() =
          static_cast<float>(i + static_cast<std::size_t>(trainer_.rank()));
      trainer_.ready(tensors - 1 - i);
    }
    trainer_.finish();
    const auto size = static_cast<std::size_t>(trainer_.size());
    for (std::size_t i = 0; i < tensors; ++i) {
      const std::span<float> gradient = trainer_.gradient(tensors - 1 - i);
      const auto expected = static_cast<float>(i * size + size * (size - 1) / 2);
      if (gradient.front() != expected || gradient.back() != expected || gradient[1] != 0)
        throw std::runtime_error("wrong sum in tensor " + std::to_string(tensors - 1 - i));
      std::fill(gradient.begin(), gradient.end(), 0.0F);  // else sums in place would grow
    }
  }

  Trainer& trainer_;
  const std::vector<std::size_t> counts_;
  std::string algorithm_;
  std::size_t bucket_bytes_ = 0;
};

void handle(compare::Control& control, Trainer& trainer) {
  Steps steps(trainer);
  while (const std::optional<std::string> line = control.read_line()) {
    std::istringstream arguments(*line);
    std::string command;
    arguments >> command;
    if (command == "quit") return;
    if (command == "rest") continue;
    if (command != "turn") throw std::invalid_argument("unknown command: " + *line);
    control.write_line(steps.turn(arguments));
  }
}

}  // namespace

int run_rank(const std::string& control_path,
             const std::function<std::unique_ptr<Trainer>()>& make_trainer) {
  return compare::run_controlled(control_path, [&](compare::Control& control) {
    const std::unique_ptr<Trainer> trainer = make_trainer();
    control.write_line(
        compare::ready_line(trainer->rank(), trainer->size(), trainer->algorithms()));
    handle(control, *trainer);
  });
}

}  // namespace rondo::overlap
