// SPDX-License-Identifier: Apache-2.0
//
// Children that a rank makes in other ways than by fork(), for which its handlers do not run, and
// what a child has of its parent.
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "base/file_descriptor.h"
#include "base/own_descriptors.h"
#include "catch.h"
#include "faults/processes.h"
#include "forked_ranks.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

Options options_here(int rank, int size, const std::string& name, const std::string& transport) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.rendezvous = "file://" + name;
  options.secret = "the secret of this test";
  if (!transport.empty()) options.transports = {transport};
  options.deadline = std::chrono::seconds{20};
  return options;
}

// Makes a child without the handlers of fork(). TSan has handlers of its own that it needs, so
// there it is a child of fork().
pid_t make_bare_child() {
  return under_tsan ? ::fork() : static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
}

// The numbers of the open descriptors, each with what it refers to.
std::set<std::string> open_here() {
  std::set<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && target.find("/fd") == std::string::npos)
      open.insert(entry.path().filename().string() + " -> " + target);
  }
  return open;
}

bool maps_segments() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:rondo") != std::string::npos) return true;
  return false;
}

bool sum_is(Communicator& communicator, float expected) {
  std::vector<float> in(100'000, 1.0f), out(100'000);
  communicator.all_reduce(buffer_of(std::span(in)), buffer_of(std::span(out)), ReduceOp::sum)
      .wait();
  return out.front() == expected && out.back() == expected;
}

bool is_refused(Communicator& communicator) {
  try {
    communicator.barrier().wait();
  } catch (const Error& error) {
    return error.code() == Errc::unsupported &&
           std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

// Writes what a child has open, beside that which its parent had before it connected, to standard
// error.
bool is_clean_child(const std::set<std::string>& before) {
  bool clean = !maps_segments();
  for (const std::string& one : open_here())
    if (!before.contains(one)) {
      std::fprintf(stderr, "the child has %s\n", one.c_str());
      clean = false;
    }
  return clean;
}

// The child gives up the communicator and lives until the other end of the leash is closed.
bool die_with_a_bare_child(Communicator& communicator, const int (&leash)[2]) {
  communicator.barrier().wait();
  int abandoned[2];
  if (::pipe2(abandoned, O_CLOEXEC) != 0) return false;
  char byte = 0;
  if (make_bare_child() == 0) {
    ::close(leash[1]);
    communicator.abandon();
    if (::write(abandoned[1], &byte, 1) != 1) ::_exit(1);
    while (::read(leash[0], &byte, 1) > 0) {
    }
    ::_exit(0);
  }
  if (::read(abandoned[0], &byte, 1) == 1) ::raise(SIGKILL);
  return false;
}

}  // namespace

TEST_CASE("a rank that dies is noticed although a bare child that has abandoned lives on",
          "[fork]") {
  const std::string transport = GENERATE(std::string("tcp"), std::string("shm"));
  constexpr int size = 3, victim = 1;
  const ScratchDirectory folder;
  int leash[2];
  REQUIRE(::pipe2(leash, O_CLOEXEC) == 0);
  const auto statuses = run_forked(size, [&](int rank) {
    if (rank != victim) ::close(leash[1]);
    Communicator communicator =
        Communicator::connect(options_here(rank, size, folder.path() + "/file", transport));
    if (rank == victim) return die_with_a_bare_child(communicator, leash);
    communicator.barrier().wait();
    try {
      sum_is(communicator, size);
    } catch (const Error& error) {
      const bool named = std::string(error.what()).find("rank 1") != std::string::npos;
      if (error.code() == Errc::peer_lost && named) return true;
      std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    }
    return false;
  });
  ::close(leash[0]);
  ::close(leash[1]);
  CHECK(statuses == std::vector<int>{0, 128 + SIGKILL, 0});
}

TEST_CASE("a child has no descriptor and no segment of the communicators of its parent", "[fork]") {
  const std::string transport = GENERATE(std::string("tcp"), std::string("shm"), std::string());
  const bool bare = GENERATE(false, true);
  INFO("over " << transport << (bare ? ", bare" : ""));
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    const auto before = open_here();
    Communicator communicator =
        Communicator::connect(options_here(rank, 2, folder.path() + "/file", transport));
    std::optional<Communicator> part = communicator.split(0, 0);
    if (!sum_is(communicator, 2) || !sum_is(*part, 2)) return false;
    if (open_here() == before) return false;  // else the test sees nothing
    // A descriptor that a thread of the library opens during a fork may be missed: once is enough.
    bool clean = false;
    for (int i = 0; i < 5 && !clean; ++i) {
      const pid_t child = bare ? make_bare_child() : ::fork();
      if (child == 0) {
        if (bare) part->abandon();
        ::_exit(is_clean_child(before) && is_refused(communicator) && is_refused(*part) ? 0 : 1);
      }
      clean = status_of(child) == 0;
    }
    return sum_is(communicator, 2) && sum_is(*part, 2) && clean;
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

TEST_CASE("a child of a process with several ranks abandons all of them", "[fork]") {
  Setup setup;
  setup.over = GENERATE(Over::mem, Over::shm);
  // In a process of its own, so that the test itself never has their threads.
  const auto statuses = run_forked(1, [&](int) {
    const auto before = open_here();
    run_communicators(setup, "abandon", [&](Communicator& communicator, int rank) {
      expect(sum_is(communicator, 2), "the sum is wrong");
      if (rank == 0) {
        const pid_t child = ::fork();
        if (child == 0) {
          communicator.abandon();
          ::_exit(is_clean_child(before) && is_refused(communicator) ? 0 : 1);
        }
        expect(status_of(child) == 0, "the child is not as it should be");
      }
      expect(sum_is(communicator, 2), "the sum is wrong after the fork");
    });
    return true;
  });
  CHECK(statuses == std::vector<int>{0});
}

TEST_CASE("abandon does nothing in the process that has connected", "[fork]") {
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    Communicator communicator =
        Communicator::connect(options_here(rank, 2, folder.path() + "/file", ""));
    communicator.abandon();
    return sum_is(communicator, 2);
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

TEST_CASE("a child that abandons again keeps the communicator that it has connected itself",
          "[fork]") {
  if (under_tsan) return;  // it allows no new threads in a child of a process with threads
  const std::string transport = GENERATE(std::string("tcp"), std::string("shm"));
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    Communicator inherited =
        Communicator::connect(options_here(rank, 2, folder.path() + "/parents", transport));
    if (!sum_is(inherited, 2)) return false;
    const int child = status_of(start_process([&] {
      inherited.abandon();
      Communicator own =
          Communicator::connect(options_here(rank, 2, folder.path() + "/children", transport));
      bool right = sum_is(own, 2);
      inherited.abandon();
      { const Communicator gone = std::move(inherited); }
      return right && sum_is(own, 2);
    }));
    return child == 0 && sum_is(inherited, 2);
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

TEST_CASE("leave_parent closes in a bare child only, and once", "[fork]") {
  const base::FileDescriptor kept(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  base::leave_parent();
  CHECK(::fcntl(kept.get(), F_GETFD) >= 0);
  const pid_t child = make_bare_child();
  if (child == 0) {
    base::leave_parent();
    if (::fcntl(kept.get(), F_GETFD) >= 0) ::_exit(1);
    const base::FileDescriptor own(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    base::leave_parent();
    ::_exit(::fcntl(own.get(), F_GETFD) >= 0 ? 0 : 2);
  }
  CHECK(status_of(child) == 0);
}

}  // namespace rondo::testing
