// SPDX-License-Identifier: Apache-2.0
//
// Which gradient lies where, and what travels together: a pure function of parameters, caps and the
// expected order of readiness, so that all ranks have the same layout. Addresses and cuts follow
// from parameters and caps alone; the order of readiness decides only when buckets start.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <rondo/parameters.h>

namespace rondo::grad {

// All gradients of one type, back to back in the reverse of their registration.
struct Arena {
  DType type = DType::f32;
  std::size_t bytes = 0;
};

struct GradientPlace {
  std::size_t arena = 0;
  std::size_t offset = 0, bytes = 0;
  std::size_t position = 0;  // in the expected order
  std::vector<std::size_t>
      buckets;  // that it lies in, ascending; none only in an arena without bytes
};

// A range of bytes of an arena.
struct BucketRange {
  std::size_t arena = 0;
  std::size_t offset = 0, bytes = 0;
  std::vector<std::size_t>
      parameters;                      // that lie in it, at least with a part, ascending by address
  std::vector<std::size_t> completed;  // those that lie in no bucket after this one
};

// The part of a parameter in a bucket.
struct GradientPiece {
  std::size_t offset = 0, bytes = 0;  // in the arena
};

struct GradientLayout {
  std::vector<std::size_t> order;  // expected order of readiness
  std::vector<Arena> arenas;
  std::vector<GradientPlace> places;  // by parameter
  std::vector<BucketRange> buckets;   // in the order in which they start

  GradientPiece piece(std::size_t bucket, std::size_t parameter) const noexcept;
};

inline constexpr std::size_t cap_unit = 64;

// Caps are multiples of cap_unit. The bucket at the start of each arena has the smaller cap.
// Buckets start in the order in which their last gradients are expected, which need not be the
// order of addresses.
GradientLayout make_layout(std::span<const Parameter> parameters, std::vector<std::size_t> order,
                           std::size_t first_bucket_bytes, std::size_t bucket_bytes);

// Reverse of registration: backward passes go from the last layer to the first.
std::vector<std::size_t> reverse_order(std::size_t parameters);

// Whether each number below order.size() comes once.
bool is_permutation(std::span<const std::size_t> order);

// One line for each bucket and each parameter in it.
std::string describe(const GradientLayout& layout, std::span<const Parameter> parameters);

}  // namespace rondo::grad
