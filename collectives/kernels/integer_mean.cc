// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/integer_mean.h"

#include <cstring>

#include "collectives/kernels/integer_sum.h"

namespace rondo::kernels {

namespace {

template <class T>
void split(std::byte* to, const std::byte* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof value, sizeof value);
    IntegerSum<T> sum;
    sum.add(value);
    std::memcpy(to + i * sizeof sum, &sum, sizeof sum);
  }
}

template <class T>
void join(std::byte* to, const std::byte* from, std::size_t count, std::size_t ranks) {
  for (std::size_t i = 0; i < count; ++i) {
    IntegerSum<T> sum;
    std::memcpy(&sum, from + i * sizeof sum, sizeof sum);
    const T value = sum.mean(static_cast<std::int64_t>(ranks));
    std::memcpy(to + i * sizeof value, &value, sizeof value);
  }
}

template <class T>
void reduce(std::byte* out, const std::byte* const* in, std::size_t sources, std::size_t count,
            const Finish& finish) {
  const auto ranks = static_cast<std::int64_t>(finish.divide);
  for (std::size_t i = 0; i < count; ++i) {
    IntegerSum<T> sum;
    for (std::size_t s = 0; s < sources; ++s) {
      T value;
      std::memcpy(&value, in[s] + i * sizeof value, sizeof value);
      sum.add(value);
    }
    const T value = sum.mean(ranks);
    std::memcpy(out + i * sizeof value, &value, sizeof value);
  }
}

template <class T>
constexpr IntegerMean mean_of{IntegerSum<T>::parts, &split<T>, &join<T>, &reduce<T>};

}  // namespace

const IntegerMean* find_integer_mean(DType type, ReduceOp op) noexcept {
  if (op != ReduceOp::mean) return nullptr;
  switch (type) {
    case DType::i64:
      return &mean_of<std::int64_t>;
    case DType::u64:
      return &mean_of<std::uint64_t>;
    case DType::i32:
      return &mean_of<std::int32_t>;
    case DType::u32:
      return &mean_of<std::uint32_t>;
    case DType::i16:
      return &mean_of<std::int16_t>;
    case DType::u16:
      return &mean_of<std::uint16_t>;
    case DType::i8:
      return &mean_of<std::int8_t>;
    case DType::u8:
      return &mean_of<std::uint8_t>;
    default:
      return nullptr;
  }
}

}  // namespace rondo::kernels
