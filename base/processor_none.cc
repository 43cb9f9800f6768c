// SPDX-License-Identifier: Apache-2.0
//
// Processors of other families: the scalar kernels serve every type.
#include "base/processor.h"

namespace rondo::base {

Isa detect_isa() noexcept {
  return Isa::scalar;
}

}  // namespace rondo::base
