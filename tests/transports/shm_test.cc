// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/shm.h"

#include "catch.h"
#include "conformance.h"
#include "shm_helpers.h"

namespace rondo::testing {

TEST_CASE("shm does what every transport must do") {
  for (const Check& check : conformance()) DYNAMIC_SECTION(check.name) {
      check.run([](int size) { return shm_transports(size); });
    }
}

}  // namespace rondo::testing
