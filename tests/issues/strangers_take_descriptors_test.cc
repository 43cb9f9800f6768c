// SPDX-License-Identifier: Apache-2.0
//
// Connections that prove nothing took descriptors until the process had none left. A rank that came
// then waited until their handshakes timed out. Strangers that came again and again looked like a
// shortage that does not end.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/handshake.h"
#include "catch.h"
#include "lib/played_rank.h"
#include "transports/connect/address.h"
#include "transports/host/address.h"
#include "transports/host/packet.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

namespace rondo::tests {
namespace {

constexpr std::uint64_t job = 7;

// Sets the soft limit of open files while the object lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t soft) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit now{std::min(soft, before_.rlim_max), before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &now) == 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

// Rank 0 of 2, without rank 1. It accepts connections after start().
struct Lonely {
  Lonely() {
    tcp::Options options;
    options.size = 2;
    options.secret = "secret";
    options.host = "one host";
    options.interfaces = {"lo"};
    transport = tcp::make_tcp(options);
    const auto address = connect::decode_address(transport->address());
    REQUIRE(address);
    const auto& first = address->endpoints.front();
    at.bytes = static_cast<socklen_t>(first.size());
    std::memcpy(&at.storage, first.data(), first.size());
  }
  void start() { transport->start({transport->address(), transport->address()}, job); }

  std::unique_ptr<transports::Transport> transport;
  wire::Endpoint at;
};

base::FileDescriptor connect(const Lonely& rank) {
  std::string why;
  base::FileDescriptor socket =
      wire::connect_to(rank.at, base::after(base::Clock::now(), milliseconds{20'000}), why);
  INFO(why);
  REQUIRE(socket);
  return socket;
}

std::size_t dismissed(const std::vector<base::FileDescriptor>& clients) {
  return static_cast<std::size_t>(
      std::ranges::count_if(clients, [](const base::FileDescriptor& client) {
        std::byte byte{};
        return ::recv(client.get(), &byte, 1, MSG_PEEK) == 0;
      }));
}

template <class Bytes>
std::optional<Bytes> read_exactly(const base::FileDescriptor& socket, base::TimePoint until) {
  Bytes bytes{};
  for (std::size_t have = 0; have < bytes.size();) {
    if (!wire::wait_for(socket.get(), POLLIN, until)) return std::nullopt;
    const ssize_t count = ::recv(socket.get(), bytes.data() + have, bytes.size() - have, 0);
    if (count <= 0) return std::nullopt;
    have += static_cast<std::size_t>(count);
  }
  return bytes;
}

// Does the handshake of rank 1. Returns nothing when it is not over in time, or the
// rank has closed the connection.
std::optional<base::Verdict> shake_hands(const base::FileDescriptor& socket,
                                         base::TimePoint until) {
  base::Initiator initiator({.purpose = base::Purpose::data, .rank = 1, .size = 2, .job = job}, 0,
                            "secret");
  const base::HelloBytes hello = initiator.hello();
  if (::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL) != base::hello_bytes)
    return std::nullopt;
  const auto challenge = read_exactly<base::ChallengeBytes>(socket, until);
  if (!challenge) return std::nullopt;
  const base::ProofBytes proof = initiator.answer(*challenge);
  if (::send(socket.get(), proof.data(), proof.size(), MSG_NOSIGNAL) != base::proof_bytes)
    return std::nullopt;
  const auto verdict = read_exactly<base::VerdictBytes>(socket, until);
  if (!verdict) return std::nullopt;
  return base::Initiator::read_verdict(*verdict);
}

}  // namespace

// Handshakes time out after 5 s. A machine that is so slow that this happens here counts fewer
// strangers, not more.
TEST_CASE("connections that prove nothing hold a quarter of the descriptors at most") {
  Lonely rank;
  std::vector<base::FileDescriptor> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connect(rank));
  const base::FileDescriptor client = connect(rank);
  REQUIRE(client.get() < 180);
  const FileLimit limit(280);
  rank.start();
  // Connections are accepted in the order in which they came. So when this handshake is over, all
  // others have been accepted.
  REQUIRE(shake_hands(client, base::after(base::Clock::now(), milliseconds{20'000})) ==
          base::Verdict::welcome);
  CHECK(strangers.size() - dismissed(strangers) <= 280 / 4);
}

TEST_CASE("strangers at the rendezvous hold a quarter of the descriptors at most") {
  const std::uint16_t port = free_port();
  const auto rank = [port](int number) {
    return std::async(std::launch::async, [port, number] {
      return join_one(place_of(number, 2, "tcp://127.0.0.1:" + std::to_string(port), "secret"),
                      with_deadline(milliseconds{20'000}), record_of(number));
    });
  };
  auto rank0 = rank(0);
  wire::Stream first = connected(port);
  REQUIRE(first.descriptor() < 80);
  const FileLimit limit(280);
  std::vector<wire::Stream> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(connected(port));
  {
    // When this handshake is over, all others have been accepted.
    const wire::Stream last = welcomed(port, 1, 2, "secret");
    for (wire::Stream& stranger : strangers) stranger.read();
    CHECK(std::ranges::count_if(strangers, [](const auto& one) { return !one.ended(); }) <=
          280 / 4);
  }
  std::vector<Outcome> outcomes;
  outcomes.push_back(rank(1).get());
  outcomes.insert(outcomes.begin(), rank0.get());
  CHECK(what_is_wrong(outcomes) == "");
}

TEST_CASE("a rank that comes when there are no descriptors left takes the place of a stranger",
          "[starved]") {
  Lonely rank;
  std::vector<base::FileDescriptor> strangers;
  for (int i = 0; i < 60; ++i) strangers.push_back(connect(rank));
  const base::FileDescriptor client = connect(rank);
  rank.start();
  // Six descriptors are left. A rank that waits until the handshakes of 60 strangers time out, six
  // at a time, waits for 50 s.
  const FileLimit limit(static_cast<rlim_t>(client.get()) + 7);
  CHECK(shake_hands(client, base::after(base::Clock::now(), milliseconds{25'000})) ==
        base::Verdict::welcome);
}

// With no descriptor left accept4 fails even if no connection waits. So a connection with the last
// descriptor was dropped for nobody, and ranks that came at once were dropped for each other.
TEST_CASE("a connection keeps the last descriptor while it greets", "[starved]") {
  const int others = GENERATE(0, 4);
  CAPTURE(others);
  bool welcome = false;
  // On a machine so busy that the hello takes 20 ms a new try is made, as a rank does.
  for (int attempt = 0; attempt < 5 && !welcome; ++attempt) {
    Lonely rank;
    std::vector<base::FileDescriptor> sockets;
    for (int i = 0; i <= others; ++i)
      sockets.emplace_back(
          ::socket(rank.at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    rank.start();
    const base::FileDescriptor lowest(::dup(sockets.back().get()));
    const FileLimit limit(static_cast<rlim_t>(lowest.get()) + 2);  // one is left
    for (const base::FileDescriptor& socket : sockets)
      if (::connect(socket.get(), rank.at.address(), rank.at.bytes) != 0)
        REQUIRE(errno == EINPROGRESS);
    welcome = shake_hands(sockets.front(), base::after(base::Clock::now(), milliseconds{10'000})) ==
              base::Verdict::welcome;
  }
  CHECK(welcome);
}

TEST_CASE("local connections that prove nothing hold a quarter of the descriptors at most") {
  const auto make = [](int rank) {
    shm::Options options;
    options.rank = rank;
    options.size = 2;
    options.host = "one host";
    options.secret = "secret";
    options.deadline = base::after(base::Clock::now(), milliseconds{60'000});
    return shm::make_shm(options);
  };
  const auto rank0 = make(0), rank1 = make(1);
  const std::vector<transports::Blob> addresses{rank0->address(), rank1->address()};
  const std::string name = host::decode_address(rank0->address())->name;
  std::vector<base::FileDescriptor> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(host::connect_to_name(name));
    REQUIRE(strangers.back());
  }
  const base::FileDescriptor client = host::connect_to_name(name);
  REQUIRE(client.get() < 180);
  const FileLimit limit(280);
  std::jthread meeting([&] { rank0->start(addresses, job); });
  // The last client gets its answer when all strangers have been accepted.
  base::Initiator initiator({.purpose = base::Purpose::memory, .rank = 1, .size = 2, .job = job}, 0,
                            "secret");
  host::send_packet(client.get(), initiator.hello());
  pollfd ready{client.get(), POLLIN, 0};
  CHECK(::poll(&ready, 1, 20'000) == 1);
  CHECK(strangers.size() - dismissed(strangers) <= 280 / 4);
  rank1->start(addresses, job);
  meeting.join();
}

// Strangers come for longer than the listener tolerates a shortage. It must notice that it could
// accept in between.
TEST_CASE(
    "strangers who come again and again when there are no descriptors left do not end the job",
    "[starved]") {
  Lonely rank;
  std::vector<base::FileDescriptor> sockets;
  for (int i = 0; i < 61; ++i)
    sockets.emplace_back(
        ::socket(rank.at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  rank.start();
  const FileLimit limit(static_cast<rlim_t>(sockets.back().get()) + 4);
  for (const base::FileDescriptor& socket : sockets) {
    if (::connect(socket.get(), rank.at.address(), rank.at.bytes) != 0)
      REQUIRE(errno == EINPROGRESS);
    wire::pause_until(base::after(base::Clock::now(), milliseconds{110}));
  }
  CHECK(shake_hands(sockets.back(), base::after(base::Clock::now(), milliseconds{20'000})) ==
        base::Verdict::welcome);
}

}  // namespace rondo::tests
