// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace rondo::testing {

// The percentage of their cases that large tests run: RONDO_TEST_EFFORT, which tests/meson.build
// sets to less in builds with a sanitizer; else 100 with RONDO_TEST_ALL=1, and half of them
// without.
inline int effort() {
  if (const char* text = std::getenv("RONDO_TEST_EFFORT")) {
    const int percent = std::atoi(text);
    if (percent >= 1 && percent <= 100) return percent;
  }
  const char* every = std::getenv("RONDO_TEST_ALL");
  return every != nullptr && std::string_view(every) == "1" ? 100 : 50;
}
// Builds with a sanitizer run few cases, and small ones.
inline bool few_cases() {
  return effort() < 50;
}

}  // namespace rondo::testing
