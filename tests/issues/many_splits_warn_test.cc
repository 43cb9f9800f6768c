// SPDX-License-Identifier: Apache-2.0
//
// Every split opens descriptors of its own. A program that splits again and again got no warning
// before none was left.
#include <sys/resource.h>

#include <cstdio>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "catch.h"
#include "faults/processes.h"
#include "forked_ranks.h"
#include "lib/needs.h"
#include "support/standard_error.h"

namespace rondo::testing {
namespace {

// Opens `splits` splits together. Returns how often the process warns that its files run short, or
// -1 when a warning does not name rank 1.
int warnings_of(Communicator& communicator, int splits) {
  const StandardError error;
  std::vector<Communicator> groups;
  for (int split = 0; split < splits; ++split) groups.push_back(*communicator.split(0, 0));
  const std::string text = error.text(), part = "files open, and every communicator opens its own";
  const auto count = static_cast<int>(times(text, part));
  if (count > 0 && text.find("rank 1 of 2 after split ") == std::string::npos) return -1;
  return count;
}

}  // namespace

TEST_CASE("a process that splits until its files run short is warned once", "[fork]") {
  const ScratchDirectory folder;
  const auto statuses = run_forked(2, [&](int rank) {
    Options options = meeting_at(folder.path() + "/rendezvous", rank, 2);
    options.interfaces = {"lo"};
    options.transports = {"tcp"};  // over shared memory a split takes only three
    Communicator communicator = Communicator::connect(options);
    const std::size_t open = lib::open_descriptors();
    Communicator group = *communicator.split(0, 0);
    const std::size_t each = lib::open_descriptors() - open;
    if (rank == 1) {
      // The process has opened half of the limit after the fourth split.
      const rlim_t most = 2 * (open + 4 * each);
      const rlimit limit{most, most};
      if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
    }
    const int few = warnings_of(communicator, 1), many = warnings_of(communicator, 6);
    if (few == 0 && many == rank) return true;
    std::fprintf(stderr, "rank %d: %d and %d warnings\n", rank, few, many);
    return false;
  });
  CHECK(statuses == std::vector<int>{0, 0});
}

}  // namespace rondo::testing
