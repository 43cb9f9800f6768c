// SPDX-License-Identifier: Apache-2.0
//
// A process that a rank forked (a data loader) inherited the sockets of the rank. When the rank
// died, its connections stayed open, and its peers noticed only at the deadline.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "base/file_descriptor.h"
#include "catch.h"
#include "faults/processes.h"
#include "forked_ranks.h"

namespace rondo::testing {
namespace {

Options options_of(int rank, int size, const std::string& folder, const std::string& transport) {
  Options options;
  options.rank = rank;
  options.size = size;
  options.rendezvous = "file://" + folder + "/rendezvous";
  options.secret = "the secret of this test";
  options.interfaces = {"lo"};
  if (!transport.empty()) options.transports = {transport};
  options.deadline = std::chrono::seconds{60};
  return options;
}

// Kills this rank while a process that it has forked lives on. The forked process ends when the
// other end of the pipe is closed.
bool die_with_a_helper(Communicator& communicator, const int (&leash)[2]) {
  communicator.barrier().wait();
  if (::fork() == 0) {
    ::close(leash[1]);
    char byte = 0;
    while (::read(leash[0], &byte, 1) > 0) {
    }
    ::_exit(0);
  }
  ::raise(SIGKILL);
  return false;
}

}  // namespace

TEST_CASE("a rank that dies is noticed although a process that it has forked lives on", "[fork]") {
  const std::string transport = GENERATE(std::string("tcp"), std::string("shm"));
  constexpr int size = 3, victim = 1;
  const ScratchDirectory folder;
  int leash[2];
  REQUIRE(::pipe2(leash, O_CLOEXEC) == 0);
  const auto statuses = run_forked(size, [&](int rank) {
    if (rank != victim) ::close(leash[1]);
    Communicator communicator =
        Communicator::connect(options_of(rank, size, folder.path(), transport));
    if (rank == victim) return die_with_a_helper(communicator, leash);
    std::vector<float> in(100'000, 1.0f), out(100'000);
    try {
      communicator.barrier().wait();  // the victim may die before it has ended here
      communicator.all_reduce(buffer_of(std::span(in)), buffer_of(std::span(out)), ReduceOp::sum)
          .wait();
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

TEST_CASE("a communicator is refused in a forked child, and goes on in its parent", "[fork]") {
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    Communicator communicator = Communicator::connect(options_of(rank, 2, folder.path(), ""));
    std::vector<float> in(100'000, 1.0f), out(100'000);
    const Buffer input = buffer_of(std::span(in)), output = buffer_of(std::span(out));
    communicator.all_reduce(input, output, ReduceOp::sum).wait();
    Memory memory = communicator.allocate(1 << 20);
    const int helper = status_of(start_process([&] {
      int refused = 0;
      const auto must_refuse = [&](const auto& call) {
        try {
          call();
        } catch (const Error& error) {
          refused += error.code() == Errc::unsupported &&
                     std::string(error.what()).find("forked") != std::string::npos;
        }
      };
      must_refuse([&] { communicator.all_reduce(input, output, ReduceOp::sum).wait(); });
      must_refuse([&] { communicator.barrier().wait(); });
      must_refuse([&] { communicator.send(input, 1 - rank).wait(); });
      must_refuse([&] { (void)communicator.split(0, 0); });
      must_refuse([&] { (void)communicator.allocate(100); });
      must_refuse([&] { (void)communicator.statistics(); });
      must_refuse([&] { (void)communicator.dump(folder.path() + "/dump"); });
      communicator.abort(std::make_error_code(std::errc::operation_canceled));
      // The destructor does not hang, and ends nothing of the parent.
      { const Communicator mine = std::move(communicator); }
      memory = Memory();
      return refused == 7;
    }));
    communicator.all_reduce(input, output, ReduceOp::sum).wait();
    return helper == 0 && out.front() == 2.0f && memory.data() != nullptr;
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

TEST_CASE("a forked child has none of Rondo's descriptors, and its own keep their numbers",
          "[fork]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  base::FileDescriptor kept(ends[0]), other(ends[1]), given(::dup(ends[0]));
  const int number = given.release();
  CHECK(status_of(start_process([&] {
          if (::fcntl(kept.get(), F_GETFD) >= 0 || ::fcntl(other.get(), F_GETFD) >= 0) return false;
          if (::fcntl(number, F_GETFD) < 0) return false;  // given away: no longer Rondo's
          // The child uses the number again; the copy of its old owner must not close it.
          if (::dup2(number, kept.get()) != kept.get()) return false;
          const int again = kept.get();
          kept.reset();
          { const base::FileDescriptor moved = std::move(other); }
          if (::fcntl(again, F_GETFD) < 0) return false;
          // A descriptor that the child opens belongs to the child and is closed as usual.
          base::FileDescriptor fresh(::dup(number));
          const int its = fresh.get();
          fresh.reset();
          return ::fcntl(its, F_GETFD) < 0;
        })) == 0);
  CHECK(::fcntl(kept.get(), F_GETFD) >= 0);
  ::close(number);
}

}  // namespace rondo::testing
