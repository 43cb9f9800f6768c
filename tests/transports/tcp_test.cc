// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/tcp.h"

#include "catch.h"
#include "conformance.h"
#include "support/effort.h"
#include "tcp_helpers.h"

namespace rondo::testing {

TEST_CASE("tcp does what every transport must do") {
  for (const Check& check : conformance()) DYNAMIC_SECTION(check.name) {
      check.run([](int size) { return tcp_transports(size); });
    }
}

TEST_CASE("tcp over several paths does too") {
  for (const unsigned connections : {2u, 4u}) {
    if (connections == 2 && few_cases()) continue;
    for (const Check& check : conformance())
      DYNAMIC_SECTION(connections << " paths: " << check.name) {
        check.run([&](int size) {
          return tcp_transports(size,
                                [&](tcp::Options& options) { options.connections = connections; });
        });
      }
  }
}

// As between hosts, every frame has a tag on its header, or on header and payload.
TEST_CASE("tcp with tags on every frame does too") {
  for (const base::Protection protection : {base::Protection::headers, base::Protection::payload})
    for (const unsigned connections : {1u, 3u}) {
      if (few_cases() && (connections == 3) != (protection == base::Protection::payload)) continue;
      for (const Check& check : conformance())
        DYNAMIC_SECTION((protection == base::Protection::payload ? "payload, " : "headers, ")
                        << connections << " paths: " << check.name) {
          check.run([&](int size) {
            return tcp_transports(size, [&](tcp::Options& options) {
              options.secret = "secret";
              options.interfaces = {"lo"};
              options.connections = connections;
              options.within_host = options.rank == 0 ? protection : base::Protection::headers;
            });
          });
        }
    }
}

}  // namespace rondo::testing
