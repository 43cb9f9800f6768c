// SPDX-License-Identifier: Apache-2.0
//
// The main program of tests. meson sets RONDO_TEST_SKIP where a build lacks what a program tests.
#define CATCH_CONFIG_RUNNER
#include "catch.h"
#include "skip.h"

int main(int count, char** arguments) {
  if (const char* const why = std::getenv("RONDO_TEST_SKIP")) skip_program(why);
  return Catch::Session().run(count, arguments);
}
