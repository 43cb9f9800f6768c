// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rondo::testing {

// Whether ThreadSanitizer watches this program.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_tsan = true;
#elif defined(__has_feature)
inline constexpr bool under_tsan = __has_feature(thread_sanitizer);
#else
inline constexpr bool under_tsan = false;
#endif

}  // namespace rondo::testing
