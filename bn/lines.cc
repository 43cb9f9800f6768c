// SPDX-License-Identifier: Apache-2.0
//
// With N elements of a channel over all ranks, inv = 1 / sqrt(var + epsilon) and d = x - mean:
//   y     = gamma inv d + beta
//   dx    = gamma inv (dy - sum(dy) / N - d inv^2 sum(dy d) / N)
//   dbeta = sum(dy),  dgamma = inv sum(dy d)
// (Ioffe and Szegedy 2015, section 3). Where mean and var are not those of x, dx = gamma inv dy.
//
// The center that is subtracted from x is the mean in the type of the computation. What this
// rounding loses is part of the shift, so that a mean far larger than the deviation costs no
// digits. The same holds for dy and its mean, sum(dy) / N.
#include "bn/lines.h"

#include <cmath>

namespace rondo::bn {

namespace {

// 1 / the standard deviation of a channel.
double inverse_of(const Statistics& of, std::size_t channel, double epsilon) noexcept {
  const double part = 1 / of.count;
  return 1 / std::sqrt(of.m2[channel] * part + epsilon);
}

}  // namespace

template <class P>
void forward_lines(const Lines<P>& lines, std::size_t channels, const double* gamma,
                   const double* beta, const Statistics& of, double epsilon) noexcept {
  for (std::size_t c = 0; c < channels; ++c) {
    const double factor = gamma[c] * inverse_of(of, c, epsilon);
    const P center = static_cast<P>(of.mean[c]);
    const double rounded_away = (of.mean[c] - static_cast<double>(center)) + of.rest[c];
    lines.center[c] = center;
    lines.scale[c] = static_cast<P>(factor);
    lines.shift[c] = static_cast<P>(beta[c] - rounded_away * factor);
  }
}

void finish_sums(double* sums, std::size_t channels, const Statistics& of,
                 double epsilon) noexcept {
  double* const products = sums + channels;
  for (std::size_t c = 0; c < channels; ++c)
    products[c] = inverse_of(of, c, epsilon) * (products[c] - of.rest[c] * sums[c]);
}

template <class P>
void backward_lines(const Lines<P>& lines, std::size_t channels, const double* gamma,
                    const Statistics& of, double epsilon, const double* gradients) noexcept {
  const double *const beta_gradient = gradients, *const gamma_gradient = gradients + channels;
  const double part = 1 / of.count;
  for (std::size_t c = 0; c < channels; ++c) {
    const double inverse = inverse_of(of, c, epsilon);
    const double factor = gamma[c] * inverse;
    const double along = -factor * inverse * gamma_gradient[c] * part;
    const P center = static_cast<P>(of.mean[c]);
    const double rounded_away = (of.mean[c] - static_cast<double>(center)) + of.rest[c];
    lines.center[c] = center;
    lines.scale[c] = static_cast<P>(factor);
    lines.slope[c] = static_cast<P>(along);
    const double mean_gradient = beta_gradient[c] * part;
    const P gradient_center = static_cast<P>(mean_gradient);
    lines.gradient_center[c] = gradient_center;
    lines.shift[c] = static_cast<P>(
        -factor * (mean_gradient - static_cast<double>(gradient_center)) - along * rounded_away);
  }
}

template <class P>
void fixed_backward_lines(const Lines<P>& lines, std::size_t channels, const double* gamma,
                          const Statistics& of, double epsilon) noexcept {
  for (std::size_t c = 0; c < channels; ++c) {
    lines.center[c] = 0;
    lines.scale[c] = static_cast<P>(gamma[c] * inverse_of(of, c, epsilon));
    lines.shift[c] = 0;
  }
}

void update_running(double* means, double* variances, std::size_t channels, const Statistics& of,
                    double momentum) noexcept {
  const double keep = 1 - momentum;
  for (std::size_t c = 0; c < channels; ++c) means[c] = keep * means[c] + momentum * of.mean[c];
  if (of.count <= 1) return;
  const double part = momentum / (of.count - 1);
  for (std::size_t c = 0; c < channels; ++c) variances[c] = keep * variances[c] + part * of.m2[c];
}

template void forward_lines(const Lines<double>&, std::size_t, const double*, const double*,
                            const Statistics&, double) noexcept;
template void forward_lines(const Lines<float>&, std::size_t, const double*, const double*,
                            const Statistics&, double) noexcept;
template void backward_lines(const Lines<double>&, std::size_t, const double*, const Statistics&,
                             double, const double*) noexcept;
template void backward_lines(const Lines<float>&, std::size_t, const double*, const Statistics&,
                             double, const double*) noexcept;
template void fixed_backward_lines(const Lines<double>&, std::size_t, const double*,
                                   const Statistics&, double) noexcept;
template void fixed_backward_lines(const Lines<float>&, std::size_t, const double*,
                                   const Statistics&, double) noexcept;

}  // namespace rondo::bn
