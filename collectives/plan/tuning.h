// SPDX-License-Identifier: Apache-2.0
//
// The planner's numbers that come from measurement rather than from derivation. All of them stand
// here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rondo::plan {

// Frame sizes that the planner tries. The payload of a frame is a segment divided by the slices of
// the algorithm. Over loopback, two ranks take 300 us for 1 MiB in frames of 512 KiB and 540 in
// frames of 256 KiB. Four ranks do not care from 64 KiB to 1 MiB.
inline constexpr std::array<std::size_t, 2> frame_ladder = {std::size_t{512} << 10,
                                                            std::size_t{1} << 20};

// Segments in flight: at least this many where there are several, so that a late rank does not stop
// the others, and at most that many.
inline constexpr std::uint32_t least_depth = 2;
inline constexpr std::uint32_t most_depth = 64;

// Time of bytes that go to several peers in turn, against a stream to one. Between four hosts of 1
// Gbit/s, on a busy machine, in turns with a ring: two-shot takes 1.26 times as long at 256 KiB
// and 1.06 at 4 MiB, halving 1.15 and 1.16.
inline constexpr double turning = 1.1;

// Two-shot is not chosen for more ranks: each opens a connection to every other.
inline constexpr int most_two_shot_ranks = 32;

// Segments are multiples of slices times this, so that slices start on cache lines.
inline constexpr std::size_t segment_grain = 64;

}  // namespace rondo::plan
