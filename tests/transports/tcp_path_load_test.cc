// SPDX-License-Identifier: Apache-2.0
//
// Which path a piece takes: the arithmetic, with simulated links.
#include "transports/tcp/path_load.h"

#include <algorithm>
#include <array>

#include "catch.h"

namespace rondo::testing {
namespace {

constexpr std::size_t piece = 64 << 10;

// A link that sends a fixed number of bytes a second, and acknowledges at once.
struct PlayedLink {
  double bytes_per_second = 0, queue = 0, carried = 0;
  void pass(nanoseconds time) {
    const double sent =
        std::min(queue, bytes_per_second * std::chrono::duration<double>(time).count());
    queue -= sent;
    carried += sent;
  }
};

// Two paths, on which never more than `window` bytes are under way in all.
struct PlayedLoad {
  std::array<PlayedLink, 2> links;
  std::array<tcp::PathLoad, 2> loads;
  base::TimePoint now{std::chrono::hours{1}};

  void run(milliseconds time, double window) {
    constexpr microseconds step{50};
    for (auto left = microseconds(time); left > microseconds{0}; left -= step) {
      now += step;
      for (PlayedLink& link : links) link.pass(step);
      if (left.count() % 250 == 0)
        for (std::size_t i = 0; i < 2; ++i)
          loads[i].queued(now, static_cast<std::size_t>(links[i].queue));
      while (links[0].queue + links[1].queue + piece <= window) {
        const std::size_t i = loads[1].finish(now, piece) < loads[0].finish(now, piece) ? 1 : 0;
        links[i].queue += piece;
        loads[i].took(now, piece);
      }
    }
  }
  double share(std::size_t path) const {
    return links[path].carried / (links[0].carried + links[1].carried);
  }
};

}  // namespace

TEST_CASE("paths share pieces as their networks are fast, also when few are under way") {
  const double window = GENERATE(6.0, 12.0, 64.0) * piece;
  const bool swapped = GENERATE(false, true);
  PlayedLoad played;
  // The drivers report the same speed for both.
  played.loads = {tcp::PathLoad(10'000), tcp::PathLoad(10'000)};
  played.links[swapped ? 1 : 0].bytes_per_second = 125e6;
  played.links[swapped ? 0 : 1].bytes_per_second = 62.5e6;
  played.run(milliseconds{1000}, window);
  const double carried = played.links[0].carried + played.links[1].carried;
  CAPTURE(window, swapped, played.share(0), carried);
  CHECK(played.share(swapped ? 1 : 0) == Approx(2.0 / 3).margin(0.05));
  CHECK(carried > 0.95 * 187.5e6);
}

TEST_CASE("a path whose rate changes is found out") {
  PlayedLoad played;
  played.links[0].bytes_per_second = played.links[1].bytes_per_second = 100e6;
  played.run(milliseconds{500}, 12.0 * piece);
  CHECK(played.share(0) == Approx(0.5).margin(0.05));
  for (PlayedLink& link : played.links) link.carried = 0;
  played.links[1].bytes_per_second = 10e6;
  played.run(milliseconds{500}, 12.0 * piece);
  CHECK(played.share(0) > 0.85);
  for (PlayedLink& link : played.links) link.carried = 0;
  played.links[1].bytes_per_second = 100e6;
  played.run(milliseconds{2000}, 12.0 * piece);
  CHECK(played.share(1) > 0.35);
}

TEST_CASE("a queue that ran empty shows only that a path is not slower") {
  tcp::PathLoad load(1000);
  base::TimePoint now{std::chrono::hours{1}};
  load.took(now, 1000);
  load.queued(now + milliseconds{5}, 0);
  CHECK(load.bytes_per_second() == Approx(125e6));
  now += milliseconds{6};
  load.took(now, 10'000'000);
  load.queued(now + milliseconds{10}, 0);
  CHECK(load.bytes_per_second() > 125e6);
}

TEST_CASE("before anything is measured the interface's speed counts") {
  const base::TimePoint now{std::chrono::hours{1}};
  CHECK(tcp::PathLoad(1000).bytes_per_second() == Approx(125e6));
  CHECK(tcp::PathLoad(2500).finish(now, piece) < tcp::PathLoad(1000).finish(now, piece));
  tcp::PathLoad load(1000);
  load.took(now, 125'000);
  CHECK(load.finish(now, 125'000) - now == milliseconds{2});
  CHECK(load.finish(now + milliseconds{5}, 125'000) - now == milliseconds{6});
  // Nothing moves. The path becomes slow, but its rate never falls below the lowest one.
  for (int i = 0; i < 1000; ++i) load.queued(now + milliseconds{2 * i}, 1 << 20);
  CHECK(load.bytes_per_second() >= 1e6);
}

}  // namespace rondo::testing
