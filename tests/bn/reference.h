// SPDX-License-Identifier: Apache-2.0
//
// Batch norm of a whole batch in one process, in plain long double code: ranks together must reach
// its results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <rondo/batch_norm.h>

#include "support/ranks.h"
#include "support/values.h"

namespace rondo::testing {

using Numbers = std::vector<double>;

// A batch in nchw order.
struct Batch {
  std::size_t samples, channels, spatial;
  Numbers values;
  std::size_t size() const noexcept { return samples * channels * spatial; }
  std::size_t at(std::size_t n, std::size_t c, std::size_t s) const noexcept {
    return (n * channels + c) * spatial + s;
  }
};

// A number between 0 and 1, drawn from a seed.
inline double uniform(std::uint64_t seed, std::uint64_t i) {
  return (static_cast<double>(mixed(seed, i, 77) >> 11) + 0.5) * 0x1p-53;
}
inline double normal(std::uint64_t seed, std::uint64_t i) {
  return std::sqrt(-2 * std::log(uniform(seed, 2 * i))) *
         std::cos(6.283185307179586 * uniform(seed, 2 * i + 1));
}

// Draws a batch whose channel c has a mean of about c - 1 and a deviation of about 1 + c / 4.
inline Batch draw_batch(std::size_t samples, std::size_t channels, std::size_t spatial,
                        std::uint64_t seed) {
  Batch batch{samples, channels, spatial, {}};
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto c = static_cast<double>(i / spatial % channels);
    batch.values.push_back(c - 1 + (1 + c / 4) * normal(seed, i));
  }
  return batch;
}

struct Reference {
  Numbers mean, variance, y, dx, dgamma, dbeta;
  // Scales for the rounding errors of a channel's sums: its deviation, and the sums of magnitudes.
  Numbers deviation, dgamma_scale, dbeta_scale;
  Reference(const Batch& x, const Batch& dy, const Numbers& gamma, const Numbers& beta,
            double epsilon)
      : y(x.size()), dx(x.size()) {
    for (std::size_t c = 0; c < x.channels; ++c) channel(c, x, dy, gamma, beta, epsilon);
  }

 private:
  template <class Function>
  static void each(const Batch& x, std::size_t c, Function function) {
    for (std::size_t n = 0; n < x.samples; ++n)
      for (std::size_t s = 0; s < x.spatial; ++s) function(x.at(n, c, s));
  }
  void channel(std::size_t c, const Batch& x, const Batch& dy, const Numbers& gamma,
               const Numbers& beta, double epsilon) {
    const auto count = static_cast<long double>(x.samples * x.spatial);
    long double sum = 0, squares = 0, gradients = 0, products = 0, all_gradients = 0,
                all_products = 0;
    each(x, c, [&](std::size_t i) { sum += x.values[i]; });
    const long double m = sum / count;
    each(x, c, [&](std::size_t i) {
      const long double d = x.values[i] - m;
      squares += d * d;
      gradients += dy.values[i];
      products += dy.values[i] * d;
      all_gradients += std::abs(dy.values[i]);
      all_products += std::abs(dy.values[i] * d);
    });
    const long double var = squares / count, inverse = 1 / std::sqrt(var + epsilon),
                      factor = gamma[c] * inverse;
    each(x, c, [&](std::size_t i) {
      const long double d = x.values[i] - m;
      y[i] = static_cast<double>(factor * d + beta[c]);
      dx[i] = static_cast<double>(
          factor * (dy.values[i] - gradients / count - d * inverse * inverse * products / count));
    });
    mean.push_back(static_cast<double>(m));
    variance.push_back(static_cast<double>(var));
    dgamma.push_back(static_cast<double>(products * inverse));
    dbeta.push_back(static_cast<double>(gradients));
    deviation.push_back(static_cast<double>(std::sqrt(var)));
    dgamma_scale.push_back(static_cast<double>(all_products * inverse));
    dbeta_scale.push_back(static_cast<double>(all_gradients));
  }
};

// The two sums of a pass for each channel: the first sums of all channels, then the second. They
// are sums of x - center and of its square or, if there is a dy, of dy and of dy * (x - center).
// `scales` are the same sums of magnitudes.
struct PlainSums {
  PlainSums(const Batch& x, const Numbers& center, const Batch* dy = nullptr)
      : sums(2 * x.channels), scales(sums) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i / x.spatial % x.channels;
      const long double away = static_cast<long double>(x.values[i]) - center[c];
      const long double first = dy == nullptr ? away : dy->values[i];
      for (const auto& [at, term] :
           {std::pair(c, first), std::pair(x.channels + c, first * away)}) {
        sums[at] += term;
        scales[at] += std::abs(term);
      }
    }
  }
  std::vector<long double> sums, scales;
};

template <class T>
T read_as(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// Returns an element of f64, f32, f16 or bf16.
inline double decoded(DType type, const void* from) {
  if (type == DType::f64) return read_as<double>(from);
  if (type == DType::f32) return static_cast<double>(read_as<float>(from));
  const auto bits = read_as<std::uint16_t>(from);
  if (type == DType::bf16) {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    return static_cast<double>(read_as<float>(&wide));
  }
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent == 31) return fraction != 0 ? NAN : bits >> 15 != 0 ? -INFINITY : INFINITY;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 != 0 ? -magnitude : magnitude;
}

// A tensor as a rank holds it: some samples of a batch, in a layout and type.
class Tensor {
 public:
  Tensor(DType type, TensorLayout layout, std::size_t samples, std::size_t channels,
         std::size_t spatial)
      : type_(type),
        layout_(layout),
        shape_{samples, channels, spatial, {}},
        bytes_(shape_.size() * size_of(type)) {}
  Tensor(DType type, TensorLayout layout, const Batch& batch, std::size_t first,
         std::size_t samples)
      : Tensor(type, layout, samples, batch.channels, batch.spatial) {
    pack(batch, first);
  }
  Activations view() noexcept {
    return {bytes_.empty() ? nullptr : bytes_.data(), shape_.samples, shape_.spatial};
  }
  // Copies samples of the batch, from `first` on, into the tensor.
  void pack(const Batch& batch, std::size_t first) {
    for_each([&](std::size_t n, std::size_t c, std::size_t s, std::size_t place) {
      const std::uint64_t bits = encode(type_, batch.values[batch.at(first + n, c, s)]);
      std::memcpy(&bytes_[place * size_of(type_)], &bits, size_of(type_));
    });
  }
  // Copies the tensor into the batch, from sample `first` on.
  void unpack(Batch& batch, std::size_t first) const {
    for_each([&](std::size_t n, std::size_t c, std::size_t s, std::size_t place) {
      batch.values[batch.at(first + n, c, s)] = decoded(type_, &bytes_[place * size_of(type_)]);
    });
  }
  const std::vector<unsigned char>& bytes() const noexcept { return bytes_; }
  std::vector<unsigned char>& bytes() noexcept { return bytes_; }

 private:
  template <class Function>
  void for_each(Function function) const {
    for (std::size_t n = 0; n < shape_.samples; ++n)
      for (std::size_t c = 0; c < shape_.channels; ++c)
        for (std::size_t s = 0; s < shape_.spatial; ++s)
          function(n, c, s,
                   layout_ == TensorLayout::nchw ? shape_.at(n, c, s)
                                                 : (n * shape_.spatial + s) * shape_.channels + c);
  }
  DType type_;
  TensorLayout layout_;
  Batch shape_;
  std::vector<unsigned char> bytes_;
};

// Returns the batch after it was stored in this type.
inline Batch stored(const Batch& batch, DType type) {
  Batch result = batch;
  Tensor(type, TensorLayout::nchw, batch, 0, batch.samples).unpack(result, 0);
  return result;
}

// Returns the values of a buffer of f64 or f32.
inline Numbers numbers(const Buffer& buffer) {
  Numbers result;
  for (std::size_t i = 0; i < buffer.count; ++i)
    result.push_back(buffer.type == DType::f64
                         ? static_cast<const double*>(buffer.data)[i]
                         : static_cast<double>(static_cast<const float*>(buffer.data)[i]));
  return result;
}
inline void assign(const Buffer& buffer, const Numbers& values) {
  for (std::size_t i = 0; i < buffer.count; ++i) {
    if (buffer.type == DType::f64)
      static_cast<double*>(buffer.data)[i] = values[i];
    else
      static_cast<float*>(buffer.data)[i] = static_cast<float>(values[i]);
  }
}

// Returns the largest difference divided by the largest value. Only for numbers of similar size: a
// large channel would hide errors in a small one.
inline double difference(const Numbers& got, const Numbers& wanted) {
  double largest = 0, most = 0;
  if (got.size() != wanted.size()) return INFINITY;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double apart = std::abs(got[i] - wanted[i]);
    if (std::isnan(apart)) return INFINITY;
    most = std::max(most, apart);
    largest = std::max(largest, std::abs(wanted[i]));
  }
  return largest == 0 ? most : most / largest;
}
// For batches: the worst channel, each measured by its own largest value.
inline double difference_by_channel(const Batch& got, const Numbers& wanted) {
  Numbers largest(got.channels), most(got.channels);
  if (got.values.size() != wanted.size()) return INFINITY;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const std::size_t c = i / got.spatial % got.channels;
    const double apart = std::abs(got.values[i] - wanted[i]);
    most[c] = std::max(most[c], std::isnan(apart) ? INFINITY : apart);
    largest[c] = std::max(largest[c], std::abs(wanted[i]));
  }
  for (std::size_t c = 0; c < got.channels; ++c)
    if (largest[c] > 0) most[c] /= largest[c];
  return most.empty() ? 0 : *std::ranges::max_element(most);
}
// For one number in each channel: the worst difference, each divided by its channel's scale.
inline double difference_of_scales(const Numbers& got, const Numbers& wanted,
                                   const Numbers& scales) {
  double worst = 0;
  if (got.size() != wanted.size() || got.size() != scales.size()) return INFINITY;
  for (std::size_t c = 0; c < got.size(); ++c) {
    const double apart = std::abs(got[c] - wanted[c]);
    worst = std::max(worst, apart == 0 ? 0 : apart <= INFINITY ? apart / scales[c] : INFINITY);
  }
  return worst;
}
inline void expect_near_by_channel(const Batch& got, const Numbers& wanted, double tolerance,
                                   const std::string& what) {
  const double apart = difference_by_channel(got, wanted);
  expect(apart <= tolerance,
         fmt::format("{}: {} apart in a channel, {} allowed", what, apart, tolerance));
}
inline void expect_near(const Numbers& got, const Numbers& wanted, double tolerance,
                        const std::string& what) {
  const double apart = difference(got, wanted);
  expect(apart <= tolerance, fmt::format("{}: {} apart, {} allowed", what, apart, tolerance));
}

}  // namespace rondo::testing
