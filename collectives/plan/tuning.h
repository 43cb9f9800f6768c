// SPDX-License-Identifier: Apache-2.0
//
// The planner's numbers that are measured or chosen, not derived. The costs of links are in
// rondo/constants.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rondo::plan {

// Frame sizes that the planner tries, in bytes. The payload of a frame is a segment divided by the
// slices of the algorithm. Over loopback, two ranks take 300 us for 1 MiB in frames of 512 KiB, and
// 540 us in frames of 256 KiB. Four ranks take the same time in frames of 64 KiB to 1 MiB.
inline constexpr std::array<std::size_t, 2> frame_ladder = {std::size_t{512} << 10,
                                                            std::size_t{1} << 20};

// The largest frame that it tries for a two-level all-reduce, reduce or broadcast. The ranks of a
// host sum or share a whole segment before its first frame leaves, so large segments keep the
// network waiting. All-reduce on two hosts of four ranks (network namespaces on an AMD EPYC with 2
// cores, November 2026), 16 MiB in frames of 32, 64, 128 and 512 KiB: 140.8, 140.5, 140.5 and
// 142.8 ms over 1 Gbit/s, of which the bytes need 140.6; 38.0, 25.8, 23.9 and 29.3 ms over 20
// Gbit/s.
inline constexpr std::size_t most_two_level_frame = std::size_t{128} << 10;

// The smallest and the largest number of segments in flight. The smallest is 2, so that a late rank
// does not stop the others.
inline constexpr std::uint32_t least_depth = 2;
inline constexpr std::uint32_t most_depth = 64;

// How much longer bytes take that go to several peers in turn than a stream to one peer. Measured
// between four hosts of 1 Gbit/s on a busy machine, alternating with a ring: two-shot takes 1.26
// times as long at 256 KiB and 1.06 times at 4 MiB, halving 1.15 and 1.16 times.
inline constexpr double turning = 1.1;

// Two-shot is not chosen for more ranks: each opens a connection to every other.
inline constexpr int most_two_shot_ranks = 32;

// Segments are multiples of this many bytes times the slices, so that slices start on cache lines.
inline constexpr std::size_t segment_grain = 64;

}  // namespace rondo::plan
