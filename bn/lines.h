// SPDX-License-Identifier: Apache-2.0
//
// The computation for each channel between a collective and a pass over activations. Parameters and
// statistics come as f64; P is the type of the passes: f64 or f32. Thread-safe functions.
#pragma once

#include <cstddef>

namespace rondo::bn {

// The coefficients of kernels/table.h.
template <class P>
struct Lines {
  P *center, *scale, *slope, *shift, *gradient_center;
};

// The mean is mean + rest, the variance m2 / count.
struct Statistics {
  const double *mean, *rest, *m2;
  double count;
};

// y = (x - center) * scale + shift.
template <class P>
void forward_lines(const Lines<P>& lines, std::size_t channels, const double* gamma,
                   const double* beta, const Statistics& of, double epsilon) noexcept;

// Turns sums of dy and of dy * (x - of.mean), [channels] each, into the gradients of beta and
// gamma.
void finish_sums(double* sums, std::size_t channels, const Statistics& of, double epsilon) noexcept;

// gradients: those of beta and gamma over all of.count elements, from finish_sums.
template <class P>
void backward_lines(const Lines<P>& lines, std::size_t channels, const double* gamma,
                    const Statistics& of, double epsilon, const double* gradients) noexcept;

// The backward pass where the statistics do not depend on x: dx = (dy - center) * scale + shift.
template <class P>
void fixed_backward_lines(const Lines<P>& lines, std::size_t channels, const double* gamma,
                          const Statistics& of, double epsilon) noexcept;

// running = (1 - momentum) * running + momentum * new, with the unbiased variance. One element has
// no variance: then the running variance stays as it is.
void update_running(double* means, double* variances, std::size_t channels, const Statistics& of,
                    double momentum) noexcept;

}  // namespace rondo::bn
