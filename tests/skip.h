// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <cstdlib>

// Ends the whole program as skipped. Use it in cases with a hidden tag ("[.][avx2]") that meson
// runs by that tag as a separate test: a case that returned would count as passed.
[[noreturn]] inline void skip_program(const char* why) {
  std::printf("skipped: %s\n", why);
  std::fflush(stdout);
  std::_Exit(77);
}
