// SPDX-License-Identifier: Apache-2.0
#include "support/values.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <type_traits>

#include "base/bytes.h"

namespace rondo::testing {

namespace {

struct Format {
  int exponent_bits, mantissa_bits;
  int largest;  // sums of most_exact_ranks integers of this magnitude stay exact
};

Format format_of(DType type) {
  switch (type) {
    case DType::f64:
      return {11, 52, 100'000};
    case DType::f32:
      return {8, 23, 1000};
    case DType::f16:
      return {5, 10, 100};
    case DType::bf16:
      return {8, 7, 30};
    case DType::f8e4m3:
      return {4, 3, 2};
    default:
      return {5, 2, 1};
  }
}

// The value of a rank at a place: any integer for integer types (integer_at), small numbers for the
// others (number_at).
std::uint64_t integer_at(DType type, ReduceOp op, int rank, std::size_t place) {
  return mixed(static_cast<std::uint64_t>(type) * 16 + static_cast<std::uint64_t>(op),
               static_cast<std::uint64_t>(rank), place);
}

double number_at(DType type, ReduceOp op, int rank, std::size_t place) {
  const std::uint64_t bits = integer_at(type, op, rank, place);
  if (op == ReduceOp::product)
    return std::ldexp((bits & 4) != 0 ? -1.0 : 1.0, static_cast<int>(bits % 3) - 1);
  const int largest = format_of(type).largest;
  return static_cast<int>(bits % static_cast<std::uint64_t>(2 * largest + 1)) - largest;
}

template <class T>
T combine(ReduceOp op, T a, T b) {
  using Wide = std::uint64_t;
  switch (op) {
    case ReduceOp::product:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
      else
        return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::bit_and:
      return static_cast<T>(static_cast<Wide>(a) & static_cast<Wide>(b));
    case ReduceOp::bit_or:
      return static_cast<T>(static_cast<Wide>(a) | static_cast<Wide>(b));
    case ReduceOp::bit_xor:
      return static_cast<T>(static_cast<Wide>(a) ^ static_cast<Wide>(b));
    default:
      if constexpr (std::is_integral_v<T>)
        return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
      else
        return a + b;
  }
}

template <class T>
std::uint64_t reduce_integers(DType type, ReduceOp op, int size, std::size_t place) {
  if (op == ReduceOp::mean) {
    __extension__ __int128 sum = 0;
    for (int rank = 0; rank < size; ++rank)
      sum += static_cast<T>(integer_at(type, op, rank, place));
    return static_cast<std::uint64_t>(sum / size);
  }
  T value = static_cast<T>(integer_at(type, op, 0, place));
  for (int rank = 1; rank < size; ++rank)
    value = combine(op, value, static_cast<T>(integer_at(type, op, rank, place)));
  return static_cast<std::uint64_t>(value);
}

std::uint64_t reduce_numbers(DType type, ReduceOp op, int size, double scale, std::size_t place) {
  double value = number_at(type, op, 0, place);
  for (int rank = 1; rank < size; ++rank)
    value = combine(op, value, number_at(type, op, rank, place));
  const double divisor = op == ReduceOp::mean ? size : 1;
  if (type == DType::f64 || type == DType::f32) return encode(type, value * scale / divisor);
  return encode(
      type, static_cast<float>(value) * static_cast<float>(scale) / static_cast<float>(divisor));
}

std::uint64_t reduced_at(DType type, ReduceOp op, int size, double scale, std::size_t place) {
  switch (type) {
    case DType::i64:
      return reduce_integers<std::int64_t>(type, op, size, place);
    case DType::u64:
      return reduce_integers<std::uint64_t>(type, op, size, place);
    case DType::i32:
      return reduce_integers<std::int32_t>(type, op, size, place);
    case DType::u32:
      return reduce_integers<std::uint32_t>(type, op, size, place);
    case DType::i16:
      return reduce_integers<std::int16_t>(type, op, size, place);
    case DType::u16:
      return reduce_integers<std::uint16_t>(type, op, size, place);
    case DType::i8:
      return reduce_integers<std::int8_t>(type, op, size, place);
    case DType::u8:
      return reduce_integers<std::uint8_t>(type, op, size, place);
    default:
      return reduce_numbers(type, op, size, scale, place);
  }
}

// Keeps patterns, because all ranks use them again and again. Thread-safe.
class PatternCache {
 public:
  template <class Function>
  const transports::Blob& find(DType type, ReduceOp op, int rank_or_size, double scale,
                               const Function& bits_at) {
    const std::lock_guard lock(mutex_);
    transports::Blob& pattern = patterns_[{type, op, rank_or_size, scale}];
    if (pattern.empty()) pattern = make(type, bits_at);
    return pattern;
  }

 private:
  template <class Function>
  static transports::Blob make(DType type, const Function& bits_at) {
    const std::size_t bytes = size_of(type);
    transports::Blob pattern(period * bytes);
    for (std::size_t place = 0; place < period; ++place) {
      std::byte element[8];
      base::store_little<std::uint64_t>(element, bits_at(place));
      std::memcpy(pattern.data() + place * bytes, element, bytes);
    }
    return pattern;
  }

  std::mutex mutex_;
  std::map<std::tuple<DType, ReduceOp, int, double>, transports::Blob> patterns_;
};

}  // namespace

std::uint64_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c) noexcept {
  std::uint64_t value = 0x243f6a8885a308d3u;
  for (const std::uint64_t part : {a, b, c}) {
    value = (value ^ part) * 0x9e3779b97f4a7c15u;
    value ^= value >> 29;
    value *= 0xd6e8feb86659fd93u;
    value ^= value >> 32;
  }
  return value;
}

std::uint64_t encode(DType type, double value) {
  const auto [exponent_bits, mantissa_bits, largest] = format_of(type);
  const std::uint64_t sign =
      std::signbit(value) ? std::uint64_t{1} << (exponent_bits + mantissa_bits) : 0;
  if (value == 0) return sign;
  if (!std::isfinite(value)) {
    const std::uint64_t infinity = ((std::uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
    return sign + infinity + (std::isnan(value) ? (std::uint64_t{1} << mantissa_bits) - 1 : 0);
  }
  const int bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = 0;
  std::frexp(value, &exponent);
  exponent = std::max(exponent - 1, 1 - bias);
  // Adding the hidden bit of the significand increments the exponent field. So does a significand
  // that rounds up to the next power of two.
  const double significand = std::nearbyint(std::ldexp(std::abs(value), mantissa_bits - exponent));
  return sign + (static_cast<std::uint64_t>(exponent + bias - 1) << mantissa_bits) +
         static_cast<std::uint64_t>(significand);
}

const transports::Blob& contribution(DType type, ReduceOp op, int rank) {
  static PatternCache cache;
  return cache.find(type, op, rank, 1, [&](std::size_t place) {
    return is_integer(type) ? integer_at(type, op, rank, place)
                            : encode(type, number_at(type, op, rank, place));
  });
}

const transports::Blob& reduction(DType type, ReduceOp op, int size, std::optional<double> scale) {
  static PatternCache cache;
  const double factor = scale.value_or(1);
  return cache.find(type, op, size, factor,
                    [&](std::size_t place) { return reduced_at(type, op, size, factor, place); });
}

void tile(std::byte* out, const transports::Blob& pattern, std::size_t element_bytes,
          std::size_t first, std::size_t count) {
  for (std::size_t done = 0; done < count;) {
    const std::size_t place = (first + done) % period,
                      some = std::min(count - done, period - place);
    std::memcpy(out + done * element_bytes, pattern.data() + place * element_bytes,
                some * element_bytes);
    done += some;
  }
}

std::string difference(const std::byte* data, const transports::Blob& pattern,
                       std::size_t element_bytes, std::size_t first, std::size_t count) {
  for (std::size_t done = 0; done < count;) {
    const std::size_t place = (first + done) % period,
                      some = std::min(count - done, period - place);
    const std::byte *is = data + done * element_bytes,
                    *must = pattern.data() + place * element_bytes;
    for (std::size_t i = 0; i < some && std::memcmp(is, must, some * element_bytes) != 0; ++i) {
      if (std::memcmp(is + i * element_bytes, must + i * element_bytes, element_bytes) == 0)
        continue;
      std::string text = "element " + std::to_string(done + i) + " is";
      for (std::size_t b = 0; b < element_bytes; ++b)
        text.append(" ").append(std::to_string(std::to_integer<int>(is[i * element_bytes + b])));
      text += ", must be";
      for (std::size_t b = 0; b < element_bytes; ++b)
        text.append(" ").append(std::to_string(std::to_integer<int>(must[i * element_bytes + b])));
      return text + " (bytes)";
    }
    done += some;
  }
  return {};
}

}  // namespace rondo::testing
