// SPDX-License-Identifier: Apache-2.0
//
// The two sums of a forward pass (x - point and its square) and of a backward pass (dy and dy * (x
// - mean)). Elements of 16 bits have at most 11 binary digits. A few at a time are added in f32 and
// then in f64: converting each to f64 would take longer than reading it.
#pragma once

#include "bn/kernels/elements.h"

namespace rondo::bn {
namespace {

template <class D>
struct Pair {
  D first, second;
  RONDO_INLINE void moments(D x, D point) {
    const D difference = x - point;
    first += difference;
    second += difference * difference;
  }
  RONDO_INLINE void gradients(D x, D dy, D mean) {
    first += dy;
    second += dy * (x - mean);
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
  RONDO_INLINE void moments(const Value& x, const Value& point) {
    low.moments(x.low, point.low);
    high.moments(x.high, point.high);
  }
  RONDO_INLINE void gradients(const Value& x, const Value& dy, const Value& mean) {
    low.gradients(x.low, dy.low, mean.low);
    high.gradients(x.high, dy.high, mean.high);
  }
  RONDO_INLINE void add_to(Pair<D>& low_sums, Pair<D>& high_sums) const {
    low_sums.add(low);
    high_sums.add(high);
  }
};

// The same in one register of f32.
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
  RONDO_INLINE void moments(const Value& x, const Value& point) { sums.moments(x, point); }
  RONDO_INLINE void gradients(const Value& x, const Value& dy, const Value& mean) {
    sums.gradients(x, dy, mean);
  }
  RONDO_INLINE void add_to(Pair<D>& low_sums, Pair<D>& high_sums) const {
    low_sums.first += Machine::low(sums.first);
    low_sums.second += Machine::low(sums.second);
    high_sums.first += Machine::high(sums.first);
    high_sums.second += Machine::high(sums.second);
  }
};

template <class Machine, class T>
struct StepOf {
  using type = Wide<Machine, T>;
};
template <class Machine>
struct StepOf<Machine, Half> {
  using type = Short<Machine, Half>;
};
template <class Machine>
struct StepOf<Machine, Brain> {
  using type = Short<Machine, Brain>;
};

template <class Machine, class T>
struct Sums {
  using Step = typename StepOf<Machine, T>::type;
  using Value = typename Step::Value;
  using R = Registers<Machine>;
  using D = typename R::D;
  static constexpr std::size_t step = Machine::lanes * 2;

  static void run_moments(const void* elements, std::size_t count, double point, double& first,
                          double& second) {
    const T* x = static_cast<const T*>(elements);
    const Value at = Step::same(point);
    over_run(
        count, first, second,
        [&](Step& sums, std::size_t i) { sums.moments(Step::read(x + i), at); },
        [&](Pair<double>& sums, std::size_t i) { sums.moments(widen(x[i]), point); });
  }

  static void run_gradients(const void* elements, const void* gradients, std::size_t count,
                            double mean, double& first, double& second) {
    const T *x = static_cast<const T*>(elements), *dy = static_cast<const T*>(gradients);
    const Value at = Step::same(mean);
    over_run(
        count, first, second,
        [&](Step& sums, std::size_t i) {
          sums.gradients(Step::read(x + i), Step::read(dy + i), at);
        },
        [&](Pair<double>& sums, std::size_t i) {
          sums.gradients(widen(x[i]), widen(dy[i]), mean);
        });
  }

  static void rows_moments(const void* elements, std::size_t rows, std::size_t channels,
                           const double* point, double* first, double* second) {
    const T* x = static_cast<const T*>(elements);
    for (; rows >= Step::rows; rows -= Step::rows, x += Step::rows * channels)
      some_moments<Step::rows>(x, channels, point, first, second);
    for (; rows > 0; --rows, x += channels) some_moments<1>(x, channels, point, first, second);
  }

  static void rows_gradients(const void* elements, const void* gradients, std::size_t rows,
                             std::size_t channels, const double* mean, double* first,
                             double* second) {
    const T *x = static_cast<const T*>(elements), *dy = static_cast<const T*>(gradients);
    const std::size_t together = Step::rows * channels;
    for (; rows >= Step::rows; rows -= Step::rows, x += together, dy += together)
      some_gradients<Step::rows>(x, dy, channels, mean, first, second);
    for (; rows > 0; --rows, x += channels, dy += channels)
      some_gradients<1>(x, dy, channels, mean, first, second);
  }

  static void elements(const void* from, std::size_t stride, std::size_t count, double* out) {
    for (std::size_t i = 0; i < count; ++i) out[i] = widen(static_cast<const T*>(from)[i * stride]);
  }

 private:
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
  static void some_moments(const T* x, std::size_t channels, const double* point, double* first,
                           double* second) {
    over_channels(
        channels, first, second,
        [&](Step& sums, std::size_t c) {
          const Value at = Step::points(point + c);
          for (std::size_t row = 0; row < Rows; ++row)
            sums.moments(Step::read(x + row * channels + c), at);
        },
        [&](Pair<double>& sums, std::size_t c) {
          for (std::size_t row = 0; row < Rows; ++row)
            sums.moments(widen(x[row * channels + c]), point[c]);
        });
  }

  template <std::size_t Rows>
  static void some_gradients(const T* x, const T* dy, std::size_t channels, const double* mean,
                             double* first, double* second) {
    over_channels(
        channels, first, second,
        [&](Step& sums, std::size_t c) {
          const Value at = Step::points(mean + c);
          for (std::size_t row = 0; row < Rows; ++row)
            sums.gradients(Step::read(x + row * channels + c), Step::read(dy + row * channels + c),
                           at);
        },
        [&](Pair<double>& sums, std::size_t c) {
          for (std::size_t row = 0; row < Rows; ++row)
            sums.gradients(widen(x[row * channels + c]), widen(dy[row * channels + c]), mean[c]);
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
}  // namespace rondo::bn
