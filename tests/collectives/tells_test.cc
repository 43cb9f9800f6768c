// SPDX-License-Identifier: Apache-2.0
//
// A first frame blames its sender for coming late, so it must need nothing that others send.
#include <vector>

#include "all_schedules.h"
#include "catch.h"
#include "collectives/schedules/program.h"

using namespace rondo;
using schedules::Algorithm;
using schedules::Schedule;
using schedules::Step;

namespace {

// Whether the first frame from `of` to `to` can be sent before `of` has received anything.
bool needs_nothing(const Schedule& of, int to) {
  std::vector<bool> received(of.slices + 1);
  bool any_received = false, fence_received = false;
  for (const Step& step : of.steps) {
    const bool token = step.slice == of.slices;
    if (step.from != schedules::no_rank) any_received = received[step.slice] = true;
    if (step.to == to) return !received[step.slice] && !fence_received && !(token && any_received);
    fence_received = fence_received || (token && any_received);
  }
  return false;
}

}  // namespace

TEST_CASE("a frame that tells of its sender's call needs nothing from others") {
  const int size = GENERATE(2, 3, 4, 5, 8, 13);
  for_each_pair([&](Algorithm algorithm, Collective operation) {
    for (const schedules::Hosts& hosts : several_hosts(size)) {
      const std::vector<Schedule> all = all_schedules(algorithm, operation, size, 0, hosts);
      std::size_t told = 0;
      for (int rank = 0; rank < size; ++rank) {
        const schedules::Program program(operation, algorithm, 0, rank, size, 2, hosts);
        std::uint32_t tellers = 0;
        for (const schedules::ProgramPeer& peer : program.peers()) {
          if (!peer.tells) continue;
          ++tellers;
          INFO(name_of(algorithm) << " " << name_of(operation) << ", rank " << rank << " of "
                                  << size << " from " << peer.rank);
          CHECK(needs_nothing(all[static_cast<std::size_t>(peer.rank)], rank));
        }
        CHECK(program.tellers() == tellers);
        told += tellers;
      }
      INFO(name_of(algorithm) << " " << name_of(operation) << " of " << size);
      // In two levels the frames between hosts come after rounds that a host of one rank leaves
      // out.
      CHECK((told > 0 || algorithm == Algorithm::two_level));
    }
  });
}
