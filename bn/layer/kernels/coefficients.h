// SPDX-License-Identifier: Apache-2.0
//
// The computation for one channel between a collective and a pass over activations, on the
// processor and on GPUs. With N elements of the channel over all ranks, inv = 1 / sqrt(var +
// epsilon) and d = x - mean:
//   y     = gamma inv d + beta
//   dx    = gamma inv (dy - sum(dy) / N - d inv^2 sum(dy d) / N)
//   dbeta = sum(dy),  dgamma = inv sum(dy d)
// (Ioffe and Szegedy 2015, section 3).
//
// The center that is subtracted from x is the mean in the type of the passes, f64 or f32. What this
// rounding loses is part of the shift, so that a mean far larger than the deviation costs no
// digits. The same holds for dy and its mean, sum(dy) / N.
#pragma once

#include <math.h>

#include "base/host_device.h"

namespace rondo::layer {

// The elements of a channel, and 1 / all: a division for each channel would take longer than the
// products.
struct Count {
  double all, part;
};

// The mean is mean + rest, the variance m2 / count.
struct ChannelStatistics {
  double mean, rest, m2;
  Count count;

  RONDO_HD double inverse_deviation(double epsilon) const noexcept {
    return 1 / ::sqrt(m2 * count.part + epsilon);
  }
};

// forward:  y = (x - center) * scale + shift
// backward: dx = (dy - gradient_center) * scale + (x - center) * slope + shift
// The center and the gradient_center are numbers of the type of the passes.
struct ChannelCoefficients {
  double center, scale, slope, shift, gradient_center;
};
inline constexpr unsigned coefficient_count = 5;

RONDO_HD inline double in_type_of_passes(double value, bool in_f64) noexcept {
  return in_f64 ? value : static_cast<double>(static_cast<float>(value));
}

RONDO_HD inline ChannelCoefficients forward_coefficients(const ChannelStatistics& of, double gamma,
                                                         double beta, double epsilon,
                                                         bool in_f64) noexcept {
  const double factor = gamma * of.inverse_deviation(epsilon);
  const double center = in_type_of_passes(of.mean, in_f64);
  const double rounded_away = (of.mean - center) + of.rest;
  return {center, factor, 0, beta - rounded_away * factor, 0};
}

// The gradient of gamma, from the sums of dy and of dy * (x - of.mean).
RONDO_HD inline double gamma_gradient_of(const ChannelStatistics& of, double sum, double product,
                                         double epsilon) noexcept {
  return of.inverse_deviation(epsilon) * (product - of.rest * sum);
}

// The gradients are those over all elements.
RONDO_HD inline ChannelCoefficients backward_coefficients(const ChannelStatistics& of, double gamma,
                                                          double beta_gradient,
                                                          double gamma_gradient, double epsilon,
                                                          bool in_f64) noexcept {
  const double part = of.count.part, inverse = of.inverse_deviation(epsilon);
  const double factor = gamma * inverse;
  const double along = -factor * inverse * gamma_gradient * part;
  const double center = in_type_of_passes(of.mean, in_f64);
  const double rounded_away = (of.mean - center) + of.rest;
  const double mean_gradient = beta_gradient * part;
  const double gradient_center = in_type_of_passes(mean_gradient, in_f64);
  return {center, factor, along, -factor * (mean_gradient - gradient_center) - along * rounded_away,
          gradient_center};
}

}  // namespace rondo::layer
