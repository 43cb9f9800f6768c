// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rondo::base {

// Tells the processor that this thread spins. Does nothing on other processors than x86-64.
inline void pause_processor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace rondo::base
