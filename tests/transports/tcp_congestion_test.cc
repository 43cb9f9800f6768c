// SPDX-License-Identifier: Apache-2.0
//
// Looks at the sockets of this process.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <set>
#include <string>

#include "catch.h"
#include "conformance.h"
#include "tcp_helpers.h"

namespace rondo::testing {
namespace {

// The connected TCP sockets of this process.
std::set<int> connections() {
  std::set<int> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::stoi(entry.path().filename().string());
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
        info.tcpi_state == TCP_ESTABLISHED)
      result.insert(descriptor);
  }
  return result;
}

std::string congestion_control(int socket) {
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0);
  return name.data();
}

}  // namespace

TEST_CASE("connections within a host are not paced, whatever the host's congestion control") {
  const std::set<int> before = connections();
  Group group([](int size) { return tcp_transports(size); }, 2);
  for (const int rank : {0, 1}) {
    group[rank].send(1 - rank, transports::Lane::bulk, 1, 100);
    group[1 - rank].expect(rank, transports::Lane::bulk, {1, 100});
  }
  group.finish();
  int seen = 0;
  for (const int socket : connections())
    if (!before.contains(socket)) {
      ++seen;
      CHECK(congestion_control(socket) == "reno");
    }
  CHECK(seen == 2);  // the two ends
}

}  // namespace rondo::testing
