// SPDX-License-Identifier: Apache-2.0
//
// What kernels may use of the processor. Reentrant.
#pragma once

#include <string_view>

namespace rondo::base {

// Sets of instructions, each with those before it: avx2 is AVX2, FMA and F16C; avx512 is AVX-512 F,
// BW, VL and DQ.
enum class Isa : unsigned char { scalar, avx2, avx512 };
std::string_view name_of(Isa isa) noexcept;

// The widest set that the processor and the operating system have.
Isa processor_isa() noexcept;
// The one that kernels use: RONDO_ISA=scalar|avx2|avx512 lowers it, and another word is told in a
// warning. Read once, at the first call.
Isa best_isa() noexcept;

// Detects processor_isa(); one source for each family of processors.
Isa detect_isa() noexcept;

// Cores that this process may run on, at least 1.
int usable_cores() noexcept;

}  // namespace rondo::base
