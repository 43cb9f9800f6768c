// SPDX-License-Identifier: Apache-2.0
#include "collectives/kernels/reduce.h"

#include <cstdlib>
#include <string>

#include "base/log.h"
#include "collectives/kernels/processor.h"
#include "collectives/kernels/table.h"

namespace rondo::kernels {

namespace {

Isa isa_of_processor() noexcept {
  static const Isa isa = kernels::detect_isa();
  return isa;
}

Isa choose_isa() noexcept {
  const Isa most = isa_of_processor();
  const char* const wish = std::getenv("RONDO_ISA");
  if (wish == nullptr || *wish == '\0') return most;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
    if (name_of(isa) == wish) return isa < most ? isa : most;
  try {
    base::log_line(base::LogLevel::warning,
                   std::string("RONDO_ISA=") + wish +
                       " is ignored: it can be scalar, avx2 or avx512; using " +
                       std::string(name_of(most)));
  } catch (...) {
    // Out of memory for a message: the choice stands without it.
  }
  return most;
}

}  // namespace

Isa best_isa() noexcept {
  static const Isa isa = choose_isa();
  return isa;
}

std::string_view name_of(Isa isa) noexcept {
  switch (isa) {
    case Isa::scalar:
      return "scalar";
    case Isa::avx2:
      return "avx2";
    case Isa::avx512:
      return "avx512";
  }
  return "unknown";
}

ReduceFunction find_reduce(DType type, ReduceOp op, Isa isa) noexcept {
  if (!supports(type, op) || isa > isa_of_processor()) return nullptr;
  switch (isa) {
    case Isa::scalar:
      return kernels::scalar_kernel(type, op);
    case Isa::avx2:
      return kernels::avx2_kernel(type, op);
    case Isa::avx512:
      return kernels::avx512_kernel(type, op);
  }
  return nullptr;
}

ScaledSum find_scaled_sum(DType type, Isa isa) noexcept {
  if (isa > isa_of_processor()) return nullptr;
  switch (isa) {
    case Isa::scalar:
      return kernels::scalar_scaled_sum(type);
    case Isa::avx2:
      return kernels::avx2_scaled_sum(type);
    case Isa::avx512:
      return kernels::avx512_scaled_sum(type);
  }
  return nullptr;
}

}  // namespace rondo::kernels
