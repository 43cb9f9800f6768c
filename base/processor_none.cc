// SPDX-License-Identifier: Apache-2.0
//
// For processors that are not x86-64: only the scalar kernels run there.
#include "base/processor.h"

namespace rondo::base {

Isa detect_isa() noexcept {
  return Isa::scalar;
}

}  // namespace rondo::base
