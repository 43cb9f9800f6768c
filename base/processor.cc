// SPDX-License-Identifier: Apache-2.0
#include "base/processor.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/log.h"

namespace rondo::base {
namespace {

Isa choose_isa() noexcept {
  const Isa most = processor_isa();
  const char* const wish = std::getenv("RONDO_ISA");
  if (wish == nullptr || *wish == '\0') return most;
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
    if (name_of(isa) == wish) return std::min(isa, most);
  try {
    log_line(LogLevel::warning, std::string("RONDO_ISA=") + wish +
                                    " is ignored: it can be scalar, avx2 or avx512; using " +
                                    std::string(name_of(most)));
  } catch (...) {
    // No memory for the warning: go on without it.
  }
  return most;
}

}  // namespace

Isa processor_isa() noexcept {
  static const Isa isa = detect_isa();
  return isa;
}

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

}  // namespace rondo::base
