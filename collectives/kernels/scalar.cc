// SPDX-License-Identifier: Apache-2.0
//
// The reference: one element at a time, written to be read. Processors without AVX2 use it too.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "collectives/kernels/elements.h"
#include "collectives/kernels/table.h"

namespace rondo::kernels {
namespace {

template <class Element, class Op>
void reduce(std::byte* out, const std::byte* const* in, std::size_t sources, std::size_t count,
            const Finish& finish) {
  using Stored = typename Element::Stored;
  const auto value_at = [&](std::size_t source, std::size_t index) {
    Stored stored;
    std::memcpy(&stored, in[source] + index * sizeof stored, sizeof stored);
    return Element::decode(stored);
  };
  const bool finishing = finish.multiply != 1 || finish.divide != 1;
  for (std::size_t i = 0; i < count; ++i) {
    auto value = value_at(0, i);
    for (std::size_t s = 1; s < sources; ++s) value = Op::apply(value, value_at(s, i));
    if (finishing) value = Element::finish(value, finish);
    const Stored stored = Element::encode(with_one_nan(value));
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
  }
}

template <class Element>
void scaled_sum(std::byte* out, const std::byte* const* in, const double* factors,
                std::size_t sources, std::size_t count, const Finish& finish) {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  const bool finishing = finish.multiply != 1 || finish.divide != 1;
  for (std::size_t i = 0; i < count; ++i) {
    Value sum = 0;
    for (std::size_t s = 0; s < sources; ++s) {
      Stored stored;
      std::memcpy(&stored, in[s] + i * sizeof stored, sizeof stored);
      const Value value = scaled(Element::decode(stored), factors[s]);
      sum = s == 0 ? value : sum + value;
    }
    if (finishing) sum = Element::finish(sum, finish);
    const Stored stored = Element::encode(with_one_nan(sum));
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
  }
}

// One of the types is f32, so there is only one rounding: in the cast or in encode().
template <class From, class To>
void convert(std::byte* out, const std::byte* in, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    typename From::Stored stored;
    std::memcpy(&stored, in + i * sizeof stored, sizeof stored);
    const typename To::Stored result =
        To::encode(static_cast<typename To::Value>(From::decode(stored)));
    std::memcpy(out + i * sizeof result, &result, sizeof result);
  }
}

template <class Element>
ReduceFunction pick(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::mean:
      return &reduce<Element, Sum>;
    case ReduceOp::product:
      return &reduce<Element, Product>;
    case ReduceOp::min:
      return &reduce<Element, Min>;
    case ReduceOp::max:
      return &reduce<Element, Max>;
    default:
      break;
  }
  if constexpr (std::is_integral_v<typename Element::Value>) {
    if (op == ReduceOp::bit_and) return &reduce<Element, And>;
    if (op == ReduceOp::bit_or) return &reduce<Element, Or>;
    if (op == ReduceOp::bit_xor) return &reduce<Element, Xor>;
  }
  return nullptr;
}

template <class Element>
ConvertFunction pick_short(bool narrowing) noexcept {
  return narrowing ? &convert<Native<float>, Element> : &convert<Element, Native<float>>;
}

}  // namespace

ReduceFunction scalar_kernel(DType type, ReduceOp op) noexcept {
  switch (type) {
    case DType::f64:
      return pick<Native<double>>(op);
    case DType::f32:
      return pick<Native<float>>(op);
    case DType::f16:
      return pick<ElementF16>(op);
    case DType::bf16:
      return pick<ElementBF16>(op);
    case DType::f8e4m3:
      return pick<ElementF8E4M3>(op);
    case DType::f8e5m2:
      return pick<ElementF8E5M2>(op);
    case DType::i64:
      return pick<Native<std::int64_t>>(op);
    case DType::u64:
      return pick<Native<std::uint64_t>>(op);
    case DType::i32:
      return pick<Native<std::int32_t>>(op);
    case DType::u32:
      return pick<Native<std::uint32_t>>(op);
    case DType::i8:
      return pick<Native<std::int8_t>>(op);
    case DType::u8:
      return pick<Native<std::uint8_t>>(op);
    case DType::i16:
      return pick<Native<std::int16_t>>(op);
    case DType::u16:
      return pick<Native<std::uint16_t>>(op);
  }
  return nullptr;
}

ScaledSum scalar_scaled_sum(DType type) noexcept {
  switch (type) {
    case DType::f64:
      return &scaled_sum<Native<double>>;
    case DType::f32:
      return &scaled_sum<Native<float>>;
    case DType::f16:
      return &scaled_sum<ElementF16>;
    case DType::bf16:
      return &scaled_sum<ElementBF16>;
    case DType::f8e4m3:
      return &scaled_sum<ElementF8E4M3>;
    case DType::f8e5m2:
      return &scaled_sum<ElementF8E5M2>;
    default:
      return nullptr;
  }
}

ConvertFunction scalar_convert(DType from, DType to) noexcept {
  const bool narrowing = from == DType::f32;
  if (!narrowing && to != DType::f32) return nullptr;
  switch (narrowing ? to : from) {
    case DType::f64:
      return narrowing ? &convert<Native<float>, Native<double>>
                       : &convert<Native<double>, Native<float>>;
    case DType::f16:
      return pick_short<ElementF16>(narrowing);
    case DType::bf16:
      return pick_short<ElementBF16>(narrowing);
    case DType::f8e4m3:
      return pick_short<ElementF8E4M3>(narrowing);
    case DType::f8e5m2:
      return pick_short<ElementF8E5M2>(narrowing);
    default:
      return nullptr;
  }
}

}  // namespace rondo::kernels
