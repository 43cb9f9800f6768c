// SPDX-License-Identifier: Apache-2.0
//
// The two sums of a forward pass (x - point and its square) and of a backward pass (dy and dy * (x
// - mean)). Elements of 16 bits have at most 11 binary digits. A few at a time are added in f32 and
// then in f64: converting each to f64 would take longer than reading it.
#pragma once

#include "bn/layer/kernels/elements.h"

namespace rondo::layer {
namespace {

template <class D>
struct Pair {
  D first, second;
  template <bool backward>
  RONDO_INLINE void take(D x, D dy, D point) {
    const D away = x - point, factor = backward ? dy : away;
    first += factor;
    second += factor * away;
  }
  RONDO_INLINE void add(const Pair& other) {
    first += other.first;
    second += other.second;
  }
};

// A step of elements, their point and their sums, in two registers of f64.
template <class Machine, class T>
struct Wide {
  using R = Registers<Machine>;
  using D = typename R::D;
  // Rows at once, so that the sums in memory are touched less often.
  static constexpr std::size_t rows = 4;
  static constexpr std::size_t steps = 64;  // between two calls of add_to

  struct Value {
    D low, high;
  };
  RONDO_INLINE static Value read(const T* from) {
    Value value;
    R::read_wide(from, value.low, value.high);
    return value;
  }
  RONDO_INLINE static Value same(double value) { return {D{} + value, D{} + value}; }
  RONDO_INLINE static Value points(const double* from) {
    return {load<D>(from), load<D>(from + Machine::lanes)};
  }

  Pair<D> low{}, high{};
  template <bool backward>
  RONDO_INLINE void take(const Value& x, const Value& dy, const Value& point) {
    low.template take<backward>(x.low, dy.low, point.low);
    high.template take<backward>(x.high, dy.high, point.high);
  }
  RONDO_INLINE void add_to(Pair<D>& low_sums, Pair<D>& high_sums) const {
    low_sums.add(low);
    high_sums.add(high);
  }
};

// A step of elements and their sums in one register of f32.
template <class Machine, class T>
struct Short {
  using R = Registers<Machine>;
  using D = typename R::D;
  using Value = typename R::F;
  static constexpr std::size_t rows = 8;
  static constexpr std::size_t steps = 16;

  RONDO_INLINE static Value read(const T* from) { return R::read(from); }
  RONDO_INLINE static Value same(double value) { return Value{} + static_cast<float>(value); }
  RONDO_INLINE static Value points(const double* from) {
    Value value{};
    for (std::size_t i = 0; i < 2 * Machine::lanes; ++i) value[i] = static_cast<float>(from[i]);
    return value;
  }

  Pair<Value> sums{};
  template <bool backward>
  RONDO_INLINE void take(const Value& x, const Value& dy, const Value& point) {
    sums.template take<backward>(x, dy, point);
  }
  RONDO_INLINE void add_to(Pair<D>& low_sums, Pair<D>& high_sums) const {
    low_sums.first += Machine::low(sums.first);
    low_sums.second += Machine::low(sums.second);
    high_sums.first += Machine::high(sums.first);
    high_sums.second += Machine::high(sums.second);
  }
};

template <class Machine, class T, bool short_floats = sizeof(T) == 2>
struct StepOf {
  using type = Wide<Machine, T>;
};
template <class Machine, class T>
struct StepOf<Machine, T, true> {
  using type = Short<Machine, T>;
};

template <class Machine, class T, bool backward>
struct Sums {
  using Step = typename StepOf<Machine, T>::type;
  using Value = typename Step::Value;
  using R = Registers<Machine>;
  using D = typename R::D;
  static constexpr std::size_t step = Machine::lanes * 2;

  static void run(const void* elements, const void* gradients, std::size_t count, double point,
                  double& first, double& second) {
    const T *x = static_cast<const T*>(elements), *dy = static_cast<const T*>(gradients);
    const Value at = Step::same(point);
    over_run(
        count, first, second, [&](Step& sums, std::size_t i) { take(sums, x, dy, i, at); },
        [&](Pair<double>& sums, std::size_t i) { take(sums, x, dy, i, point); });
  }

  static void rows(const void* elements, const void* gradients, std::size_t rows,
                   std::size_t channels, const double* points, double* first, double* second) {
    const T *x = static_cast<const T*>(elements), *dy = static_cast<const T*>(gradients);
    std::size_t row = 0;
    for (; row + Step::rows <= rows; row += Step::rows)
      some_rows<Step::rows>(x, dy, row * channels, channels, points, first, second);
    for (; row < rows; ++row) some_rows<1>(x, dy, row * channels, channels, points, first, second);
  }

 private:
  RONDO_INLINE static void take(Step& sums, const T* x, const T* dy, std::size_t i,
                                const Value& point) {
    const Value value = Step::read(x + i);
    sums.template take<backward>(value, backward ? Step::read(dy + i) : value, point);
  }
  RONDO_INLINE static void take(Pair<double>& sums, const T* x, const T* dy, std::size_t i,
                                double point) {
    sums.take<backward>(widen(x[i]), backward ? widen(dy[i]) : 0, point);
  }

  // Two chains of additions, so that one does not wait for the other.
  template <class Many, class One>
  RONDO_INLINE static void over_run(std::size_t count, double& first, double& second, Many many,
                                    One one) {
    Pair<D> low{}, high{};
    std::size_t i = 0;
    while (i + step <= count) {
      Step even{}, odd{};
      const std::size_t left = (count - i) / step,
                        steps = left < 2 * Step::steps ? left : 2 * Step::steps;
      const std::size_t end = i + steps * step;
      for (; i + 2 * step <= end; i += 2 * step) {
        many(even, i);
        many(odd, i + step);
      }
      if (i < end) {
        many(even, i);
        i += step;
      }
      even.add_to(low, high);
      odd.add_to(low, high);
    }
    Pair<double> rest{};
    for (; i < count; ++i) one(rest, i);
    first += Machine::total(low.first + high.first) + rest.first;
    second += Machine::total(low.second + high.second) + rest.second;
  }

  template <std::size_t Rows>
  static void some_rows(const T* x, const T* dy, std::size_t from, std::size_t channels,
                        const double* points, double* first, double* second) {
    over_channels(
        channels, first, second,
        [&](Step& sums, std::size_t c) {
          const Value at = Step::points(points + c);
          for (std::size_t row = 0; row < Rows; ++row)
            take(sums, x, dy, from + row * channels + c, at);
        },
        [&](Pair<double>& sums, std::size_t c) {
          for (std::size_t row = 0; row < Rows; ++row)
            take(sums, x, dy, from + row * channels + c, points[c]);
        });
  }

  template <class Many, class One>
  RONDO_INLINE static void over_channels(std::size_t channels, double* first, double* second,
                                         Many many, One one) {
    std::size_t c = 0;
    for (; c + step <= channels; c += step) {
      const std::size_t next = c + Machine::lanes;
      Step some{};
      many(some, c);
      Pair<D> low{load<D>(first + c), load<D>(second + c)};
      Pair<D> high{load<D>(first + next), load<D>(second + next)};
      some.add_to(low, high);
      std::memcpy(first + c, &low.first, sizeof(D));
      std::memcpy(second + c, &low.second, sizeof(D));
      std::memcpy(first + next, &high.first, sizeof(D));
      std::memcpy(second + next, &high.second, sizeof(D));
    }
    for (; c < channels; ++c) {
      Pair<double> sums{first[c], second[c]};
      one(sums, c);
      first[c] = sums.first;
      second[c] = sums.second;
    }
  }
};

}  // namespace
}  // namespace rondo::layer
