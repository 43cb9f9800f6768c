// SPDX-License-Identifier: Apache-2.0
#include "lib/arguments.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace rondo::lib {

namespace {

[[noreturn]] void refuse(const Arguments& a, std::string_view what,
                         Errc code = Errc::invalid_argument) {
  throw Error(code, fmt::format("{} on rank {}: {}", name_of(a.operation), a.rank, what));
}

void check_buffer(const Arguments& a, const Buffer& b, std::string_view name) {
  if (!is_valid(b.type))
    refuse(a, fmt::format("{}.type is {}, not a DType (0 to {})", name, static_cast<int>(b.type),
                          moved_dtype_count - 1));
  if (b.device >= 0)
    refuse(a,
           fmt::format("{}.device is {}: this build moves host memory only; copy to the host or "
                       "pass device -1",
                       name, b.device),
           Errc::unsupported);
  if (b.count > std::numeric_limits<std::size_t>::max() / 2 / size_of(b.type))
    refuse(a, fmt::format("{}.count is {} {} elements, more than memory can hold", name, b.count,
                          name_of(b.type)));
  if (b.data == nullptr && b.count != 0)
    refuse(a, fmt::format("{}.data is null but {}.count is {}: pass memory or a count of 0", name,
                          name, b.count));
}

void check_op(const Arguments& a) {
  if (!is_valid(a.op))
    refuse(a, fmt::format("op is {}, not a ReduceOp (0 to {})", static_cast<int>(a.op),
                          reduce_op_count - 1));
  if (static_cast<int>(a.in.type) >= dtype_count)
    refuse(a, fmt::format("{} cannot be reduced, only moved: convert to another type, or name the "
                          "type that the bits "
                          "have (f16, bf16)",
                          name_of(a.in.type)));
  if (!supports(a.in.type, a.op))
    refuse(a,
           fmt::format(
               "{} is not defined for {}: use sum, mean, product, min or max, or an integer type",
               name_of(a.op), name_of(a.in.type)));
}

void check_scale(const Arguments& a) {
  if (a.options->scale && !a.traits().reduces)
    refuse(a, "a scale factor applies to reductions only");
  if (!a.options->scale) return;
  if (is_integer(a.in.type))
    refuse(a,
           fmt::format("a scale factor needs a floating-point type, not {}", name_of(a.in.type)));
  if (!std::isfinite(*a.options->scale))
    refuse(a, fmt::format("the scale factor is {}, it must be finite", *a.options->scale));
}

struct Span {
  std::uintptr_t first = 0, end = 0;
};
Span span_of(const Buffer& b) {
  const auto first = reinterpret_cast<std::uintptr_t>(b.data);
  return {first, first + b.count * size_of(b.type)};
}

// Of this rank's block, in bytes.
std::size_t block_offset(const Arguments& a) {
  std::size_t elements = 0;
  for (const std::size_t count : a.counts.first(static_cast<std::size_t>(a.rank)))
    elements += count;
  return elements * size_of(a.in.type);
}

void check_overlap(const Arguments& a) {
  const Span in = span_of(a.in), out = span_of(a.out);
  if (in.first == in.end || out.first == out.end || in.end <= out.first || out.end <= in.first)
    return;
  const std::size_t rank = static_cast<std::size_t>(a.rank);
  const bool by_counts = a.traits().has_counts();
  std::uintptr_t place = in.first;  // where out must be, to be in place
  std::string_view rule = "out.data == in.data";
  if (a.traits().scatters()) {
    place = in.first + (by_counts ? block_offset(a) : rank * (out.end - out.first));
    rule = by_counts ? "out.data == in.data + the counts of the ranks before this one"
                     : "out.data == in.data + rank * out.count";
  } else if (a.traits().gathers()) {
    place = in.first - (by_counts ? block_offset(a) : rank * (in.end - in.first));
    rule = by_counts ? "in.data == out.data + the counts of the ranks before this one"
                     : "in.data == out.data + rank * in.count";
  }
  if (out.first != place)
    refuse(a, fmt::format("in and out overlap; they must be apart, or in place: {}", rule));
}

void check_counts(const Arguments& a) {
  const auto size = static_cast<std::size_t>(a.size);
  const bool gathers = a.traits().gathers(), scatters = a.traits().scatters();
  if (gathers && (a.out.count / size != a.in.count || a.out.count % size != 0))
    refuse(a, fmt::format("out.count is {}, it must be size * in.count = {} * {}", a.out.count,
                          a.size, a.in.count));
  if (scatters && (a.in.count / size != a.out.count || a.in.count % size != 0))
    refuse(a, fmt::format("in.count is {}, it must be size * out.count = {} * {}", a.in.count,
                          a.size, a.out.count));
  if (!gathers && !scatters && a.in.count != a.out.count)
    refuse(a, fmt::format("in.count is {} but out.count is {}: they must be equal", a.in.count,
                          a.out.count));
  if (a.traits().blocks && !gathers && !scatters && a.in.count % size != 0)
    refuse(a,
           fmt::format("in.count is {}, it must be a multiple of the {} ranks: one block for each",
                       a.in.count, a.size));
}

// The counts by themselves, and the buffers against them.
void check_blocks(const Arguments& a) {
  if (a.counts.size() != static_cast<std::size_t>(a.size))
    refuse(a, fmt::format("there are {} counts, there must be one for each of the {} ranks",
                          a.counts.size(), a.size));
  const std::size_t most = std::numeric_limits<std::size_t>::max() / 2 / size_of(a.in.type);
  std::size_t total = 0;
  for (const std::size_t count : a.counts) {
    if (count > most - total)
      refuse(a, fmt::format("the counts are more {} elements than memory can hold",
                            name_of(a.in.type)));
    total += count;
  }
  const std::size_t own = a.counts[static_cast<std::size_t>(a.rank)];
  const bool gathers = a.traits().gathers();
  const std::size_t in = gathers ? own : total, out = gathers ? total : own;
  constexpr std::string_view own_text = "the count of this rank",
                             total_text = "the sum of the counts";
  if (a.in.count != in)
    refuse(a, fmt::format("in.count is {}, it must be {}, {}", a.in.count,
                          gathers ? own_text : total_text, in));
  if (a.out.count != out)
    refuse(a, fmt::format("out.count is {}, it must be {}, {}", a.out.count,
                          gathers ? total_text : own_text, out));
}

}  // namespace

void check_arguments(const Arguments& a) {
  if (a.options->priority != Priority::bulk && a.options->priority != Priority::urgent)
    refuse(a, fmt::format("priority is {}, not bulk or urgent",
                          static_cast<int>(a.options->priority)));
  if (a.options->deadline.count() < 0)
    refuse(a, fmt::format("the deadline is {} ms, it cannot be negative",
                          a.options->deadline.count()));
  if (a.traits().rooted() && (a.root < 0 || a.root >= a.size))
    refuse(a, fmt::format("root is {}, it must be from 0 to {}", a.root, a.size - 1));
  if (a.operation == Collective::barrier) return check_scale(a);
  if (a.reads_in()) check_buffer(a, a.in, "in");
  if (a.writes_out()) check_buffer(a, a.out, "out");
  if (a.reads_in() && a.writes_out()) {
    if (a.in.type != a.out.type)
      refuse(a, fmt::format("in is {} but out is {}: the types must be equal", name_of(a.in.type),
                            name_of(a.out.type)));
    a.traits().has_counts() ? check_blocks(a) : check_counts(a);
    check_overlap(a);
  }
  if (a.traits().reduces) check_op(a);
  check_scale(a);
}

}  // namespace rondo::lib
