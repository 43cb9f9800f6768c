// SPDX-License-Identifier: Apache-2.0
//
// The elementwise passes: forward y = (x - center) * scale + shift, backward
// dx = (dy - gradient_center) * scale + (x - center) * slope + shift.
#pragma once

#include "bn/kernels/elements.h"
#include "bn/kernels/table.h"

namespace rondo::bn {
namespace {

template <class V>
struct Line {
  V center, scale, slope, shift, gradient_center;
  RONDO_INLINE V forward(V x) const { return (x - center) * scale + shift; }
  RONDO_INLINE V backward(V x, V dy) const {
    return (dy - gradient_center) * scale + ((x - center) * slope + shift);
  }
};

template <class Machine, class T>
struct Maps {
  using R = Registers<Machine>;
  using C = Computing<Machine, T>;
  using V = typename C::Register;
  using Number = typename C::Number;
  static constexpr std::size_t step = C::step;

  static void run_forward(const void* in, void* out, std::size_t count,
                          const Coefficients& by_channel, std::size_t channel, bool streamed) {
    const T* x = static_cast<const T*>(in);
    T* y = static_cast<T*>(out);
    const Line<Number> one = line<Number>(by_channel, channel, false);
    const Line<V> all{V{} + one.center, V{} + one.scale, V{}, V{} + one.shift, V{}};
    over_run(
        y, count, streamed, [&](std::size_t i) { return all.forward(R::read(x + i)); },
        [&](std::size_t i) { return one.forward(widen(x[i])); });
  }

  static void run_backward(const void* in, const void* gradients, void* out, std::size_t count,
                           const Coefficients& by_channel, std::size_t channel, bool streamed) {
    const T *x = static_cast<const T*>(in), *dy = static_cast<const T*>(gradients);
    T* dx = static_cast<T*>(out);
    const Line<Number> one = line<Number>(by_channel, channel, true);
    const Line<V> all{V{} + one.center, V{} + one.scale, V{} + one.slope, V{} + one.shift,
                      V{} + one.gradient_center};
    over_run(
        dx, count, streamed,
        [&](std::size_t i) { return all.backward(R::read(x + i), R::read(dy + i)); },
        [&](std::size_t i) { return one.backward(widen(x[i]), widen(dy[i])); });
  }

  static void rows_forward(const void* in, void* out, std::size_t rows, std::size_t channels,
                           const Coefficients& by_channel, bool streamed) {
    const T* x = static_cast<const T*>(in);
    T* y = static_cast<T*>(out);
    for (; rows > 0; --rows, x += channels, y += channels)
      over_run(
          y, channels, streamed,
          [&](std::size_t c) { return line<V>(by_channel, c, false).forward(R::read(x + c)); },
          [&](std::size_t c) { return line<Number>(by_channel, c, false).forward(widen(x[c])); });
  }

  static void rows_backward(const void* in, const void* gradients, void* out, std::size_t rows,
                            std::size_t channels, const Coefficients& by_channel, bool streamed) {
    const T *x = static_cast<const T*>(in), *dy = static_cast<const T*>(gradients);
    T* dx = static_cast<T*>(out);
    for (; rows > 0; --rows, x += channels, dy += channels, dx += channels)
      over_run(
          dx, channels, streamed,
          [&](std::size_t c) {
            return line<V>(by_channel, c, true).backward(R::read(x + c), R::read(dy + c));
          },
          [&](std::size_t c) {
            return line<Number>(by_channel, c, true).backward(widen(x[c]), widen(dy[c]));
          });
  }

 private:
  template <class Value>
  RONDO_INLINE static Value at(const void* by_channel, std::size_t channel) {
    return load<Value>(static_cast<const Number*>(by_channel) + channel);
  }
  template <class Value>
  RONDO_INLINE static Line<Value> line(const Coefficients& of, std::size_t channel, bool backward) {
    return {at<Value>(of.center, channel), at<Value>(of.scale, channel),
            backward ? at<Value>(of.slope, channel) : Value{}, at<Value>(of.shift, channel),
            backward ? at<Value>(of.gradient_center, channel) : Value{}};
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
}  // namespace rondo::bn
