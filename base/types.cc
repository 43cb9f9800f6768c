// SPDX-License-Identifier: Apache-2.0
#include <rondo/types.h>

#include <array>
#include <utility>

#include "base/traits.h"

namespace rondo {

namespace {

// In the order of the enums.
constexpr std::array<std::string_view, dtype_count> type_names{
    "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64",
    "u64", "i32", "u32", "i8",   "u8",     "u16",    "i16"};
constexpr std::array<std::string_view, reduce_op_count> op_names{
    "sum", "mean", "product", "min", "max", "bit_and", "bit_or", "bit_xor"};

template <class Enum>
using Synonym = std::pair<std::string_view, Enum>;
constexpr Synonym<DType> type_synonyms[] = {
    {"double", DType::f64},      {"float64", DType::f64},
    {"float", DType::f32},       {"float32", DType::f32},
    {"half", DType::f16},        {"float16", DType::f16},
    {"bfloat16", DType::bf16},   {"f8e4m3fn", DType::f8e4m3},
    {"fp8_e4m3", DType::f8e4m3}, {"float8_e4m3fn", DType::f8e4m3},
    {"fp8_e5m2", DType::f8e5m2}, {"float8_e5m2", DType::f8e5m2},
    {"int64", DType::i64},       {"uint64", DType::u64},
    {"int", DType::i32},         {"int32", DType::i32},
    {"uint32", DType::u32},      {"int8", DType::i8},
    {"uint8", DType::u8},        {"byte", DType::u8},
    {"uint16", DType::u16},      {"short", DType::i16},
    {"int16", DType::i16}};

constexpr Synonym<ReduceOp> op_synonyms[] = {
    {"add", ReduceOp::sum},      {"avg", ReduceOp::mean},     {"average", ReduceOp::mean},
    {"prod", ReduceOp::product}, {"mul", ReduceOp::product},  {"minimum", ReduceOp::min},
    {"maximum", ReduceOp::max},  {"band", ReduceOp::bit_and}, {"and", ReduceOp::bit_and},
    {"bor", ReduceOp::bit_or},   {"or", ReduceOp::bit_or},    {"bxor", ReduceOp::bit_xor},
    {"xor", ReduceOp::bit_xor}};

constexpr Synonym<Collective> collective_synonyms[] = {
    {"allreduce", Collective::all_reduce},
    {"bcast", Collective::broadcast},
    {"allgather", Collective::all_gather},
    {"reducescatter", Collective::reduce_scatter},
    {"alltoall", Collective::all_to_all},
    {"allgatherv", Collective::all_gather_v},
    {"reducescatterv", Collective::reduce_scatter_v},
    {"alltoallv", Collective::all_to_all_v},
    {"recv", Collective::receive}};

template <class Enum, std::size_t Count>
std::optional<Enum> find(std::string_view text, const Synonym<Enum> (&synonyms)[Count],
                         int values) noexcept {
  for (int value = 0; value < values; ++value)
    if (name_of(static_cast<Enum>(value)) == text) return static_cast<Enum>(value);
  for (const auto& [name, value] : synonyms)
    if (name == text) return value;
  return std::nullopt;
}

}  // namespace

std::string_view name_of(DType type) noexcept {
  return is_valid(type) ? type_names[static_cast<std::size_t>(type)] : "unknown";
}

std::string_view name_of(ReduceOp op) noexcept {
  return is_valid(op) ? op_names[static_cast<std::size_t>(op)] : "unknown";
}

std::string_view name_of(WaitCause cause) noexcept {
  constexpr std::array<std::string_view, wait_cause_count> names{"ranks", "transfer", "gpu",
                                                                 "messages"};
  const auto index = static_cast<std::size_t>(cause);
  return index < names.size() ? names[index] : "unknown";
}

std::string_view name_of(Collective operation) noexcept {
  return base::traits_of(operation).name;
}

std::optional<DType> parse_dtype(std::string_view text) noexcept {
  return find(text, type_synonyms, dtype_count);
}

std::optional<ReduceOp> parse_reduce_op(std::string_view text) noexcept {
  return find(text, op_synonyms, reduce_op_count);
}

std::optional<Collective> parse_collective(std::string_view text) noexcept {
  return find(text, collective_synonyms, collective_count);
}

}  // namespace rondo
