// SPDX-License-Identifier: Apache-2.0
//
// Which instructions kernels may use. Thread-safe.
#pragma once

#include <string_view>

namespace rondo::base {

// Sets of instructions. avx2 is AVX2, FMA and F16C; avx512 is AVX-512 F, BW, VL and DQ, and avx2.
enum class Isa : unsigned char { scalar, avx2, avx512 };
std::string_view name_of(Isa isa) noexcept;

// The widest set that the processor and the operating system support. Detected once.
Isa processor_isa() noexcept;
// The set that kernels use. RONDO_ISA=scalar|avx2|avx512 lowers it; any other word is ignored with
// a warning. The variable is read once, at the first call.
Isa best_isa() noexcept;

// Detects what processor_isa() returns. Each family of processors has a source of its own.
Isa detect_isa() noexcept;

// Tells the processor that this thread spins. Does nothing on other processors than x86-64.
inline void pause_processor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace rondo::base
