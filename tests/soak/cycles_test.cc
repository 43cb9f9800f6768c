// SPDX-License-Identifier: Apache-2.0
//
// Communicators that are made and destroyed again and again leave nothing behind.
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <span>
#include <vector>

#include "catch.h"
#include "soak/footprint.h"
#include "support/effort.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

// Two ranks connect, sum once and disconnect, again and again. The footprint is taken after `warm_`
// cycles and at the end.
class Cycles {
 public:
  Cycles(Over over, int cycles) : over_(over), cycles_(cycles), warm_(std::min(cycles / 4, 500)) {}

  void run() {
    run_ranks(
        2, "cycles", [&](int rank) { rank_main(rank); }, std::chrono::seconds{250});
  }
  const Footprint& before() const { return before_; }
  const Footprint& after() const { return after_; }

 private:
  void rank_main(int rank) {
    try {
      for (int cycle = 0; cycle < cycles_; ++cycle) {
        next_.arrive_and_wait();
        once(rank, cycle);
      }
      next_.arrive_and_wait();
    } catch (...) {
      next_.arrive_and_drop();
      throw;
    }
  }
  // Runs between two cycles, while no rank has a communicator.
  void settle() {
    store_.emplace();
    if (done_ == warm_) before_ = Footprint::now();
    if (done_ == cycles_) after_ = Footprint::now();
    ++done_;
  }
  void once(int rank, int cycle) {
    Options options = Setup::quick_options();
    options.rank = rank;
    options.size = 2;
    options.store = &*store_;
    options.transports = {std::string(name_of(over_))};
    Communicator communicator = Communicator::connect(options);
    std::vector<std::int32_t> value{cycle + rank};
    const Buffer buffer = buffer_of(std::span(value));
    communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
    expect(value[0] == 2 * cycle + 1, "the sum is wrong");
  }
  struct Settle {
    Cycles& cycles;
    void operator()() noexcept { cycles.settle(); }
  };

  Over over_;
  int cycles_, warm_, done_ = 0;
  std::optional<MemoryStore> store_;
  Footprint before_, after_;
  std::barrier<Settle> next_{2, Settle{*this}};
};

void check_cycles(Over over, int wanted) {
  Cycles cycles(over, std::max(20, wanted * effort() / 100));
  CHECK_NOTHROW(cycles.run());
  std::printf("%s: after the first %s, in the end %s\n", std::string(name_of(over)).c_str(),
              cycles.before().describe().c_str(), cycles.after().describe().c_str());
  // The allocator itself may grow by a megabyte over thousands of cycles.
  CHECK(growth(cycles.before(), cycles.after(),
               {.resident_bytes = std::size_t{2} << 20, .descriptors = 0, .maps = 8}) == "");
}

TEST_CASE("cycles of communicators over shm leave nothing behind") {
  check_cycles(Over::shm, 9000);
}

TEST_CASE("cycles of communicators over tcp leave nothing behind") {
  check_cycles(Over::tcp, 1000);
}

}  // namespace
}  // namespace rondo::testing
