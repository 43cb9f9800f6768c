// SPDX-License-Identifier: Apache-2.0
//
// A lack of descriptors was reported as another failure: rank 0 said that ranks were missing, and
// that their connections were not from Rondo.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <barrier>
#include <optional>

#include "catch.h"
#include "forked_ranks.h"
#include "lib/needs.h"
#include "lib/ranks.h"
#include "lib/settings/reachability.h"
#include "support/ranks.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

namespace {

// Leaves `left` descriptors to this process while the object lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t left) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const base::FileDescriptor lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const rlimit few{static_cast<rlim_t>(lowest.get()) + left, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("too few descriptors are told with what to set", "[descriptors]") {
  const std::size_t beyond = std::size_t{1} << 40;
  CHECK_THROWS_WITH(
      lib::reserve_descriptors(beyond, 0, "joining as rank 0 of 2"),
      Contains("joining as rank 0 of 2 needs 1099511627776 more open files: this process has") &&
          Contains("Raise the limit to at least") && Contains("ulimit -n"));
}

TEST_CASE("the soft limit is raised to what is needed, and as far as the hard one allows",
          "[descriptors]") {
  const FewDescriptors few(4);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const auto before = limit.rlim_cur;
  lib::reserve_descriptors(2, 3, "somebody");
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(limit.rlim_cur >= before);
  lib::reserve_descriptors(10, 20, "somebody");
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(limit.rlim_cur >= std::min<rlim_t>(lib::open_descriptors() + 20, limit.rlim_max));
}

TEST_CASE("room is left for what other communicators may still open", "[descriptors]") {
  const FewDescriptors few(4);
  const std::size_t open = lib::open_descriptors();
  rlimit limit{};
  {
    lib::LaterDescriptors later;
    later.set(100);
    lib::reserve_descriptors(1, 1, "somebody");
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(limit.rlim_cur >= std::min<rlim_t>(open + 101, limit.rlim_max));
  }
  const auto before = limit.rlim_cur;
  lib::reserve_descriptors(80, 80, "somebody");
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(limit.rlim_cur == before);
}

TEST_CASE("rank 0 that runs out of descriptors while ranks join says so",
          "[descriptors][fork][starved]") {
  const std::string url = free_url();
  const pid_t others = ::fork();
  REQUIRE(others >= 0);
  if (others == 0) {
    join_all({place_of(1, 4, url, "secret"), place_of(2, 4, url, "secret"),
              place_of(3, 4, url, "secret")},
             with_deadline(milliseconds{20'000}));
    ::_exit(0);
  }
  Outcome outcome;
  {
    const FewDescriptors few(2);  // the listener and one rank
    outcome = join_one(place_of(0, 4, url, "secret"), with_deadline(milliseconds{8'000}), {});
  }
  ::kill(others, SIGKILL);
  ::waitpid(others, nullptr, 0);
  CHECK_FALSE(outcome.joined);
  CHECK_THAT(outcome.message,
             Contains("missing: rank") &&
                 Contains("rank 0 could not accept connections: too many open files") &&
                 Contains("ulimit -n") && !Contains("not from Rondo"));
}

namespace rondo::testing {

TEST_CASE("a rank that runs out of descriptors while links are opened says so",
          "[descriptors][starved]") {
  Setup setup;
  setup.over = Over::tcp;
  std::barrier all(setup.size);
  std::optional<FewDescriptors> few;
  std::vector<std::string> causes(2);
  CHECK_NOTHROW(run_communicators(setup, "descriptors", [&](Communicator& c, int rank) {
    all.arrive_and_wait();
    if (rank == 0) few.emplace(1);  // one end connects, and none is left to accept it
    all.arrive_and_wait();
    try {
      c.barrier().wait();
    } catch (const Error& error) {
      causes[static_cast<std::size_t>(rank)] = error.what();
    }
    all.arrive_and_wait();
    if (rank == 0) few.reset();
    all.arrive_and_wait();
  }));
  for (const std::string& cause : causes)
    CHECK_THAT(cause, Contains("cannot accept connections at") && Contains("too many open files") &&
                          Contains("ulimit -n"));
}

TEST_CASE("communicators that connect at the same time count each other's links", "[descriptors]") {
  const FewDescriptors few(50);
  Setup setup;
  setup.over = Over::tcp;
  setup.size = 8;
  CHECK_NOTHROW(run_communicators(setup, "many at once", [&](Communicator& c, int) {
    OpOptions urgent;
    urgent.priority = Priority::urgent;
    std::vector<float> in(8'000, 1.0f), out(8'000);
    c.all_to_all(buffer_of(std::span(in)), buffer_of(std::span(out))).wait();
    c.barrier(urgent).wait();
  }));
}

// With no descriptor left accept4 fails even if no connection waits. That looked like a shortage,
// which ended all links that had not been used. Rank 0 accepts the link of the message with its
// last descriptor, and opens none itself.
TEST_CASE("a link that takes the last descriptor is no shortage", "[descriptors][fork][starved]") {
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    Options options = meeting_at(folder.path() + "/group", rank, 2);
    options.transports = {"tcp"};
    Communicator c = Communicator::connect(options);
    c.barrier().wait();
    {
      std::optional<FewDescriptors> few;
      if (rank == 0) few.emplace(1);
      c.barrier().wait();
      float value = 1;
      const Buffer message{&value, 1, DType::f32};
      (rank == 0 ? c.receive(message, 1) : c.send(message, 0)).wait();
      // A shortage is reported after 5 s.
      wire::pause_until(base::after(base::Clock::now(), milliseconds{6'500}));
    }
    OpOptions urgent;
    urgent.priority = Priority::urgent;
    c.barrier(urgent).wait();
    return true;
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

namespace {

void check_descriptors(Over over, int rdma_devices) {
  constexpr int size = 4;
  const auto interfaces = settings::describe_interfaces({});
  const auto loopback = std::ranges::count_if(interfaces, &InterfaceInfo::loopback);
  std::size_t idle = 0, most = 0, idle_told = 0, most_told = 0;
  for (int rank = 0; rank < size; ++rank) {
    lib::DescriptorShape shape;
    shape.ranks = size;
    shape.rank = rank;
    shape.tcp = over == Over::tcp;
    shape.shm = over == Over::shm;
    (shape.tcp ? shape.tcp_peers : shape.shm ? shape.shm_peers : shape.rdma_peers) = size - 1;
    // The ranks of this process have devices of their own.
    shape.rdma_devices = rdma_devices;
    shape.tcp_addresses = static_cast<int>(loopback);
    idle_told += lib::descriptors_of(shape).idle;
    most_told += lib::descriptors_of(shape).most;
  }
  const std::size_t before = lib::open_descriptors();
  // Counts the descriptors of the ranks. Waits until temporary ones are closed.
  const auto count = [&](std::size_t told) {
    const base::TimePoint until = base::after(base::Clock::now(), std::chrono::seconds{20});
    std::size_t had = lib::open_descriptors() - before;
    for (; had > told && base::Clock::now() < until; had = lib::open_descriptors() - before)
      wire::pause_until(base::after(base::Clock::now(), milliseconds{5}));
    return had;
  };
  std::barrier all(size);
  Setup setup;
  setup.size = size;
  setup.over = over;
  CHECK_NOTHROW(run_communicators(setup, "descriptors", [&](Communicator& c, int rank) {
    all.arrive_and_wait();
    if (rank == 0) idle = count(idle_told);
    all.arrive_and_wait();
    std::vector<float> in(size, 1), out(size);
    for (const Priority lane : {Priority::bulk, Priority::urgent}) {
      OpOptions options;
      options.priority = lane;
      c.all_to_all(buffer_of(std::span(in)), buffer_of(std::span(out)), options).wait();
    }
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      Work sent = c.send(buffer_of(std::span(in)), peer, 1);
      c.receive(buffer_of(std::span(out)), peer, 1).wait();
      sent.wait();
    }
    all.arrive_and_wait();
    if (rank == 0) most = count(most_told);
    all.arrive_and_wait();
  }));
  INFO(name_of(over));
  CHECK(idle <= idle_told);
  CHECK(idle + size >= idle_told);
  CHECK(most <= most_told);
  CHECK(most + 2 * size >= most_told);
}

}  // namespace

TEST_CASE("a communicator takes the descriptors that are told", "[descriptors]") {
  check_descriptors(GENERATE(Over::tcp, Over::shm), 0);
}

// Needs a device: tests/vm runs it in a guest.
TEST_CASE("a communicator over rdma takes the descriptors that are told", "[.rdma]") {
  const std::size_t devices = settings::count_rdma_devices();
  REQUIRE(devices > 0);
  check_descriptors(Over::rdma, static_cast<int>(devices));
}

}  // namespace rondo::testing
