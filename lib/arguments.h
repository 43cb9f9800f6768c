// SPDX-License-Identifier: Apache-2.0
//
// Checks the arguments of an operation before anything starts: of collectives here, of messages in
// point.cc, with the same functions. Each throws Error(invalid_argument or unsupported), which
// names rank and operation, the given value and what is possible. Thread-safe: the functions keep
// nothing.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include <rondo/error.h>
#include <rondo/options.h>
#include <rondo/types.h>

#include "base/traits.h"

namespace rondo::lib {

// The most elements of one buffer: sums of counts, and their bytes, then fit std::size_t.
inline constexpr std::size_t most_elements = std::size_t{1} << 50;

// One call. Messages about it begin with "all_reduce on rank 3: ".
struct CheckedCall {
  std::string_view name;
  int rank = 0;
  int size = 1;

  [[noreturn]] void refuse(std::string_view what, Errc code = Errc::invalid_argument) const;
  // name: that of the parameter, "in".
  void check_buffer(const Buffer& buffer, std::string_view name) const;
  void check_same_type(const Buffer& in, const Buffer& out) const;
  // Throws unless `given` is a rank. name: "root", "the peer".
  void check_rank(int given, std::string_view name) const;
  // Checks priority and deadline.
  void check_options(const OpOptions& options) const;
  // Throws unless there is one count for each rank; returns their sum. name: "counts", "send
  // counts".
  std::size_t check_counts(std::span<const std::size_t> counts, DType type,
                           std::string_view name) const;
  // Throws unless buffer.count is `wanted`. what: "the sum of the counts".
  void check_count(const Buffer& buffer, std::string_view name, std::size_t wanted,
                   std::string_view what) const;
};

// Whether buffers share any byte.
bool overlap(const Buffer& a, const Buffer& b) noexcept;

struct Arguments {
  int rank = 0;
  int size = 1;
  Collective operation = Collective::barrier;
  Buffer in, out;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  const OpOptions* options = nullptr;
  std::span<const std::size_t> counts = {};  // if has_counts()

  const base::Traits& traits() const noexcept { return base::traits_of(operation); }
  // Whether this rank reads in, or writes out.
  bool reads_in() const noexcept { return base::holds_some(traits().in, rank == root); }
  bool writes_out() const noexcept { return base::holds_some(traits().out, rank == root); }
  // The GPU that its buffers are on; negative: they are in host memory.
  int device() const noexcept {
    if (reads_in() && (in.count != 0 || !writes_out())) return in.device;
    return writes_out() ? out.device : -1;
  }
};

void check_arguments(const Arguments& arguments);

}  // namespace rondo::lib
