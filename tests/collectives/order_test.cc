// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/order.h"

#include <array>
#include <set>
#include <utility>
#include <vector>

#include "catch.h"

using namespace rondo;

namespace {

struct Frame {
  std::uint64_t segment;
  std::uint32_t frame;
};

std::vector<Frame> walk(const schedules::FrameTable& table, std::uint64_t segments) {
  std::vector<Frame> frames;
  for (schedules::FrameOrder order(table, segments); !order.done(); order.advance())
    frames.push_back({order.segment(), order.frame()});
  return frames;
}

std::vector<std::uint32_t> every_round(std::uint32_t rounds) {
  std::vector<std::uint32_t> list;
  for (std::uint32_t round = 1; round <= rounds; ++round) list.push_back(round);
  return list;
}

}  // namespace

TEST_CASE("every frame comes once, by key, then segment, then list order") {
  const std::vector<std::vector<std::uint32_t>> links = {{1},    {3},          {1, 1, 1},
                                                         {1, 4}, {2, 2, 5, 6}, every_round(14)};
  for (const auto& rounds : links) {
    const std::uint32_t total = rounds.back() + 1;
    for (const std::uint32_t depth : {1u, 2u, 3u, 4u, 7u, 16u, 100u}) {
      const schedules::FrameTable table(rounds, total, depth);
      REQUIRE(table.frames() == rounds.size());
      for (const std::uint64_t segments : {1u, 2u, 5u, 33u}) {
        const auto frames = walk(table, segments);
        REQUIRE(frames.size() == segments * rounds.size());
        std::set<std::pair<std::uint64_t, std::uint32_t>> seen;
        std::array<std::uint64_t, 3> before{};
        for (const Frame& f : frames) {
          REQUIRE(f.segment < segments);
          REQUIRE(seen.emplace(f.segment, f.frame).second);
          const std::array<std::uint64_t, 3> now = {
              f.segment * total + std::uint64_t{rounds[f.frame] - 1} * depth, f.segment, f.frame};
          REQUIRE(before <= now);
          before = now;
        }
      }
    }
  }
}

TEST_CASE("no more than depth segments are under way") {
  for (const std::uint32_t rounds : {1u, 2u, 6u, 14u, 126u}) {
    for (const std::uint32_t depth : {1u, 2u, 4u, 9u, 64u}) {
      const schedules::FrameTable table(every_round(rounds), rounds, depth);
      std::uint64_t oldest = 0;
      std::vector<std::uint32_t> done(40, 0);
      for (const Frame& f : walk(table, done.size())) {
        REQUIRE(f.segment < oldest + schedules::segment_window(depth));
        ++done[f.segment];
        while (oldest < done.size() && done[oldest] == rounds) ++oldest;
      }
    }
  }
}

TEST_CASE("with depth 1 one segment follows the other") {
  const schedules::FrameTable table(every_round(6), 6, 1);
  std::uint64_t place = 0;
  for (const Frame& f : walk(table, 9)) {
    CHECK(f.segment == place / 6);
    CHECK(f.frame == place % 6);
    ++place;
  }
}

TEST_CASE("a link without frames, a buffer without segments and depth 0") {
  CHECK(schedules::FrameOrder(schedules::FrameTable({}, 4, 2), 10).done());
  const schedules::FrameTable table(every_round(2), 2, 2);
  CHECK(schedules::FrameOrder(table, 0).done());
  CHECK(schedules::FrameOrder().done());
  const schedules::FrameTable zero(every_round(2), 2, 0);
  CHECK(walk(zero, 3).size() == 6);
  CHECK(schedules::segment_window(0) == 1);
}

TEST_CASE("segment numbers beyond 32 bits") {
  const schedules::FrameTable table(every_round(1), 1, 4);
  schedules::FrameOrder order(table, std::uint64_t{1} << 40);
  for (int i = 0; i < 1000; ++i) order.advance();
  CHECK(order.segment() == 1000);
  CHECK_FALSE(order.done());
}
