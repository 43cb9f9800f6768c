// SPDX-License-Identifier: Apache-2.0
//
// With N elements of a channel over all ranks, inv = 1 / sqrt(var + epsilon) and d = x - mean:
//   y     = gamma inv d + beta
//   dx    = gamma inv (dy - sum(dy) / N - d inv^2 sum(dy d) / N)
//   dbeta = sum(dy),  dgamma = inv sum(dy d)
// (Ioffe and Szegedy 2015, section 3). The center that is subtracted from x is the mean in the type
// of the computation. What this rounding loses is part of the shift, so that a mean far larger than
// the deviation costs no digits. The same holds for dy and its mean, sum(dy) / N.
#include "bn/lines.h"

#include <cmath>

namespace rondo::bn {

template <class P>
void forward_lines(const Lines<P>& lines, std::size_t channels, const Affine<P>& affine,
                   const Statistics& of, double epsilon) noexcept {
  const double part = 1 / of.count;
  for (std::size_t c = 0; c < channels; ++c) {
    const double inverse = 1 / std::sqrt(of.m2[c] * part + epsilon);
    const double factor =
        affine.gamma == nullptr ? inverse : static_cast<double>(affine.gamma[c]) * inverse;
    const double beta = affine.beta == nullptr ? 0 : static_cast<double>(affine.beta[c]);
    const P center = static_cast<P>(of.mean[c]);
    const double rounded_away = (of.mean[c] - static_cast<double>(center)) + of.rest[c];
    lines.center[c] = center;
    lines.scale[c] = static_cast<P>(factor);
    lines.shift[c] = static_cast<P>(beta - rounded_away * factor);
  }
}

template <class P>
void backward_lines(const Lines<P>& lines, std::size_t channels, const Affine<P>& affine,
                    const Statistics& of, double epsilon, double* sums, double* local) noexcept {
  double *const products = sums + channels, *const local_products = local + channels;
  const double part = 1 / of.count;
  for (std::size_t c = 0; c < channels; ++c) {
    const double inverse = 1 / std::sqrt(of.m2[c] * part + epsilon);
    const double factor =
        affine.gamma == nullptr ? inverse : static_cast<double>(affine.gamma[c]) * inverse;
    const double gamma_gradient = inverse * (products[c] - of.rest[c] * sums[c]);
    const double along = -factor * inverse * gamma_gradient * part;
    const P center = static_cast<P>(of.mean[c]);
    const double rounded_away = (of.mean[c] - static_cast<double>(center)) + of.rest[c];
    lines.center[c] = center;
    lines.scale[c] = static_cast<P>(factor);
    lines.slope[c] = static_cast<P>(along);
    const double mean_gradient = sums[c] * part;
    const P gradient_center = static_cast<P>(mean_gradient);
    lines.gradient_center[c] = gradient_center;
    lines.shift[c] = static_cast<P>(
        -factor * (mean_gradient - static_cast<double>(gradient_center)) - along * rounded_away);
    products[c] = gamma_gradient;
    local_products[c] = inverse * (local_products[c] - of.rest[c] * local[c]);
  }
}

template <class P>
void update_running(P* means, P* variances, std::size_t channels, const Statistics& of,
                    double momentum) noexcept {
  const double keep = 1 - momentum;
  for (std::size_t c = 0; c < channels; ++c)
    means[c] = static_cast<P>(keep * static_cast<double>(means[c]) + momentum * of.mean[c]);
  if (of.count <= 1) return;
  const double part = momentum / (of.count - 1);
  for (std::size_t c = 0; c < channels; ++c)
    variances[c] = static_cast<P>(keep * static_cast<double>(variances[c]) + part * of.m2[c]);
}

template void forward_lines(const Lines<double>&, std::size_t, const Affine<double>&,
                            const Statistics&, double) noexcept;
template void forward_lines(const Lines<float>&, std::size_t, const Affine<float>&,
                            const Statistics&, double) noexcept;
template void backward_lines(const Lines<double>&, std::size_t, const Affine<double>&,
                             const Statistics&, double, double*, double*) noexcept;
template void backward_lines(const Lines<float>&, std::size_t, const Affine<float>&,
                             const Statistics&, double, double*, double*) noexcept;
template void update_running(double*, double*, std::size_t, const Statistics&, double) noexcept;
template void update_running(float*, float*, std::size_t, const Statistics&, double) noexcept;

}  // namespace rondo::bn
