// SPDX-License-Identifier: Apache-2.0
//
// The planner's numbers that come from measurement rather than from derivation. All of them stand here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace rondo {

// Frame sizes that the planner tries; the payload of a frame is a segment divided by the slices of the algorithm.
inline constexpr std::array<std::size_t, 3> frame_ladder = {std::size_t{64} << 10, std::size_t{128} << 10,
                                                            std::size_t{256} << 10};

// Segments in flight: at least this many where there are several, so that a late rank does not stop the others, and at most that many.
inline constexpr std::uint32_t least_depth = 2;
inline constexpr std::uint32_t most_depth = 64;

// Segments are multiples of slices times this, so that slices start on cache lines.
inline constexpr std::size_t segment_grain = 64;

}  // namespace rondo
