// SPDX-License-Identifier: Apache-2.0
//
// The system limits the descriptors in flight of each user, and the descriptor numbers of each
// process. Ranks that joined failed when they reached either limit: 64 ranks of an ordinary user
// with `ulimit -n 1024` failed in 9 of 14 starts.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "base/shared_memory.h"
#include "catch.h"
#include "forked_ranks.h"
#include "support/no_descriptors.h"
#include "transports/host/exchange.h"
#include "transports/host/packet.h"

namespace rondo::testing {
namespace {

std::pair<base::FileDescriptor, base::FileDescriptor> socket_pair() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return {};
  return {base::FileDescriptor(ends[0]), base::FileDescriptor(ends[1])};
}

// Both ranks of a job of two, at the two ends of one connection.
struct Pair {
  base::FileDescriptor memory[2] = {base::make_shared_memory(4096), base::make_shared_memory(4096)};
  base::FileDescriptor bells[2] = {base::FileDescriptor(::eventfd(0, EFD_CLOEXEC)),
                                   base::FileDescriptor(::eventfd(0, EFD_CLOEXEC))};
  static void keep_nothing(int, host::Descriptors) {}
  host::Offer own[2] = {
      {0, 2, "secret", 7, {memory[0].get(), bells[0].get()}, keep_nothing},
      {1, 2, "secret", 7, {memory[1].get(), bells[1].get()}, keep_nothing},
  };
  std::pair<base::FileDescriptor, base::FileDescriptor> ends = socket_pair();
  host::Exchange acceptor{own[0], std::move(ends.first), base::Clock::now()};
  host::Exchange initiator{own[1], std::move(ends.second), 0, base::Clock::now()};

  void go_on() {
    for (int i = 0; i < 10; ++i)
      for (host::Exchange* one : {&acceptor, &initiator})
        if (one->state() != host::Exchange::State::met) one->go_on([](int) { return true; });
  }
  // Polls, because other processes of this user may have descriptors in flight as well.
  template <class Done>
  bool go_on_until(Done done) {
    const base::TimePoint until = base::after(base::Clock::now(), milliseconds{60'000});
    for (go_on(); !done() && base::Clock::now() < until; go_on()) ::poll(nullptr, 0, 1);
    return done();
  }
  bool both(host::Exchange::State state) const {
    return acceptor.state() == state && initiator.state() == state;
  }
};

// Sends descriptors that nobody receives until this user may have no more in flight. Returns the
// errno value that ended it.
int fill_flight(std::vector<std::pair<base::FileDescriptor, base::FileDescriptor>>& sockets) {
  const std::array<std::byte, 1> message{};
  const base::FileDescriptor event(::eventfd(0, EFD_CLOEXEC));
  const std::array<int, 2> descriptors{event.get(), event.get()};
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(socket_pair());
    int error = 0;
    while ((error = host::send_packet(sockets.back().first.get(), message, descriptors)) == 0) {
    }
    if (error != EAGAIN) return error;
  }
  return EAGAIN;
}

// Returns an exit status: 0 is success, 77 means skipped, another number says which step failed.
int meet_while_flight_is_full() {
  rlimit limit{256, 256};
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0 || !become_ordinary()) return 77;
  Pair pair;
  std::vector<std::pair<base::FileDescriptor, base::FileDescriptor>> sockets;
  if (fill_flight(sockets) != ETOOMANYREFS) return 3;
  pair.go_on();
  if (!pair.both(host::Exchange::State::proved)) return 4;
  if (pair.acceptor.shortage() != ETOOMANYREFS ||
      pair.acceptor.next_try() == base::TimePoint::max())
    return 5;
  sockets.clear();
  return pair.go_on_until([&] { return pair.both(host::Exchange::State::met); }) ? 0 : 6;
}

}  // namespace

TEST_CASE("ranks that meet wait while this user has too many descriptors in flight",
          "[shm][fork]") {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(meet_while_flight_is_full());
  const int status = status_of(child);
  if (status == 77)
    WARN("skipped: this process cannot become one of an ordinary user");
  else
    CHECK(status == 0);
}

TEST_CASE("a segment that finds no number free stays in the socket until there are two",
          "[shm][starved]") {
  Pair pair;
  {
    const NoDescriptors none(GENERATE(0u, 1u));
    CHECK(pair.go_on_until(
        [&] { return pair.acceptor.shortage() == EMFILE && pair.initiator.shortage() == EMFILE; }));
    CHECK(pair.both(host::Exchange::State::proved));
    CHECK(pair.initiator.next_try() != base::TimePoint::max());
  }
  CHECK(pair.go_on_until([&] { return pair.both(host::Exchange::State::met); }));
}

TEST_CASE("a message with more descriptors than it may have is cut, not waited for", "[shm]") {
  const auto [one, other] = socket_pair();
  const std::array<std::byte, 3> message{};
  std::array<int, 3> descriptors{0, 0, 0};
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof descriptors)> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof descriptors);
  std::copy_n(reinterpret_cast<const char*>(descriptors.data()), sizeof descriptors,
              reinterpret_cast<char*>(CMSG_DATA(rights)));
  REQUIRE(::sendmsg(one.get(), &header, 0) == 3);
  std::array<std::byte, 64> buffer;
  const host::Packet packet = host::receive_packet(other.get(), buffer, true);
  CHECK(packet.error == 0);
  CHECK(packet.cut);
  CHECK(host::receive_packet(other.get(), buffer, true).error == EAGAIN);
}

}  // namespace rondo::testing
