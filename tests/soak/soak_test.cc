// SPDX-License-Identifier: Apache-2.0
//
// Runs everything at once for a while: several operations in flight on communicators that are split
// and destroyed. Results must be right, and nothing may grow. RONDO_TEST_SOAK_SECONDS is the time
// (20 s; a second with a sanitizer), and RONDO_TEST_SEED chooses the calls.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "catch.h"
#include "soak/calls.h"
#include "soak/footprint.h"
#include "support/effort.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

constexpr int ranks = 4;
constexpr std::size_t most_splits = 3;
constexpr std::uint64_t calls_of_a_round = 24;

double number_of(const char* variable, double otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtod(text, nullptr);
}

double soak_seconds() {
  return number_of("RONDO_TEST_SOAK_SECONDS", few_cases() ? 1 : 20);
}

std::uint64_t soak_seed() {
  return static_cast<std::uint64_t>(number_of("RONDO_TEST_SEED", 1));
}

struct Outcome {
  Footprint before, after;
  std::uint64_t rounds = 0, calls = 0, splits = 0;
};

// One rank of the test.
class Player {
 public:
  Player(Communicator& communicator, std::uint64_t seed, bool splits)
      : communicator_(communicator), seed_(seed), splitting_(splits) {}

  // Plays until rank 0, whose clock counts, says that the time is over.
  void play(std::chrono::duration<double> time, Outcome& outcome) {
    const base::TimePoint begin = base::Clock::now(), until = base::after(begin, time),
                          warm = base::after(begin, time / 3);
    bool measured = false;
    while (true) {
      const base::TimePoint now = base::Clock::now();
      const Next next = agree(now >= until && measured && rounds_ > 1   ? Next::end
                              : now >= warm && !measured && rounds_ > 0 ? Next::measure
                                                                        : Next::go_on);
      if (next != Next::go_on) {
        measure(next == Next::measure ? outcome.before : outcome.after);
        measured = true;
      }
      if (next == Next::end) break;
      round();
    }
    if (communicator_.rank() != 0) return;
    outcome.rounds = rounds_;
    outcome.calls = calls_;
    outcome.splits = split_count_;
  }

 private:
  enum class Next : std::int32_t { go_on, measure, end };

  Next agree(Next next) {
    std::vector<std::int32_t> word{static_cast<std::int32_t>(next)};
    const Buffer buffer = buffer_of(std::span(word));
    OpOptions options;
    options.priority = Priority::urgent;
    communicator_.broadcast(buffer, buffer, 0, options).wait();
    return static_cast<Next>(word[0]);
  }
  // Measures while no rank has more than the communicator.
  void measure(Footprint& footprint) {
    splits_.clear();
    communicator_.barrier().wait();
    if (communicator_.rank() == 0) footprint = Footprint::now();
    communicator_.barrier().wait();
  }
  void finish_until(std::size_t most) {
    for (; pending_.size() > most; pending_.pop_front()) pending_.front()->finish();
  }
  void split(Draw& draw) {
    if (splits_.size() == most_splits) {
      finish_until(0);
      splits_.erase(splits_.begin());
    }
    const std::uint64_t colors = 1 + draw(3), keys = draw(1 << 30);
    const auto rank = static_cast<std::uint64_t>(communicator_.rank());
    const int color = static_cast<int>(mixed(keys, rank) % (colors + 1)) - (draw(2) == 0 ? 1 : 0);
    splits_.push_back(communicator_.split(color, static_cast<int>(mixed(rank, keys) % 100)));
    ++split_count_;
  }
  void round() {
    Draw draw(seed_, ++rounds_);
    Draw own(seed_ + 1 + static_cast<std::uint64_t>(communicator_.rank()), rounds_);
    const std::size_t most = 1 + draw(5);
    if (splitting_ && draw(4) == 0) split(draw);
    for (std::uint64_t call = 0; call < calls_of_a_round; ++call) {
      const std::uint64_t where = draw(2 * most_splits), seed = draw(std::uint64_t{1} << 40);
      // Its own stream: the count of numbers that a call draws depends on the communicator's size.
      Draw its(seed, 1);
      Communicator* communicator = &communicator_;
      if (where < splits_.size()) communicator = splits_[where] ? &*splits_[where] : nullptr;
      if (communicator == nullptr) continue;
      pending_.push_back(start_some(*communicator, its, own));
      ++calls_;
      finish_until(most - 1);
    }
    finish_until(0);
  }

  Communicator& communicator_;
  const std::uint64_t seed_;
  const bool splitting_;
  std::uint64_t rounds_ = 0, calls_ = 0, split_count_ = 0;
  std::vector<std::optional<Communicator>> splits_;
  std::deque<std::unique_ptr<Pending>> pending_;  // after the communicators that they use
};

TEST_CASE("mixed operations for a while: right results, and nothing grows") {
  const Over over = GENERATE(Over::shm, Over::tcp, Over::mem);
  Setup setup;
  setup.size = ranks;
  setup.over = over;
  setup.seed = soak_seed();
  setup.faults.windows = soak_seed() % 2 == 0;
  const std::chrono::duration<double> time{soak_seconds() / 3};
  const std::string what = std::string(name_of(over)) + ", seed " + std::to_string(soak_seed());
  const std::size_t descriptors = Footprint::now().descriptors;
  Outcome outcome;
  INFO(what);
  CHECK_NOTHROW(run_communicators(
      setup, what,
      [&](Communicator& communicator, int rank) {
        Outcome unused;
        // Over mem it does not split: the network of each split would stay until the test ends.
        Player(communicator, setup.seed, over != Over::mem)
            .play(time, rank == 0 ? outcome : unused);
      },
      std::chrono::duration_cast<std::chrono::seconds>(time) + std::chrono::seconds{200}));
  std::printf(
      "%s: %llu rounds, %llu calls and %llu splits of rank 0; after a third of the time %s, in the "
      "end %s\n",
      what.c_str(), static_cast<unsigned long long>(outcome.rounds),
      static_cast<unsigned long long>(outcome.calls),
      static_cast<unsigned long long>(outcome.splits), outcome.before.describe().c_str(),
      outcome.after.describe().c_str());
  CHECK(growth(outcome.before, outcome.after,
               {.resident_bytes = std::size_t{32} << 20, .descriptors = 16, .maps = 64}) == "");
  CHECK(Footprint::now().descriptors == descriptors);
}

}  // namespace
}  // namespace rondo::testing
