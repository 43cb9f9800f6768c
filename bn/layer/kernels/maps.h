// SPDX-License-Identifier: Apache-2.0
//
// The elementwise passes: forward y = (x - center) * scale + shift, backward
// dx = (dy - gradient_center) * scale + (x - center) * slope + shift.
#pragma once

#include "bn/layer/kernels/elements.h"
#include "bn/layer/kernels/table.h"

namespace rondo::layer {
namespace {

template <class V>
struct Line {
  V center, scale, slope, shift, gradient_center;
  template <bool backward>
  RONDO_INLINE V apply(V x, V dy) const {
    if constexpr (backward)
      return (dy - gradient_center) * scale + ((x - center) * slope + shift);
    else
      return (x - center) * scale + shift;
  }
};

template <class Machine, class T, bool backward>
struct Maps {
  using R = Registers<Machine>;
  using C = Computing<Machine, T>;
  using V = typename C::Register;
  using Number = typename C::Number;
  static constexpr std::size_t step = C::step;

  static void run(const void* in, const void* gradients, void* out, std::size_t count,
                  const Coefficients& by_channel, std::size_t channel, bool streamed) {
    const T *x = static_cast<const T*>(in), *dy = static_cast<const T*>(gradients);
    const Line<Number> one = line<Number>(by_channel, channel);
    const Line<V> all{V{} + one.center, V{} + one.scale, V{} + one.slope, V{} + one.shift,
                      V{} + one.gradient_center};
    over_run(
        static_cast<T*>(out), count, streamed, [&](std::size_t i) { return many(all, x, dy, i); },
        [&](std::size_t i) { return single(one, x, dy, i); });
  }

  static void rows(const void* in, const void* gradients, void* out, std::size_t rows,
                   std::size_t channels, const Coefficients& by_channel, bool streamed) {
    const T *x = static_cast<const T*>(in), *dy = static_cast<const T*>(gradients);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t at = row * channels;
      over_run(
          static_cast<T*>(out) + at, channels, streamed,
          [&](std::size_t c) { return many(line<V>(by_channel, c), x, dy, at + c); },
          [&](std::size_t c) { return single(line<Number>(by_channel, c), x, dy, at + c); });
    }
  }

 private:
  RONDO_INLINE static V many(const Line<V>& line, const T* x, const T* dy, std::size_t i) {
    return line.template apply<backward>(R::read(x + i), backward ? R::read(dy + i) : V{});
  }
  RONDO_INLINE static Number single(const Line<Number>& line, const T* x, const T* dy,
                                    std::size_t i) {
    return line.template apply<backward>(widen(x[i]), backward ? widen(dy[i]) : Number{});
  }
  template <class Value>
  RONDO_INLINE static Line<Value> line(const Coefficients& of, std::size_t channel) {
    const Number* const first = static_cast<const Number*>(of.lines) + channel;
    const auto at = [&](std::size_t which) { return load<Value>(first + which * of.channels); };
    return {at(0), at(1), backward ? at(2) : Value{}, at(3), backward ? at(4) : Value{}};
  }

  RONDO_INLINE static void put(T* out, V value) {
    const auto packed = R::packed(value, out);
    std::memcpy(out, &packed, sizeof packed);
  }

  template <class Many, class One>
  RONDO_INLINE static void over_run(T* out, std::size_t count, bool streamed, Many many, One one) {
    if (streamed)
      stream_run(out, count, many, one);
    else
      store_run(out, count, many, one);
  }

  // A cache line that is not filled at once would be read again. So both ends go through the cache,
  // element by element.
  template <class Many, class One>
  RONDO_INLINE static void stream_run(T* out, std::size_t count, Many many, One one) {
    constexpr std::size_t width = step * sizeof(T);
    std::size_t i = 0;
    for (; i < count && reinterpret_cast<std::uintptr_t>(out + i) % width != 0; ++i)
      narrow(one(i), out[i]);
    for (; i + step <= count; i += step) Machine::stream(out + i, R::packed(many(i), out));
    for (; i < count; ++i) narrow(one(i), out[i]);
  }

  // The last elements may not fill a register. A register that overlaps the one before covers them.
  // It is computed before anything is stored, because the output may be the input.
  template <class Many, class One>
  RONDO_INLINE static void store_run(T* out, std::size_t count, Many many, One one) {
    std::size_t i = 0;
    if (count < step) {
      for (; i < count; ++i) narrow(one(i), out[i]);
      return;
    }
    const bool rest = count % step != 0;
    V last{};
    if (rest) last = many(count - step);
    for (; i + step <= count; i += step) put(out + i, many(i));
    if (rest) put(out + count - step, last);
  }
};

}  // namespace
}  // namespace rondo::layer
