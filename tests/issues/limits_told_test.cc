// SPDX-License-Identifier: Apache-2.0
//
// Messages about limits of the system were wrong. Every error of a listener ended with "take
// another port", and a range of ports without a free one was reported as [::]:0.
#include <sys/resource.h>

#include "catch.h"
#include "lib/ranks.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

TEST_CASE("only a port in use is to be replaced by another", "[limits]") {
  const std::uint16_t port = free_port();
  const std::string url = "tcp://127.0.0.1:" + std::to_string(port);
  {
    const auto listener = wire::listen_on(wire::loopback_address(port), 0, 0);
    CHECK_THAT(join_one(place_of(0, 2, url), Options{}, {}).message,
               Contains("take another port, the same on all ranks: RONDO_RENDEZVOUS=tcp://HOST"));
  }
  const Directory directory;
  const std::string missing =
      join_one(place_of(0, 2, "file://" + directory.path() + "/no/file", "s"), Options{}, {})
          .message;
  CHECK_THAT(missing, Contains("no such file or directory") && !Contains("take another port"));
}

TEST_CASE("a range without a free port is named", "[limits]") {
  const std::uint16_t port = free_port();
  const auto listener = wire::listen_on(any_address(port), 0, 0);
  const Directory directory;
  Options options;
  options.port_first = options.port_last = port;
  const std::string message =
      join_one(place_of(0, 2, "file://" + directory.path() + "/file", "s"), options, {}).message;
  const std::string number = std::to_string(port);
  CHECK_THAT(message,
             Contains("no port from " + number + " to " + number + " is free") && !Contains(":0:"));
}
