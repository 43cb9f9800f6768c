// SPDX-License-Identifier: Apache-2.0
#include "lib/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "collectives/schedules/call.h"

namespace rondo::lib {

void CheckedCall::refuse(std::string_view what, Errc code) const {
  throw Error(code, fmt::format("{} on rank {}: {}", name, rank, what));
}

void CheckedCall::check_buffer(const Buffer& b, std::string_view parameter) const {
  if (!is_valid(b.type))
    refuse(fmt::format("{}.type is {}, not a DType (0 to {})", parameter, static_cast<int>(b.type),
                       dtype_count - 1));
  if (b.count > most_elements)
    refuse(fmt::format("{}.count is {} {} elements, more than memory can hold", parameter, b.count,
                       name_of(b.type)));
  if (b.data == nullptr && b.count != 0)
    refuse(fmt::format("{}.data is null but {}.count is {}: pass memory or a count of 0", parameter,
                       parameter, b.count));
}

void CheckedCall::check_same_type(const Buffer& in, const Buffer& out) const {
  if (in.type != out.type)
    refuse(fmt::format("in is {} but out is {}: the types must be equal", name_of(in.type),
                       name_of(out.type)));
}

void CheckedCall::check_rank(int given, std::string_view parameter) const {
  if (given < 0 || given >= size)
    refuse(fmt::format("{} is {}, it must be from 0 to {}", parameter, given, size - 1));
}

void CheckedCall::check_options(const OpOptions& options) const {
  if (options.priority != Priority::bulk && options.priority != Priority::urgent)
    refuse(fmt::format("priority is {}, not bulk or urgent", static_cast<int>(options.priority)));
  if (options.deadline.count() < 0)
    refuse(fmt::format("the deadline is {} ms, it must be more than 0, or 0 for Options::deadline",
                       options.deadline.count()));
}

std::size_t CheckedCall::check_counts(std::span<const std::size_t> counts, DType type,
                                      std::string_view parameter) const {
  if (counts.size() != static_cast<std::size_t>(size))
    refuse(fmt::format("there are {} {}, there must be one for each of the {} ranks", counts.size(),
                       parameter, size));
  std::size_t total = 0;
  for (const std::size_t count : counts) {
    if (count > most_elements - total)
      refuse(fmt::format("the {} add up to more {} elements than memory can hold", parameter,
                         name_of(type)));
    total += count;
  }
  return total;
}

void CheckedCall::check_count(const Buffer& buffer, std::string_view parameter, std::size_t wanted,
                              std::string_view what) const {
  if (buffer.count != wanted)
    refuse(fmt::format("{}.count is {}, it must be {}, {}", parameter, buffer.count, what, wanted));
}

namespace {

struct Span {
  std::uintptr_t first = 0, end = 0;
};
Span span_of(const Buffer& b) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(b.data);
  return {first, first + b.count * size_of(b.type)};
}

}  // namespace

bool overlap(const Buffer& a, const Buffer& b) noexcept {
  const Span one = span_of(a), other = span_of(b);
  return one.first != one.end && other.first != other.end && one.first < other.end &&
         other.first < one.end;
}

namespace {

CheckedCall call_of(const Arguments& a) {
  return {a.traits().name, a.rank, a.size};
}

[[noreturn]] void refuse(const Arguments& a, std::string_view what) {
  call_of(a).refuse(what);
}

void check_op(const Arguments& a) {
  if (!is_valid(a.op))
    refuse(a, fmt::format("op is {}, not a ReduceOp (0 to {})", static_cast<int>(a.op),
                          reduce_op_count - 1));
  if (!supports(a.in.type, a.op))
    refuse(a,
           fmt::format(
               "{} is not defined for {}: use sum, mean, product, min or max, or an integer type",
               name_of(a.op), name_of(a.in.type)));
}

void check_scale(const Arguments& a) {
  if (!a.options->scale) return;
  if (!a.traits().reduces) refuse(a, "a scale factor applies to reductions only");
  if (is_integer(a.in.type))
    refuse(a,
           fmt::format("a scale factor needs a floating-point type, not {}", name_of(a.in.type)));
  if (!std::isfinite(*a.options->scale))
    refuse(a, fmt::format("the scale factor is {}, it must be finite", *a.options->scale));
}

void check_input_scale(const Arguments& a) {
  if (!a.options->input_scale) return;
  if (!a.traits().reduces) refuse(a, "an input scale applies to reductions only");
  if (is_integer(a.in.type))
    refuse(a,
           fmt::format("an input scale needs a floating-point type, not {}", name_of(a.in.type)));
  if (a.op != ReduceOp::sum && a.op != ReduceOp::mean)
    refuse(a, fmt::format("an input scale applies to sum and mean, not to {}: multiply the input "
                          "before the call",
                          name_of(a.op)));
  const double scale = *a.options->input_scale;
  if (!schedules::is_input_scale(a.in.type, scale))
    refuse(a, fmt::format("the input scale is {}: {}", scale,
                          a.in.type == DType::f64
                              ? "it must be finite"
                              : "it must be 0, or from 1.18e-38 to 3.4e38 in magnitude, because "
                                "products are formed in f32"));
}

// Counts the bytes of this rank's block.
std::size_t block_offset(const Arguments& a) {
  std::size_t elements = 0;
  for (const std::size_t count : a.counts.first(static_cast<std::size_t>(a.rank)))
    elements += count;
  return elements * size_of(a.in.type);
}

void check_overlap(const Arguments& a) {
  if (!overlap(a.in, a.out)) return;
  const Span in = span_of(a.in), out = span_of(a.out);
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
  const base::Traits& traits = a.traits();
  const bool gathers = traits.gathers(), scatters = traits.scatters();
  if (gathers && (a.out.count / size != a.in.count || a.out.count % size != 0))
    refuse(a, fmt::format("out.count is {}, it must be size * in.count = {} * {}", a.out.count,
                          a.size, a.in.count));
  if (scatters && (a.in.count / size != a.out.count || a.in.count % size != 0))
    refuse(a, fmt::format("in.count is {}, it must be size * out.count = {} * {}", a.in.count,
                          a.size, a.out.count));
  if (!gathers && !scatters && a.in.count != a.out.count)
    refuse(a, fmt::format("in.count is {} but out.count is {}: they must be equal", a.in.count,
                          a.out.count));
  if (traits.blocks && !gathers && !scatters && a.in.count % size != 0)
    refuse(a,
           fmt::format("in.count is {}, it must be a multiple of the {} ranks: one block for each",
                       a.in.count, a.size));
}

void check_same_device(const Arguments& a) {
  if (a.in.count == 0 || a.out.count == 0) return;
  if (std::max(a.in.device, -1) != std::max(a.out.device, -1))
    refuse(a, fmt::format("in.device is {} but out.device is {}: both buffers must be on one GPU, "
                          "or in host memory (-1)",
                          a.in.device, a.out.device));
}

// The counts by themselves, and the buffers against them.
void check_blocks(const Arguments& a) {
  const CheckedCall call = call_of(a);
  const std::size_t total = call.check_counts(a.counts, a.in.type, "counts");
  const std::size_t own = a.counts[static_cast<std::size_t>(a.rank)];
  constexpr std::string_view own_text = "the count of this rank",
                             total_text = "the sum of the counts";
  const bool gathers = a.traits().gathers();
  call.check_count(a.in, "in", gathers ? own : total, gathers ? own_text : total_text);
  call.check_count(a.out, "out", gathers ? total : own, gathers ? total_text : own_text);
}

}  // namespace

void check_arguments(const Arguments& a) {
  const CheckedCall call = call_of(a);
  const base::Traits& traits = a.traits();
  const bool reads = a.reads_in(), writes = a.writes_out();
  call.check_options(*a.options);
  if (traits.rooted()) call.check_rank(a.root, "root");
  if (a.operation == Collective::barrier) {
    check_scale(a);
    return check_input_scale(a);
  }
  if (reads) call.check_buffer(a.in, "in");
  if (writes) call.check_buffer(a.out, "out");
  if (reads && writes) {
    call.check_same_type(a.in, a.out);
    check_same_device(a);
    traits.has_counts() ? check_blocks(a) : check_counts(a);
    check_overlap(a);
  }
  if (traits.reduces) check_op(a);
  check_scale(a);
  check_input_scale(a);
}

}  // namespace rondo::lib
