// SPDX-License-Identifier: Apache-2.0
//
// How ranks of one host exchange segments, and what ends a link between them.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include <rondo/error.h>

#include "base/clock.h"
#include "base/handshake.h"
#include "catch.h"
#include "conformance.h"
#include "shm_helpers.h"
#include "shm_impostor.h"
#include "shm_rank_process.h"
#include "transports/host/address.h"
#include "transports/host/packet.h"
#include "transports/shm/segment.h"

namespace rondo::testing {
namespace {

using Catch::Contains;
using Catch::Equals;

std::string failure_of(transports::Transport& transport,
                       const std::vector<transports::Blob>& addresses,
                       std::uint64_t job = shm_job) {
  try {
    transport.start(addresses, job);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("shm addresses are checked") {
  const transports::Blob good = host::encode(host::Address{"h", "name", 1, 2});
  REQUIRE(host::decode_address(good));
  CHECK(host::decode_address(good)->name == "name");
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    CHECK_FALSE(host::decode_address(std::span(good).first(bytes)));
  transports::Blob longer = good;
  longer.push_back(std::byte{0});
  CHECK_FALSE(host::decode_address(longer));
  CHECK_FALSE(host::decode_address(host::encode(host::Address{"h", "", 1, 2})));
  transports::Blob another_version = good;
  another_version[4] = std::byte{1};
  const auto transport = shm::make_shm(options_of(0, 2));
  CHECK_THAT(transport->reach(1, good).why, Contains("another host"));
  CHECK_THAT(transport->reach(1, {}).why, Contains("cannot share memory"));
  CHECK_THAT(transport->reach(1, longer).why, Contains("cannot be read"));
  CHECK_THAT(transport->reach(1, another_version).why, Contains("give all ranks one version"));
  CHECK(
      transport->reach(1, host::encode(host::Address{"one host", "n", ::geteuid(), 2})).distance ==
      transports::distance_host);
  CHECK_THAT(
      transport->reach(1, host::encode(host::Address{"one host", "n", ::geteuid() + 1, 2})).why,
      Contains("belongs to user"));
}

TEST_CASE("ranks of a host with the same secret meet, those with different ones say so") {
  CHECK(shm_transports(3, [](shm::Options& o) { o.secret = "one for all"; }).size() == 3);
  shm::Options first = options_of(0, 2), second = options_of(1, 2);
  first.secret = "a";
  second.secret = "b";
  auto rank0 = shm::make_shm(first), rank1 = shm::make_shm(second);
  const std::vector<transports::Blob> addresses{rank0->address(), rank1->address()};
  std::string zero;
  std::thread other([&] { zero = failure_of(*rank0, addresses); });
  const std::string one = failure_of(*rank1, addresses);
  other.join();
  CHECK_THAT(one, Contains("RONDO_SECRET") && Contains("rank 0"));
  CHECK_THAT(zero, Contains("rank 1") && Contains("given up"));
}

TEST_CASE("ranks of different jobs do not share memory") {
  auto rank0 = shm::make_shm(options_of(0, 2)), rank1 = shm::make_shm(options_of(1, 2));
  const std::vector<transports::Blob> addresses{rank0->address(), rank1->address()};
  std::string zero;
  std::thread other([&] { zero = failure_of(*rank0, addresses, 1); });
  CHECK_THAT(failure_of(*rank1, addresses, 2), Contains("another job"));
  other.join();
  CHECK(zero != "none");
}

TEST_CASE("a rank that has ended is not waited for") {
  const int gone = GENERATE(0, 1);
  auto transport = shm::make_shm(options_of(1 - gone, 2)),
       other = shm::make_shm(options_of(gone, 2));
  std::vector<transports::Blob> addresses(2);
  addresses[static_cast<std::size_t>(gone)] = other->address();
  addresses[static_cast<std::size_t>(1 - gone)] = transport->address();
  other.reset();
  const auto begin = base::Clock::now();
  CHECK_THAT(failure_of(*transport, addresses), Contains("its process has ended"));
  CHECK(base::Clock::now() - begin < milliseconds{5000});
}

TEST_CASE("a rank that never comes is named at the deadline") {
  shm::Options options = options_of(0, 2);
  options.deadline = base::after(base::Clock::now(), milliseconds{300});
  auto transport = shm::make_shm(options), other = shm::make_shm(options_of(1, 2));
  CHECK_THAT(failure_of(*transport, {transport->address(), other->address()}),
             Contains("until the deadline for joining") && Contains("rank 1"));
}

TEST_CASE("ranks that meet end with what the control plane says of the others") {
  auto rank0 = shm::make_shm(options_of(0, 2)), rank1 = shm::make_shm(options_of(1, 2));
  const std::vector<transports::Blob> addresses{rank0->address(), rank1->address()};
  std::string zero;
  std::thread waiting([&] { zero = failure_of(*rank0, addresses); });
  shm::interrupt(*rank0, "rank 2 has lost rank 1");
  shm::interrupt(*rank0, "what follows from it");
  waiting.join();
  CHECK(zero == "rank 2 has lost rank 1");
}

TEST_CASE("why one rank gives up is what the others say too") {
  auto rank0 = shm::make_shm(options_of(0, 3)), rank1 = shm::make_shm(options_of(1, 3)),
       rank2 = shm::make_shm(options_of(2, 3));
  const std::vector<transports::Blob> addresses{rank0->address(), rank1->address(),
                                                rank2->address()};
  rank2.reset();
  std::string one;
  std::thread other([&] { one = failure_of(*rank1, addresses); });
  const std::string zero = failure_of(*rank0, addresses);
  other.join();
  CHECK_THAT(zero, Contains("rank 2"));
  CHECK_THAT(one, Contains("rank 2") || Contains("rank 0"));
}

TEST_CASE("strangers at the socket do no harm") {
  auto rank0 = shm::make_shm(options_of(0, 2)), rank1 = shm::make_shm(options_of(1, 2));
  const std::string name = host::decode_address(rank0->address())->name;
  const transports::Blob noise = payload_of(3, 500);
  const base::FileDescriptor file(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::ptrdiff_t before = open_descriptors();
  std::vector<base::FileDescriptor> clients;
  for (int i = 0; i < 100; ++i) {
    clients.push_back(host::connect_to_name(name));
    if (!clients.back()) break;
    const std::array<int, 1> descriptor{file.get()};
    if (i % 2 == 0)
      host::send_packet(clients.back().get(),
                        std::span(noise).first(static_cast<std::size_t>(i) * 5), descriptor);
    if (i % 3 == 0) clients.pop_back();
  }
  const std::vector<transports::Blob> addresses{rank0->address(), rank1->address()};
  std::thread other([&] { rank1->start(addresses, shm_job); });
  CHECK(failure_of(*rank0, addresses) == "none");
  other.join();
  clients.clear();
  CHECK(rank0->windows()->ranks().size() == 2);
  // Each rank has a socket and a bell for the other one, and a bell of its own. Its listening
  // socket is closed.
  CHECK(open_descriptors() <= before + 2 * 3 - 2);
}

TEST_CASE("what a member of the job sends is checked") {
  auto victim = shm::make_shm(options_of(0, 2));
  Impostor impostor(*victim);
  std::string failure;
  std::thread thread([&] {
    failure = failure_of(*victim, {victim->address(), impostor.address()});
  });
  REQUIRE(impostor.shake_hands() == base::Verdict::welcome);
  const std::size_t bytes = shm::SegmentLayout(2).bytes();
  std::string expected;
  SECTION("a segment of another size") {
    impostor.show(memory_of(bytes - 4096, F_SEAL_SHRINK | F_SEAL_GROW).get());
    expected = "bytes instead of";
  }
  SECTION("a segment that could shrink") {
    impostor.show(memory_of(bytes, F_SEAL_GROW).get());
    expected = "not sealed";
  }
  SECTION("a file") {
    impostor.show(base::FileDescriptor(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)).get());
    expected = "";
  }
  SECTION("a bell that is none") {
    const base::FileDescriptor memory = memory_of(bytes, F_SEAL_SHRINK | F_SEAL_GROW);
    impostor.show(memory.get(), memory.get());
    expected = "its bell is neither an event nor a page of memory";
  }
  SECTION("no descriptor") {
    host::send_packet(impostor.socket(), std::as_bytes(std::span("rondoseg", 8)));
    expected = "without its two descriptors";
  }
  SECTION("something else") {
    host::send_packet(impostor.socket(), payload_of(5, 200));
    expected = "something else";
  }
  SECTION("that it gives up") {
    host::send_packet(impostor.socket(), std::as_bytes(std::span("rondoendno\nway", 14)));
    expected = "no way";
  }
  thread.join();
  CHECK_THAT(failure, Contains(expected));
  CHECK(failure != "none");
}

TEST_CASE("counters that cannot be break the link, and nothing is read beyond the ring") {
  auto victim = shm::make_shm(options_of(0, 2));
  Impostor impostor(*victim);
  std::thread thread([&] { victim->start({victim->address(), impostor.address()}, shm_job); });
  REQUIRE(impostor.shake_hands() == base::Verdict::welcome);
  const shm::SegmentLayout layout(2);
  const base::FileDescriptor memory = memory_of(layout.bytes(), F_SEAL_SHRINK | F_SEAL_GROW);
  const shm::Segment segment(
      layout, base::Mapping(memory.get(), layout.bytes(), base::Mapping::Access::write));
  impostor.show(memory.get());
  thread.join();
  Node node(std::move(victim));
  shm::SegmentPair& pair = segment.pair(0);
  const std::uint64_t produced = GENERATE(65, 512 << 10, UINT64_MAX - 63);
  SECTION("produced") {
    node.expect(1, transports::Lane::bulk, {1, 10'000, true, 1});
    put_header(segment.ring(0, transports::Lane::bulk), header_of(1));
    pair.produced[0] = produced;
  }
  SECTION("header") {
    shm::first_word(segment.ring(0, transports::Lane::bulk)) = produced;
  }
  SECTION("consumed") {
    node.send(1, transports::Lane::bulk, 1, 100);
    node.turn();
    node.send(1, transports::Lane::bulk, 2, std::size_t{10} << 20);
    node.turn();
    pair.consumed[0] = (std::uint64_t{1} << 40) + produced;
  }
  ++pair.changes;
  for (int i = 0; i < 10 && node.broken_links.empty(); ++i) node.turn();
  REQUIRE(node.broken_links.size() == 1);
  CHECK(node.broken_links[0].code == Errc::corrupt);
}

TEST_CASE(
    "the death of a process is noticed, told once for each link, and what it sent before still "
    "arrives") {
  auto mine = shm::make_shm(options_of(0, 2));
  RankProcess other(*mine, [](transports::Transport& theirs) {
    theirs.link(0, transports::Lane::bulk).send(header_of(1), payload_of(1, 1000));
    ::raise(SIGKILL);
  });
  Node node(std::move(mine));
  node.expect(1, transports::Lane::bulk, {1, 1000, true, 1});
  const auto until = base::Clock::now() + patience;
  while (node.broken_links.size() < transports::link_lanes.size() && base::Clock::now() < until) {
    if (!node.turn() && node.transport().prepare_sleep()) {
      pollfd watch{node.transport().wake_source().descriptor, POLLIN, 0};
      CHECK(::poll(&watch, 1, 10'000) == 1);
    }
  }
  other.wait();
  CHECK(node.frames == 1);
  REQUIRE(node.broken_links.size() == transports::link_lanes.size());
  for (const Node::Broken& broken : node.broken_links) {
    CHECK(broken.what == "its process has ended");
    CHECK_FALSE(broken.clean);
  }
  CHECK_THAT(node.transport().link(1, transports::Lane::bulk).describe(),
             Contains("process " + std::to_string(other.process())));
}

// The sanitizers themselves need descriptors.
#if !RONDO_SANITIZED
TEST_CASE("a rank without descriptors to spare names the limit") {
  const auto spare = GENERATE(0u, 1u, 2u, 3u, 4u, 5u);
  std::vector<transports::Blob> addresses(2);
  int told[2], heard[2], answer[2];
  REQUIRE((::pipe2(told, O_CLOEXEC) == 0 && ::pipe2(heard, O_CLOEXEC) == 0 &&
           ::pipe2(answer, O_CLOEXEC) == 0));
  const auto read_address = [](int from, transports::Blob& to) {
    to.resize(1024);
    to.resize(static_cast<std::size_t>(std::max<ssize_t>(::read(from, to.data(), to.size()), 0)));
    return !to.empty();
  };
  const pid_t child = ::fork();
  if (child == 0) {  // rank 1
    auto rank1 = shm::make_shm(options_of(1, 2));
    addresses[1] = rank1->address();
    if (::write(told[1], addresses[1].data(), addresses[1].size()) < 0) ::_exit(1);
    if (!read_address(heard[0], addresses[0])) ::_exit(1);
    const std::string text = failure_of(*rank1, addresses);
    ::_exit(::write(answer[1], text.data(), text.size()) < 0);
  }
  REQUIRE(read_address(told[0], addresses[1]));
  // The other rank runs already, so the deadline bounds only the exchange.
  shm::Options short_of = options_of(0, 2);
  short_of.deadline = base::after(base::Clock::now(), milliseconds{2500});
  auto rank0 = shm::make_shm(short_of);
  addresses[0] = rank0->address();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  std::string zero;
  {
    std::vector<base::FileDescriptor> all;
    rlimit low = before;
    low.rlim_cur = static_cast<rlim_t>(open_descriptors() + 20);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
    for (base::FileDescriptor one_more(::dup(0)); one_more;
         one_more = base::FileDescriptor(::dup(0)))
      all.push_back(std::move(one_more));
    all.resize(all.size() - spare);
    REQUIRE(::write(heard[1], addresses[0].data(), addresses[0].size()) > 0);
    zero = failure_of(*rank0, addresses);
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  rank0.reset();
  std::string one(1024, ' ');
  const ssize_t letters = ::read(answer[0], one.data(), one.size());
  one.resize(static_cast<std::size_t>(std::max<ssize_t>(letters, 0)));
  ::waitpid(child, nullptr, 0);
  for (const int end : {told[0], told[1], heard[0], heard[1], answer[0], answer[1]}) ::close(end);
  CHECK_THAT(zero, Contains("ulimit -n"));
  // "none": rank 0 could send and not receive, so rank 1 has finished the exchange. The control
  // plane would tell it the failure.
  CHECK_THAT(one, Contains("rank 0") || Equals("none"));
}
#endif

}  // namespace rondo::testing
