// SPDX-License-Identifier: Apache-2.0
//
// The computation for each channel between a collective and a pass over activations. P is the type
// of parameters and of the computation: f64 or f32. Thread-safe functions.
#pragma once

#include <cstddef>

namespace rondo::bn {

// The coefficients of kernels/table.h.
template <class P>
struct Lines {
  P *center, *scale, *slope, *shift, *gradient_center;
};

// By channel. gamma null means 1, beta null means 0.
template <class P>
struct Affine {
  const P *gamma, *beta;
};

// The mean is mean + rest, the variance m2 / count.
struct Statistics {
  const double *mean, *rest, *m2;
  double count;
};

template <class P>
void forward_lines(const Lines<P>& lines, std::size_t channels, const Affine<P>& affine,
                   const Statistics& of, double epsilon) noexcept;

// sums: those of dy and of dy * (x - of.mean) over all ranks. They become the gradients of beta and
// gamma. `local`, the sums of this rank alone, likewise.
template <class P>
void backward_lines(const Lines<P>& lines, std::size_t channels, const Affine<P>& affine,
                    const Statistics& of, double epsilon, double* sums, double* local) noexcept;

// running = (1 - momentum) * running + momentum * new, with the unbiased variance. One element has
// no variance: then the running variance stays as it is.
template <class P>
void update_running(P* means, P* variances, std::size_t channels, const Statistics& of,
                    double momentum) noexcept;

}  // namespace rondo::bn
