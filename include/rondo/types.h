// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <rondo/export.h>

namespace rondo {

// Element types. f8e4m3 and f8e5m2 are the OCP 8-bit floats (OFP8 1.0); bf16 is the upper half of an f32.
enum class DType : std::uint8_t { f64, f32, f16, bf16, f8e4m3, f8e5m2, i64, u64, i32, u32, i8, u8 };
inline constexpr int dtype_count = 12;

// mean is sum divided once by the number of ranks (integers: truncated towards zero). min and max propagate NaN.
// Integer sums and products wrap. bit_and, bit_or and bit_xor are defined for integer types only.
enum class ReduceOp : std::uint8_t { sum, mean, product, min, max, bit_and, bit_or, bit_xor };
inline constexpr int reduce_op_count = 8;

// The operations of a communicator.
enum class Collective : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  barrier,
  gather,
  scatter,
  all_to_all,
  all_gather_v,
  reduce_scatter_v,
  all_to_all_v,
  send,
  receive
};
inline constexpr int collective_count = 14;

// bulk: gradients and other large buffers. urgent: small messages that must not queue behind them.
enum class Priority : std::uint8_t { bulk, urgent };
inline constexpr int lane_count = 2;

// Borrowed memory: `count` elements of `type` at `data`. Host memory when device < 0, else the ordinal of a GPU.
// The memory must stay valid and, for an output, untouched until the operation that uses it is done.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType type = DType::f32;
  int device = -1;
};

// Bytes of one element.
RONDO_API std::size_t size_of(DType type) noexcept;
RONDO_API bool is_integer(DType type) noexcept;
RONDO_API bool is_valid(DType type) noexcept;
RONDO_API bool is_valid(ReduceOp op) noexcept;
// False for the bit operations on floating-point types.
RONDO_API bool supports(DType type, ReduceOp op) noexcept;

// Names as they are written above ("bf16", "bit_and", "all_reduce"); "unknown" for a value outside the enum.
RONDO_API std::string_view name_of(DType type) noexcept;
RONDO_API std::string_view name_of(ReduceOp op) noexcept;
RONDO_API std::string_view name_of(Collective operation) noexcept;

// The inverse of name_of; common synonyms (float, half, bfloat16, prod, avg, allreduce) are understood.
RONDO_API std::optional<DType> parse_dtype(std::string_view text) noexcept;
RONDO_API std::optional<ReduceOp> parse_reduce_op(std::string_view text) noexcept;
RONDO_API std::optional<Collective> parse_collective(std::string_view text) noexcept;

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<std::uint64_t> {
  static constexpr DType value = DType::u64;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};

// A host buffer over contiguous elements: buffer_of(std::span(vector)).
template <class T>
Buffer buffer_of(std::span<T> elements) noexcept {
  return Buffer{elements.data(), elements.size(), DTypeOf<T>::value, -1};
}

}  // namespace rondo
