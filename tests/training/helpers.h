// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/error.h>

#include "support/ranks.h"

namespace rondo::testing {

inline Setup ranks(int size) {
  Setup setup;
  setup.size = size;
  return setup;
}

// Returns the text of the Error with this code that the function throws; else a text that says what
// happened instead.
template <class Function>
std::string error_of(Errc code, Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.code() == code ? error.what() : std::string("another code: ") + error.what();
  }
  return "no error";
}

}  // namespace rondo::testing
