// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/layout.h"

#include <vector>

#include "catch.h"

using namespace rondo;

namespace {

// Every element of the buffer lies in exactly one slice of one segment.
void check_cover(std::size_t count, std::size_t segment, std::uint32_t slices, bool blocked) {
  INFO("count " << count << " segment " << segment << " slices " << slices << " blocked "
                << blocked);
  const schedules::Layout layout(count, segment, slices, blocked);
  std::vector<int> seen(blocked ? count * slices : count, 0);
  for (std::uint64_t s = 0; s < layout.segments(); ++s) {
    for (std::uint32_t i = 0; i < slices; ++i) {
      const schedules::Range in_buffer = layout.in_buffer(s, i),
                             in_staging = layout.in_staging(s, i);
      REQUIRE(in_buffer.offset + in_buffer.count <= seen.size());
      REQUIRE(in_buffer.count == in_staging.count);
      REQUIRE(in_staging.offset + in_staging.count <= layout.segment_span());
      for (std::size_t e = 0; e < in_buffer.count; ++e) ++seen[in_buffer.offset + e];
    }
    CHECK(layout.in_buffer(s, slices).count == 0);
  }
  for (const int times : seen) REQUIRE(times == 1);
}

}  // namespace

TEST_CASE("segments and slices cover a buffer once") {
  for (const std::size_t count : {0, 1, 2, 6, 7, 8, 100, 1001})
    for (const std::size_t segment : {1, 3, 7, 64, 5000})
      for (const std::uint32_t slices : {1u, 2u, 7u, 8u})
        for (const bool blocked : {false, true}) check_cover(count, segment, slices, blocked);
}

TEST_CASE("segments cover blocks of different sizes once") {
  const std::vector<std::vector<std::size_t>> shapes = {
      {0, 5, 5, 105, 106}, {0, 0, 0}, {0, 7}, {0, 1000, 1000}, {0, 3, 6, 9}};
  for (const std::vector<std::size_t>& offsets : shapes)
    for (const std::size_t segment : {1, 3, 7, 64, 5000}) {
      const schedules::Layout layout(offsets, segment);
      std::vector<int> seen(offsets.back(), 0);
      for (std::uint64_t s = 0; s < layout.segments(); ++s)
        for (std::uint32_t i = 0; i + 1 < offsets.size(); ++i) {
          const schedules::Range in_buffer = layout.in_buffer(s, i),
                                 in_staging = layout.in_staging(s, i);
          REQUIRE(in_buffer.count <= segment);
          REQUIRE(in_buffer.offset == offsets[i] + layout.in_block(s, i));
          REQUIRE(in_buffer.offset + in_buffer.count <= offsets[i + 1]);
          REQUIRE(in_buffer.count == in_staging.count);
          REQUIRE(in_staging.offset + in_staging.count <= layout.segment_span());
          for (std::size_t e = 0; e < in_buffer.count; ++e) ++seen[in_buffer.offset + e];
        }
      CHECK(layout.in_buffer(0, static_cast<std::uint32_t>(offsets.size() - 1)).count == 0);
      for (const int times : seen) REQUIRE(times == 1);
    }
}

TEST_CASE("an empty buffer has one empty segment") {
  CHECK(schedules::Layout(0, 10, 4, false).segments() == 1);
  CHECK(schedules::Layout(0, 10, 4, true).segments() == 1);
}

TEST_CASE("offsets beyond 4 GiB do not wrap") {
  const std::size_t count = (std::size_t{1} << 40) + 5;
  const schedules::Layout layout(count, std::size_t{1} << 20, 4, false);
  CHECK(layout.segments() == (std::uint64_t{1} << 20) + 1);
  CHECK(layout.in_buffer(layout.segments() - 1, 0).offset == std::size_t{1} << 40);
  const schedules::Layout blocks(std::size_t{3} << 30, std::size_t{1} << 20, 8, true);
  CHECK(blocks.in_buffer(0, 7).offset == std::size_t{21} << 30);
}
