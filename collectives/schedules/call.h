// SPDX-License-Identifier: Apache-2.0
//
// One call of an operation as every rank must make it, and its text in messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <rondo/types.h>

#include "base/clock.h"
#include "base/traits.h"
#include "collectives/schedules/schedule.h"

namespace rondo::schedules {

// Identifies a call: every field must be the same on all ranks.
struct Signature {
  Collective operation = Collective::barrier;
  DType type = DType::u8;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::star;
  // For operations with counts by rank: a short hash of the counts, for messages.
  std::uint32_t root = 0;
  // Elements of the smaller buffer: of one block for all_gather, reduce_scatter, gather and
  // scatter, of each buffer for all_to_all. With counts by rank: of all blocks together.
  std::uint64_t count = 0;
  double scale = 1;
  // A hash of what else must be the same: the counts of all ranks, segment elements, depth,
  // reproducible, checksum.
  std::uint64_t plan = 0;
  bool on_device = false;  // the buffers are in memory of a GPU

  bool operator==(const Signature&) const = default;
};

// One call on one rank. The buffers must live until the operation is done.
struct Call {
  Signature signature;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t in_bytes = 0, out_bytes = 0;  // what this rank reads and writes
  // Multiplies this rank's input as it is loaded; ranks may differ. 1 unless sums_floats().
  double input_scale = 1;
  Priority priority = Priority::bulk;
  // Elements of a segment; where is_blocked(), its part of the largest block.
  std::size_t segment_elements = 1;
  // By rank, where has_counts(). The caller keeps them until start() returns.
  std::span<const std::size_t> counts = {};
  std::uint32_t depth = 1;
  nanoseconds time_limit{};
  bool unattended = false;  // nobody will wait for it soon: the background thread drives at once
  std::string_view tag;
};

// The buffer holds one block for each rank; slice i of a segment is part of rank i's block.
constexpr bool is_blocked(Collective operation) noexcept {
  return base::traits_of(operation).blocks;
}
// Signature::count is the count of one block.
constexpr bool counts_one_block(Collective operation) noexcept {
  return base::traits_of(operation).counts_one_block();
}
// The elements that are cut into segments, from Signature::count: those of one block, or of a
// buffer without blocks. Not for operations with counts by rank.
constexpr std::size_t cut_elements(Collective operation, std::size_t count,
                                   std::size_t ranks) noexcept {
  return is_blocked(operation) && !counts_one_block(operation) ? count / ranks : count;
}
// Each rank has its own count.
constexpr bool has_counts(Collective operation) noexcept {
  return base::traits_of(operation).has_counts();
}
// Ranks that share memory can do it without a schedule (collectives/direct).
constexpr bool has_direct_form(Collective operation) noexcept {
  return !base::traits_of(operation).messages;
}
constexpr bool is_reducing(Collective operation) noexcept {
  return base::traits_of(operation).reduces;
}
constexpr bool has_root(Collective operation) noexcept {
  return base::traits_of(operation).rooted();
}
// Whether the call is a sum or mean of floats: only there may ranks scale their inputs.
constexpr bool sums_floats(const Signature& s) noexcept {
  return is_reducing(s.operation) && !is_integer(s.type) &&
         (s.op == ReduceOp::sum || s.op == ReduceOp::mean);
}
// Whether a product with this scale can be formed: in f64 for f64, else in f32, where the scale
// must not overflow or lose digits.
bool is_input_scale(DType type, double scale) noexcept;
// The root for make_schedule: 0 for operations without a root.
inline int schedule_root(const Signature& signature) noexcept {
  return has_root(signature.operation) ? static_cast<int>(signature.root) : 0;
}

// Whether two ranks made the same call; algorithm and plan may differ.
bool same_arguments(const Signature& a, const Signature& b) noexcept;
// "64 MiB f32 sum", "10 f32, root 1", "10007 f32 sum": what tells two calls apart.
std::string describe_arguments(const Signature& signature);
// "all_reduce #41 (64 MiB f32 sum)"; with a transport's name: "(64 MiB f32 sum, ring over tcp)".
// "urgent" comes first in the urgent lane, and the tag stands in quotes after the number.
std::string describe_call(const Signature& signature, std::uint64_t number, Priority lane,
                          std::string_view tag = {}, std::string_view transport = {});

}  // namespace rondo::schedules
