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

TEST_CASE("tcp over several paths does too") {
  for (const unsigned connections : {2u, 4u})
    for (const Check& check : conformance()) DYNAMIC_SECTION(connections << " paths: " << check.name) {
        check.run([&](int size) {
          return tcp_transports(size, [&](TcpOptions& options) { options.connections = connections; });
        });
      }
}

}  // namespace rondo::testing
