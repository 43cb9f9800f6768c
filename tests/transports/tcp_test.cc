// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/tcp.h"

#include "catch.h"
#include "conformance.h"
#include "tcp_helpers.h"

namespace rondo::testing {

TEST_CASE("tcp does what every transport must do") {
  for (const Check& check : conformance()) DYNAMIC_SECTION(check.name) {
      check.run([](int size) { return tcp_transports(size); });
    }
}

}  // namespace rondo::testing
