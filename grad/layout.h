// SPDX-License-Identifier: Apache-2.0
//
// The layout says where each gradient lies and which bucket it travels in. It is a pure function of
// parameters, caps and the expected order of readiness, so all ranks have the same. Addresses and
// cuts follow from parameters and caps alone; the order decides only when buckets start.
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
  // The buckets that it lies in, ascending. Empty only in an arena without bytes.
  std::vector<std::size_t> buckets;
};

// A range of bytes of an arena.
struct BucketRange {
  std::size_t arena = 0;
  std::size_t offset = 0, bytes = 0;
  std::vector<std::size_t> parameters;  // that have bytes in it, by address
  std::vector<std::size_t> completed;   // those of them that have no bytes in a later bucket
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

// Caps are multiples of cap_unit. first_bucket_bytes holds for the bucket at the start of each
// arena. Buckets start in the order in which their last gradients are expected, which need not be
// the order of addresses.
GradientLayout make_layout(std::span<const Parameter> parameters, std::vector<std::size_t> order,
                           std::size_t first_bucket_bytes, std::size_t bucket_bytes);

// Returns the reverse of registration: backward passes go from the last layer to the first.
std::vector<std::size_t> reverse_order(std::size_t parameters);

// Explains why this is not an order of parameters, in which each number below order.size() appears
// once: "parameter 17 appears twice". Empty if it is one.
std::string problem_of_order(std::span<const std::size_t> order);

}  // namespace rondo::grad
