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

using TypeSynonym = std::pair<std::string_view, DType>;
constexpr std::array type_synonyms{
    TypeSynonym{"double", DType::f64},      TypeSynonym{"float64", DType::f64},
    TypeSynonym{"float", DType::f32},       TypeSynonym{"float32", DType::f32},
    TypeSynonym{"half", DType::f16},        TypeSynonym{"float16", DType::f16},
    TypeSynonym{"bfloat16", DType::bf16},   TypeSynonym{"f8e4m3fn", DType::f8e4m3},
    TypeSynonym{"fp8_e4m3", DType::f8e4m3}, TypeSynonym{"float8_e4m3fn", DType::f8e4m3},
    TypeSynonym{"fp8_e5m2", DType::f8e5m2}, TypeSynonym{"float8_e5m2", DType::f8e5m2},
    TypeSynonym{"int64", DType::i64},       TypeSynonym{"uint64", DType::u64},
    TypeSynonym{"int", DType::i32},         TypeSynonym{"int32", DType::i32},
    TypeSynonym{"uint32", DType::u32},      TypeSynonym{"int8", DType::i8},
    TypeSynonym{"uint8", DType::u8},        TypeSynonym{"byte", DType::u8},
    TypeSynonym{"uint16", DType::u16},      TypeSynonym{"short", DType::i16},
    TypeSynonym{"int16", DType::i16}};

using OpSynonym = std::pair<std::string_view, ReduceOp>;
constexpr std::array op_synonyms{
    OpSynonym{"add", ReduceOp::sum},      OpSynonym{"avg", ReduceOp::mean},
    OpSynonym{"average", ReduceOp::mean}, OpSynonym{"prod", ReduceOp::product},
    OpSynonym{"mul", ReduceOp::product},  OpSynonym{"minimum", ReduceOp::min},
    OpSynonym{"maximum", ReduceOp::max},  OpSynonym{"band", ReduceOp::bit_and},
    OpSynonym{"and", ReduceOp::bit_and},  OpSynonym{"bor", ReduceOp::bit_or},
    OpSynonym{"or", ReduceOp::bit_or},    OpSynonym{"bxor", ReduceOp::bit_xor},
    OpSynonym{"xor", ReduceOp::bit_xor}};

using CollectiveSynonym = std::pair<std::string_view, Collective>;
constexpr std::array collective_synonyms{
    CollectiveSynonym{"allreduce", Collective::all_reduce},
    CollectiveSynonym{"bcast", Collective::broadcast},
    CollectiveSynonym{"allgather", Collective::all_gather},
    CollectiveSynonym{"reducescatter", Collective::reduce_scatter},
    CollectiveSynonym{"alltoall", Collective::all_to_all},
    CollectiveSynonym{"allgatherv", Collective::all_gather_v},
    CollectiveSynonym{"reducescatterv", Collective::reduce_scatter_v},
    CollectiveSynonym{"alltoallv", Collective::all_to_all_v},
    CollectiveSynonym{"recv", Collective::receive}};

template <class Enum, std::size_t Count>
std::optional<Enum> find(std::string_view text,
                         const std::array<std::pair<std::string_view, Enum>, Count>& synonyms,
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
