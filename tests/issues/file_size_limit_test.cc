// SPDX-License-Identifier: Apache-2.0
//
// Where `ulimit -f` was below the size of a shared memory file, making one ended the process by
// SIGXFSZ.
#include <sys/resource.h>

#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "catch.h"
#include "faults/processes.h"
#include "forked_ranks.h"
#include "transports/shm/shm.h"

namespace rondo::testing {
namespace {

bool sum_with_limit(int rank, const std::string& folder, rlim_t limit,
                    const std::string& expected) {
  const rlimit low{limit, limit};
  if (::setrlimit(RLIMIT_FSIZE, &low) != 0) return false;
  Options options;
  options.rank = rank;
  options.size = 2;
  options.rendezvous = "file://" + folder + "/rendezvous";
  options.secret = "the secret of this test";
  options.interfaces = {"lo"};
  Communicator communicator = Communicator::connect(options);
  const std::size_t count = 1 << 20;
  const Memory memory = communicator.allocate(count * sizeof(float));
  const Buffer buffer{memory.data(), count, DType::f32};
  static_cast<float*>(memory.data())[count - 1] = 1.0f;
  communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  const std::string how = communicator.describe(Collective::all_reduce, count, DType::f32);
  if (how.find(expected) == std::string::npos) throw Error(Errc::system, how);
  return static_cast<float*>(memory.data())[count - 1] == 2.0f;
}

}  // namespace

TEST_CASE("a limit of file sizes below a segment leaves tcp", "[fork]") {
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    return sum_with_limit(rank, folder.path(), rlim_t{1} << 20, "over tcp");
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

TEST_CASE("a limit of file sizes below what is allocated leaves shared memory, with slots",
          "[fork]") {
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    return sum_with_limit(rank, folder.path(), rlim_t{32} << 20, "over shm");
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

TEST_CASE("why there is no shared memory names the limit of file sizes", "[fork]") {
  const pid_t child = start_process([] {
    const rlimit low{1 << 20, 1 << 20};
    return ::setrlimit(RLIMIT_FSIZE, &low) == 0 &&
           shm::obstacle().find("ulimit -f") != std::string::npos;
  });
  CHECK(status_of(child) == 0);
}

}  // namespace rondo::testing
