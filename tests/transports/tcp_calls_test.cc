// SPDX-License-Identifier: Apache-2.0
//
// Counts system calls of the thread that drives the transport.
#include <sys/epoll.h>

#include <cstdint>

#include "catch.h"
#include "conformance.h"
#include "tcp_helpers.h"

namespace {

thread_local std::uint64_t epoll_waits = 0;

}  // namespace

// Stands before the one of the C library, for every caller in this program.
extern "C" __attribute__((visibility("default"))) int epoll_wait(int epoll, epoll_event* events,
                                                                 int most, int timeout) {
  ++epoll_waits;
  return ::epoll_pwait(epoll, events, most, timeout, nullptr);
}

namespace rondo::testing {

TEST_CASE("a tcp transport without an open link asks epoll for nothing") {
  Group group([](int size) { return tcp_transports(size); }, 2);
  const auto turns = [&] {
    const std::uint64_t before = epoll_waits;
    for (int i = 0; i < 1000; ++i) group[0].turn();
    return epoll_waits - before;
  };
  CHECK(turns() == 0);
  // An idle link must be looked at: the peer may close it, or send what nobody expects.
  group[1].send(0, transports::Lane::bulk, 1, 100);
  group[0].expect(1, transports::Lane::bulk, {1, 100});
  group.finish();
  CHECK(turns() > 0);
}

}  // namespace rondo::testing
