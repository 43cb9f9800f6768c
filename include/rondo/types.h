// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/export.h>
// First: it reports a compiler that is not set to C++20.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>

namespace rondo {

// Element types. f8e4m3 and f8e5m2 are the OCP 8-bit floats (OFP8 1.0); bf16 is the upper half of
// an f32.
enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8e4m3,
  f8e5m2,
  i64,  // the first integer type: see is_integer
  u64,
  i32,
  u32,
  i8,
  u8,
  u16,
  i16
};
inline constexpr int dtype_count = 14;

// mean is the sum divided once by the number of ranks. The mean of integers is exact, rounded
// towards zero: its sum does not wrap. min and max propagate NaN. Integer sums and products wrap.
// bit_and, bit_or and bit_xor exist for integer types only.
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

// bulk: gradients and other large buffers. urgent: small messages that must not queue behind bulk.
enum class Priority : std::uint8_t { bulk, urgent };
inline constexpr int lane_count = 2;

// The cause for which the oldest operation of a lane waits.
enum class WaitCause : std::uint8_t {
  ranks,     // a rank of which this one hears first-hand has not called the collective
  transfer,  // they have called it: bytes are on their way, or ranks further away are late
  gpu,       // this rank's GPU has not yet done what was enqueued before the call
  messages   // the oldest of send, receive and the like, whatever it lacks
};
inline constexpr std::size_t wait_cause_count = 4;

// Borrowed memory: `count` elements of `type` at `data`. Host memory when device < 0, else the
// ordinal of a GPU. The memory must stay valid and, for an output, untouched until the operation
// that uses it is done.
struct Buffer {
  void* data = nullptr;
  std::size_t count = 0;
  DType type = DType::f32;
  int device = -1;
};

constexpr bool is_valid(DType type) noexcept {
  return static_cast<int>(type) < dtype_count;
}
constexpr bool is_valid(ReduceOp op) noexcept {
  return static_cast<int>(op) < reduce_op_count;
}

// Bytes of one element; 0 for a value outside the enum.
constexpr std::size_t size_of(DType type) noexcept {
  switch (type) {
    case DType::f64:
    case DType::i64:
    case DType::u64:
      return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::u16:
    case DType::i16:
      return 2;
    case DType::f8e4m3:
    case DType::f8e5m2:
    case DType::i8:
    case DType::u8:
      return 1;
  }
  return 0;
}

constexpr bool is_integer(DType type) noexcept {
  return type >= DType::i64 && is_valid(type);
}

// False for the bit operations on floating-point types.
constexpr bool supports(DType type, ReduceOp op) noexcept {
  if (!is_valid(type) || !is_valid(op)) return false;
  const bool bits = op == ReduceOp::bit_and || op == ReduceOp::bit_or || op == ReduceOp::bit_xor;
  return !bits || is_integer(type);
}

// Returns the name as written above ("bf16", "bit_and", "all_reduce"), or "unknown" for a value
// outside the enum.
RONDO_API std::string_view name_of(DType type) noexcept;
RONDO_API std::string_view name_of(ReduceOp op) noexcept;
RONDO_API std::string_view name_of(WaitCause cause) noexcept;  // "ranks"
RONDO_API std::string_view name_of(Collective operation) noexcept;

// The inverse of name_of. Understands common synonyms (float, half, bfloat16, prod, avg,
// allreduce).
RONDO_API std::optional<DType> parse_dtype(std::string_view text) noexcept;
RONDO_API std::optional<ReduceOp> parse_reduce_op(std::string_view text) noexcept;
RONDO_API std::optional<Collective> parse_collective(std::string_view text) noexcept;

// The DType of a C++ type: integers by width and sign, float, double. std::byte and char are u8.
// Other types have none. A program may add its own half or bfloat16:
//
//   template <> struct rondo::DTypeOf<my::half> {
//     static constexpr rondo::DType value = rondo::DType::f16;
//   };
template <class T>
struct DTypeOf {};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<std::byte> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<char> {
  static constexpr DType value = DType::u8;
};
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> &&
         (sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8)) struct DTypeOf<T> {
  static constexpr DType value = sizeof(T) == 8   ? (std::is_signed_v<T> ? DType::i64 : DType::u64)
                                 : sizeof(T) == 4 ? (std::is_signed_v<T> ? DType::i32 : DType::u32)
                                 : sizeof(T) == 2 ? (std::is_signed_v<T> ? DType::i16 : DType::u16)
                                 : std::is_signed_v<T> ? DType::i8
                                                       : DType::u8;
};

template <class T>
concept HasDType = requires {
  DTypeOf<std::remove_cv_t<T>>::value;
};

// Returns a host buffer over contiguous elements: a std::vector, std::array, std::span, array, or
// another contiguous range that is not a temporary. Elements may be const; then the buffer may only
// be an input ("in").
template <class Range>
constexpr Buffer buffer_of(Range&& elements) noexcept {
  if constexpr (!std::ranges::contiguous_range<Range> || !std::ranges::sized_range<Range>) {
    static_assert(
        std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range>,
        "rondo::buffer_of takes contiguous elements: std::vector (not of bool), std::array, "
        "std::span or an array. For one value: std::span(&value, 1).");
    return {};
  } else if constexpr (!std::ranges::borrowed_range<Range>) {
    static_assert(
        std::ranges::borrowed_range<Range>,
        "rondo::buffer_of borrows memory: name the container first, a temporary one is gone "
        "before the operation runs.");
    return {};
  } else if constexpr (!HasDType<std::ranges::range_value_t<Range>>) {
    static_assert(
        HasDType<std::ranges::range_value_t<Range>>,
        "rondo::buffer_of: this element type has no DType. Possible are float, double, integers of "
        "8 to 64 bits, std::byte, and types with a rondo::DTypeOf. To move other memory as bytes: "
        "rondo::Buffer{pointer, bytes, rondo::DType::u8}.");
    return {};
  } else {
    using Value = std::remove_cv_t<std::ranges::range_value_t<Range>>;
    return {const_cast<Value*>(std::ranges::data(elements)),
            static_cast<std::size_t>(std::ranges::size(elements)), DTypeOf<Value>::value, -1};
  }
}

}  // namespace rondo
