// SPDX-License-Identifier: Apache-2.0
//
// CPU reduction kernels, chosen once for this processor (base/processor.h). All functions here are
// thread-safe. bf16 is rounded by integer arithmetic everywhere: the instructions of AVX512_BF16
// flush subnormals to zero, and memory is the limit either way.
#pragma once

#include <cstddef>

#include <rondo/types.h>

#include "base/processor.h"
#include "collectives/kernels/finish.h"

namespace rondo::kernels {

// out[i] = finish(op(in[0][i], in[1][i], ...)), from left to right, for i < count; sources >= 1.
// - Nothing needs alignment. out may be one of the inputs, but must not overlap one otherwise.
// - f16, bf16 and f8 are combined in f32 and rounded once, to nearest even. Overflow gives NaN in
//   f8e4m3 and infinity in f8e5m2 (OFP8).
// - Integer arithmetic wraps, except in a mean.
// - min and max give NaN when either operand is NaN, and treat -0 as less than +0. So the order of
//   the sources does not matter.
// - A NaN in the result has all bits set but the sign. Where a negative value overflows in f8e4m3,
//   the sign is set too.
// - ReduceOp::mean combines as sum; the division is in finish. A mean of integers is one call over
//   the inputs of all ranks, rounded once at the end (integer_mean.h).
// - The processor must be in its default rounding mode.
using ReduceFunction = void (*)(std::byte* out, const std::byte* const* in, std::size_t sources,
                                std::size_t count, const Finish& finish);

// Null where supports(type, op) is false or the processor lacks the isa. scalar is the reference:
// the others give the same bits.
ReduceFunction find_reduce(DType type, ReduceOp op, base::Isa isa = base::best_isa()) noexcept;

// out[i] = finish(in[0][i] * factors[0] + in[1][i] * factors[1] + ...), otherwise like
// ReduceFunction. Each product is rounded before it is added: to f64 for f64, else to f32, where
// the factor is rounded to f32 first.
using ScaledSum = void (*)(std::byte* out, const std::byte* const* in, const double* factors,
                           std::size_t sources, std::size_t count, const Finish& finish);
// Null for integers, and where the processor lacks the isa.
ScaledSum find_scaled_sum(DType type, base::Isa isa = base::best_isa()) noexcept;

}  // namespace rondo::kernels
