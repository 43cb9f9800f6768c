// SPDX-License-Identifier: Apache-2.0
//
// What is computed for each channel between a collective and a pass over activations. P is the type
// of parameters and of the computation: f64 or f32.
#pragma once

#include <cstddef>

namespace rondo::bn {

// The coefficients of kernels/table.h.
template <class P>
struct Lines {
  P *center, *scale, *slope, *shift, *gradient_center;
};

// By channel. gamma and beta may be null: 1 and 0.
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

// sums: of dy and of dy * (x - mean.mean) over all ranks; becomes the gradients of beta and gamma.
// So does local, of this rank alone.
template <class P>
void backward_lines(const Lines<P>& lines, std::size_t channels, const Affine<P>& affine,
                    const Statistics& of, double epsilon, double* sums, double* local) noexcept;

// running = (1 - momentum) * running + momentum * new, with the unbiased variance; of one element
// there is none.
template <class P>
void update_running(P* means, P* variances, std::size_t channels, const Statistics& of,
                    double momentum) noexcept;

}  // namespace rondo::bn
