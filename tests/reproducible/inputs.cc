// SPDX-License-Identifier: Apache-2.0
#include "reproducible/inputs.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "collectives/kernels/reduce.h"
#include "support/values.h"

namespace rondo::testing {

namespace {

// The largest exponent of an input, so that a sum of eight inputs and its scaling do not overflow.
int most_exponent(DType type) {
  switch (type) {
    case DType::f64:
      return 60;
    case DType::f32:
    case DType::bf16:
      return 25;
    case DType::f16:
      return 9;
    default:
      return 4;
  }
}

transports::Blob random_values(DType type, int rank, std::size_t count) {
  const std::size_t bytes = size_of(type);
  const int most = most_exponent(type);
  transports::Blob values(count * bytes);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits =
        mixed(i, static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(type));
    const double mantissa = 1 + static_cast<double>(bits >> 12) * 0x1p-52;
    const int exponent = static_cast<int>(bits % static_cast<std::uint64_t>(2 * most + 1)) - most;
    const double value = std::ldexp((bits >> 10 & 1) != 0 ? -mantissa : mantissa, exponent);
    const std::uint64_t code = encode(type, value);
    std::memcpy(values.data() + i * bytes, &code,
                bytes);  // Rondo supports only little-endian processors
  }
  return values;
}

// The power of two by which inputs of types that easily overflow are multiplied. It halves from 1
// until it is at most the final factor, or until the sum of `size` inputs cannot overflow.
double load_of(double factor, int size) {
  double load = 1;
  while (load > factor && load * size > 1) load /= 2;
  return load;
}
bool overflows_early(DType type) {
  return type == DType::f16 || type == DType::f8e4m3 || type == DType::f8e5m2;
}

}  // namespace

Inputs::Inputs(DType its_type, int size, std::size_t its_count) : type(its_type), count(its_count) {
  for (int rank = 0; rank < size; ++rank) by_rank.push_back(random_values(type, rank, count));
  for (const Reduction& reduction : reductions) {
    const kernels::ScaledSum add = kernels::find_scaled_sum(type, base::Isa::scalar);
    const double scale = reduction.scale.value_or(1),
                 divide = reduction.op == ReduceOp::mean ? size : 1.0;
    const double load = overflows_early(type) ? load_of(scale / divide, size) : 1.0;
    const kernels::Finish finish{scale / load, divide};
    const auto factor = [&](std::size_t rank) {
      return load * reduction.input_scale(rank).value_or(1);
    };
    transports::Blob sum = by_rank[0];
    for (int rank = 1; rank < size; ++rank) {
      const std::byte* const pair[] = {sum.data(), by_rank[static_cast<std::size_t>(rank)].data()};
      const double factors[] = {rank == 1 ? factor(0) : 1.0,
                                factor(static_cast<std::size_t>(rank))};
      const kernels::Finish last = rank + 1 == size ? finish : kernels::Finish{};
      add(sum.data(), pair, factors, 2, count, last);
    }
    sums.push_back(std::move(sum));
  }
}

std::span<const std::byte> Inputs::sum(std::size_t reduction, std::size_t first,
                                       std::size_t elements) const {
  return std::span(sums[reduction]).subspan(first * size_of(type), elements * size_of(type));
}

std::string Inputs::difference(std::span<const std::byte> out, std::size_t reduction,
                               std::size_t first) const {
  const auto expected = sum(reduction, first, out.size() / size_of(type));
  if (base::crc32c(out) == base::crc32c(expected)) return {};
  const auto at = std::mismatch(out.begin(), out.end(), expected.begin()).first - out.begin();
  const auto element = static_cast<std::size_t>(at) / size_of(type);
  std::string bits;
  for (const auto& bytes : {out, expected}) {
    bits += bits.empty() ? " is" : ", the sum in rank order";
    for (std::size_t i = size_of(type); i-- > 0;) {
      static constexpr char digits[] = "0123456789abcdef";
      const auto byte = std::to_integer<unsigned>(bytes[element * size_of(type) + i]);
      bits.append(i + 1 == size_of(type) ? " " : "").append({digits[byte >> 4], digits[byte & 15]});
    }
  }
  return std::string(name_of(type)) + " element " + std::to_string(first + element) + bits;
}

}  // namespace rondo::testing
