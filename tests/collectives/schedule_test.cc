// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/schedule.h"

#include <algorithm>
#include <set>

#include "catch.h"
#include "collectives/plan/costs.h"
#include "collectives/proof/checker.h"
#include "collectives/schedules/order.h"
#include "collectives/schedules/schedules.h"
#include "tests/collectives/all_schedules.h"

using namespace rondo;

namespace {

std::size_t data_frames(const std::vector<schedules::Schedule>& schedules) {
  std::size_t frames = 0;
  for (const schedules::Schedule& s : schedules)
    for (const schedules::Step& step : s.steps)
      frames += step.to != schedules::no_rank && step.slice != s.slices;
  return frames;
}

std::size_t token_frames(const std::vector<schedules::Schedule>& schedules) {
  std::size_t frames = 0;
  for (const schedules::Schedule& s : schedules)
    for (const schedules::Step& step : s.steps)
      frames += step.to != schedules::no_rank && step.slice == s.slices;
  return frames;
}

schedules::Schedule left_between(Collective operation, int rank, const schedules::Hosts& hosts,
                                 int root = 0) {
  return schedules::between_hosts(
      schedules::make_schedule(schedules::Algorithm::two_level, operation, rank, hosts.ranks(),
                               root, hosts),
      rank, hosts);
}

// For each host, what is left for its ranks, as one schedule between hosts. A broadcast's root
// gives in memory what it keeps; the checker wants to see it.
std::vector<schedules::Schedule> joined_by_host(Collective operation, const schedules::Hosts& hosts,
                                                int root = 0) {
  std::vector<schedules::Schedule> of_hosts(static_cast<std::size_t>(hosts.count()));
  for (int rank = 0; rank < hosts.ranks(); ++rank) {
    const schedules::Schedule left = left_between(operation, rank, hosts, root);
    schedules::Schedule& joined = of_hosts[static_cast<std::size_t>(hosts.host(rank))];
    joined.slices = left.slices;
    joined.rounds = left.rounds;
    for (std::uint32_t slice = 0; slice < left.slices; ++slice)
      if (operation == Collective::broadcast && rank == root)
        joined.steps.push_back({.slice = slice, .keep = true});
    for (schedules::Step step : left.steps) {
      if (step.from != schedules::no_rank) step.from = hosts.host(step.from);
      if (step.to != schedules::no_rank) step.to = hosts.host(step.to);
      joined.steps.push_back(step);
    }
  }
  for (schedules::Schedule& joined : of_hosts)
    std::ranges::stable_sort(joined.steps, [](const auto& a, const auto& b) {
      return a.round != b.round ? a.round < b.round : a.slice < b.slice;
    });
  return of_hosts;
}

// The steps for the blocks of one local number, on equal hosts in blocks: slice h is that of host
// h. An all_gather keeps its own block in memory; the checker wants to see it.
std::vector<schedules::Schedule> rail_of_hosts(Collective operation, const schedules::Hosts& hosts,
                                               int rail) {
  auto of_hosts = joined_by_host(operation, hosts);
  for (int host = 0; host < hosts.count(); ++host) {
    schedules::Schedule& schedule = of_hosts[static_cast<std::size_t>(host)];
    schedule.slices = static_cast<std::uint32_t>(hosts.count());
    std::erase_if(schedule.steps, [&](const schedules::Step& step) {
      return hosts.local(static_cast<int>(step.slice)) != rail;
    });
    for (schedules::Step& step : schedule.steps)
      step.slice = static_cast<std::uint32_t>(hosts.host(static_cast<int>(step.slice)));
    if (operation == Collective::all_gather)
      schedule.steps.insert(schedule.steps.begin(),
                            {.slice = static_cast<std::uint32_t>(host), .keep = true});
  }
  return of_hosts;
}

// Each slice is in one row, and belongs to the rank that has its steps between hosts. Rows come in
// the order of these steps.
void check_rows(Collective operation, int host, const schedules::Hosts& hosts) {
  const auto rows = schedules::rows_inside(operation, host, hosts);
  const auto on = hosts.on(host);
  std::vector<int> owner;
  std::vector<std::size_t> row_of;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    REQUIRE(rows[i].size() == on.size());
    for (std::size_t local = 0; local < on.size(); ++local)
      for (std::uint32_t slice = rows[i][local].first; slice < rows[i][local].end; ++slice) {
        owner.resize(std::max<std::size_t>(owner.size(), slice + 1), schedules::no_rank);
        row_of.resize(owner.size());
        CHECK(owner[slice] == schedules::no_rank);
        owner[slice] = on[local];
        row_of[slice] = i;
      }
  }
  CHECK(std::ranges::count(owner, schedules::no_rank) == 0);
  for (const int rank : on) {
    const schedules::Schedule left = left_between(operation, rank, hosts);
    CHECK(owner.size() == left.slices);
    CHECK(std::ranges::all_of(left.steps, [](const schedules::Step& step) {
      return step.from != schedules::no_rank || step.to != schedules::no_rank;
    }));
    for (const schedules::Step& step : left.steps)
      if (step.slice != left.slices) CHECK(owner.at(step.slice) == rank);
    if (schedules::is_blocked(operation))
      CHECK(std::ranges::is_sorted(
          left.steps, {}, [&](const schedules::Step& step) { return row_of.at(step.slice); }));
    if (operation == Collective::all_gather)  // its input is its own block
      CHECK(row_of.at(static_cast<std::size_t>(rank)) == 0);
  }
}

}  // namespace

TEST_CASE("names of algorithms") {
  for (int i = 0; i < schedules::algorithm_count; ++i) {
    const auto algorithm = static_cast<schedules::Algorithm>(i);
    CHECK(schedules::parse_algorithm(schedules::name_of(algorithm)) == algorithm);
  }
  CHECK(schedules::name_of(schedules::Algorithm::doubling) == "doubling");
  CHECK(schedules::name_of(static_cast<schedules::Algorithm>(99)) == "unknown");
  CHECK_FALSE(schedules::parse_algorithm("").has_value());
  CHECK_FALSE(schedules::parse_algorithm("Ring").has_value());
  CHECK_FALSE(schedules::parse_algorithm("rings").has_value());
}

TEST_CASE("every operation has algorithms, and all_reduce has all that have schedules") {
  for (int a = 0; a < schedules::algorithm_count; ++a)
    CHECK(schedules::supports(static_cast<schedules::Algorithm>(a), Collective::all_reduce) ==
          (static_cast<schedules::Algorithm>(a) != schedules::Algorithm::pairwise &&
           static_cast<schedules::Algorithm>(a) != schedules::Algorithm::direct));
  for (int o = 0; o < collective_count; ++o) {
    const auto operation = static_cast<Collective>(o);
    const schedules::Algorithm general = operation == Collective::all_to_all
                                             ? schedules::Algorithm::pairwise
                                             : schedules::Algorithm::star;
    CHECK(schedules::supports(general, operation) == schedules::has_schedules(operation));
    if (schedules::has_counts(operation))
      for (int a = 0; a < schedules::algorithm_count; ++a)
        CHECK(schedules::supports(static_cast<schedules::Algorithm>(a), operation) ==
              schedules::supports(static_cast<schedules::Algorithm>(a),
                                  schedules::without_counts(operation)));
  }
  CHECK_FALSE(schedules::supports(schedules::Algorithm::ring, Collective::barrier));
  CHECK_FALSE(schedules::supports(schedules::Algorithm::chain, Collective::broadcast));
  CHECK_FALSE(schedules::supports(static_cast<schedules::Algorithm>(99), Collective::all_reduce));
}

TEST_CASE("a rank alone moves its input to its output") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    const schedules::Schedule schedule = schedules::make_schedule(algorithm, operation, 0, 1, 0);
    CHECK(schedule.slices == 1);
    if (operation == Collective::barrier) {
      CHECK(schedule.steps.empty());
      return;
    }
    REQUIRE(schedule.steps.size() == 1);
    CHECK(schedule.steps[0].keep);
    CHECK(schedule.steps[0].from == schedules::no_rank);
    CHECK(schedule.steps[0].to == schedules::no_rank);
  });
}

TEST_CASE("the ring of two ranks is one exchange of halves each way") {
  const schedules::Schedule schedule =
      schedules::make_schedule(schedules::Algorithm::ring, Collective::all_reduce, 0, 2, 0);
  CHECK(schedule.slices == 2);
  CHECK(schedule.rounds == 2);
  REQUIRE(schedule.steps.size() == 3);
  CHECK(schedule.steps[0].slice == 0);
  CHECK(schedule.steps[0].to == 1);
  CHECK(schedule.steps[1].slice == 1);
  CHECK((schedule.steps[1].reduce && schedule.steps[1].keep && schedule.steps[1].from == 1 &&
         schedule.steps[1].to == 1));
  CHECK((schedule.steps[2].slice == 0 && schedule.steps[2].keep && !schedule.steps[2].reduce));
}

TEST_CASE("a ring sends 2(n-1)/n of the buffer, every rank the same") {
  for (int size = 2; size <= 33; ++size) {
    const auto schedules = all_schedules(schedules::Algorithm::ring, Collective::all_reduce, size);
    const proof::CheckReport report = proof::check(schedules, Collective::all_reduce, 0);
    REQUIRE(report.ok());
    CHECK(report.rounds == static_cast<std::uint64_t>(2 * size - 2));
    for (const std::uint64_t sent : report.slices_sent)
      CHECK(sent == static_cast<std::uint64_t>(2 * size - 2));
  }
}

TEST_CASE("a ring goes through every host once, whatever the numbers of its ranks") {
  const schedules::Hosts hosts(std::vector<int>{0, 1, 2, 0, 1, 2, 0, 1, 2, 1});
  for (const Collective operation :
       {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::all_gather,
        Collective::reduce_scatter}) {
    const auto schedules = all_schedules(schedules::Algorithm::ring, operation, 10, 4, hosts);
    std::set<std::pair<int, int>> between;
    for (int rank = 0; rank < 10; ++rank)
      for (const schedules::Step& step : schedules[static_cast<std::size_t>(rank)].steps)
        if (step.to != schedules::no_rank && step.slice < schedules[0].slices &&
            hosts.host(rank) != hosts.host(step.to))
          between.emplace(rank, step.to);
    CHECK(between.size() <= 3);
  }
}

TEST_CASE(
    "two levels send 2(H-1)/H of the buffer over the link of a host, however many ranks are on "
    "it") {
  for (const schedules::Hosts& hosts :
       {schedules::Hosts(std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}),
        schedules::Hosts(std::vector<int>{0, 1, 0, 1, 0, 0}),
        schedules::Hosts(std::vector<int>{0, 1, 2, 2, 1, 2, 2, 0, 2}),
        schedules::Hosts(std::vector<int>{0, 1, 2, 3})}) {
    const auto schedules = all_schedules(schedules::Algorithm::two_level, Collective::all_reduce,
                                         hosts.ranks(), 0, hosts);
    std::vector<double> out(static_cast<std::size_t>(hosts.count())), in = out;
    for (int rank = 0; rank < hosts.ranks(); ++rank)
      for (const schedules::Step& step : schedules[static_cast<std::size_t>(rank)].steps) {
        if (step.to == schedules::no_rank || hosts.host(step.to) == hosts.host(rank)) continue;
        out[static_cast<std::size_t>(hosts.host(rank))] += 1.0 / schedules[0].slices;
        in[static_cast<std::size_t>(hosts.host(step.to))] += 1.0 / schedules[0].slices;
      }
    const double count = hosts.count();
    for (std::size_t host = 0; host < out.size(); ++host) {
      CHECK(out[host] == Approx(2 * (count - 1) / count));
      CHECK(in[host] == Approx(2 * (count - 1) / count));
    }
  }
}

// Where the ranks of a host share memory, only these steps are left. A host's ranks together must
// then do what a single rank would do with the host's sum as its input.
TEST_CASE("two levels: what is left between hosts reduces the sums of hosts") {
  for (int size = 2; size <= 17; ++size)
    for (const schedules::Hosts& hosts : several_hosts(size)) {
      if (hosts.count() == 1) continue;
      for (const Collective operation :
           {Collective::all_reduce, Collective::reduce, Collective::broadcast, Collective::barrier})
        for (const int root :
             schedules::has_root(operation) ? std::vector{0, size / 2, size - 1} : std::vector{0}) {
          const auto of_hosts = joined_by_host(operation, hosts, root);
          for (const bool in_place : {false, true}) {
            const proof::CheckReport report =
                proof::check(of_hosts, operation, hosts.host(root),
                             {.segments = 3, .depth = 2, .in_place = in_place, .held = in_place});
            INFO(name_of(operation) << " of " << size << " ranks on " << hosts.count()
                                    << " hosts, root " << root << ": " << report.problem);
            CHECK(report.ok());
          }
        }
    }
}

// On equal hosts the blocks of one local number are an operation of their own: what they do is what
// single ranks would do, one for each host.
TEST_CASE("two levels: what is left between hosts moves the blocks of equal hosts") {
  for (const int ranks : {1, 2, 3})
    for (const int count : {2, 3, 5})
      for (const Collective operation : {Collective::all_gather, Collective::reduce_scatter}) {
        const std::vector<int> ranks_on(static_cast<std::size_t>(count), ranks);
        const auto hosts = schedules::Hosts::in_blocks(ranks_on);
        for (int rail = 0; rail < ranks; ++rail) {
          const auto of_rail = rail_of_hosts(operation, hosts, rail);
          for (const bool in_place : {false, true}) {
            const proof::CheckReport report =
                proof::check(of_rail, operation, 0,
                             {.segments = 3, .depth = 2, .in_place = in_place, .held = in_place});
            INFO(ranks << " ranks on each of " << count << " hosts: " << report.problem);
            CHECK(report.ok());
          }
        }
      }
}

TEST_CASE("two levels: the rows of a host hold what its ranks do without links") {
  for (int size = 2; size <= 17; ++size)
    for (const schedules::Hosts& hosts : several_hosts(size)) {
      if (hosts.count() == 1) continue;
      for (const Collective operation :
           {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
            Collective::reduce, Collective::broadcast})
        for (int host = 0; host < hosts.count(); ++host) {
          INFO(size << " ranks on " << hosts.count() << " hosts, host " << host);
          check_rows(operation, host, hosts);
        }
    }
  CHECK(schedules::rows_inside(Collective::barrier, 0, schedules::Hosts(std::vector{0, 0, 1}))
            .empty());
}

TEST_CASE("halving takes the logarithm of hops for any number of ranks, and the bytes of a ring") {
  for (int size = 2; size <= 33; ++size) {
    std::uint64_t hops = 0;
    while ((1 << hops) < size) ++hops;
    const proof::CheckReport report =
        proof::check(all_schedules(schedules::Algorithm::halving, Collective::all_reduce, size),
                     Collective::all_reduce, 0);
    REQUIRE(report.ok());
    CHECK(report.rounds <= 2 * hops);
    std::uint64_t sent = 0;
    for (const std::uint64_t slices : report.slices_sent) sent += slices;
    CHECK(sent == static_cast<std::uint64_t>(2 * size * (size - 1)));
  }
}

TEST_CASE("two-shot is two hops for any number of ranks") {
  for (const int size : {2, 3, 8, 33}) {
    const proof::CheckReport report =
        proof::check(all_schedules(schedules::Algorithm::two_shot, Collective::all_reduce, size),
                     Collective::all_reduce, 0);
    REQUIRE(report.ok());
    CHECK(report.rounds == 2);
  }
}

TEST_CASE("the planner's counts on several hosts are those of the schedules") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (const int size : {2, 5, 8, 12})
      for (const schedules::Hosts& hosts : several_hosts(size)) {
        const bool few =
            algorithm == schedules::Algorithm::chain && operation == Collective::reduce;
        if (few || (hosts.count() == 1 && algorithm == schedules::Algorithm::two_level)) continue;
        const auto schedules = all_schedules(algorithm, operation, size, 0, hosts);
        const plan::Shape shape =
            plan::shape_of(algorithm, operation, plan::topology_of(hosts, size, 1));
        INFO(schedules::name_of(algorithm)
             << " " << name_of(operation) << " " << size << " on " << hosts.count());
        CHECK(shape.slices == schedules[0].slices);
        CHECK(static_cast<double>(data_frames(schedules) + token_frames(schedules)) ==
              shape.frames);
        for (const double number :
             {shape.host.hops, shape.host.path_bytes, shape.host.path_frames, shape.host.busy_bytes,
              shape.host.busy_frames, shape.network.hops, shape.network.path_bytes,
              shape.network.path_frames})
          CHECK(number >= 0);
      }
  });
}

TEST_CASE("a chain does not mind hosts") {
  const schedules::Hosts hosts(std::vector<int>{0, 1, 0, 1});
  for (int rank = 0; rank < 4; ++rank) {
    const auto plain =
        schedules::make_schedule(schedules::Algorithm::chain, Collective::all_reduce, rank, 4, 0);
    const auto placed = schedules::make_schedule(schedules::Algorithm::chain,
                                                 Collective::all_reduce, rank, 4, 0, hosts);
    REQUIRE(plain.steps.size() == placed.steps.size());
    for (std::size_t i = 0; i < plain.steps.size(); ++i)
      CHECK(plain.steps[i].to == placed.steps[i].to);
  }
}

TEST_CASE(
    "recursive doubling takes log2 n hops, and up to two more where n is not a power of two") {
  for (const auto& [size, rounds] :
       {std::pair{2, 1}, {4, 2}, {8, 3}, {64, 6}, {3, 2}, {5, 3}, {7, 4}, {33, 6}}) {
    const proof::CheckReport report =
        proof::check(all_schedules(schedules::Algorithm::doubling, Collective::all_reduce, size),
                     Collective::all_reduce, 0);
    REQUIRE(report.ok());
    CHECK(report.rounds == static_cast<std::uint64_t>(rounds));
  }
}

TEST_CASE("in the double tree the leaves of one tree are inner nodes of the other") {
  for (int size = 2; size <= 128; ++size) {
    int leaves_in_both = 0;
    for (int rank = 0; rank < size; ++rank) {
      const schedules::Schedule s = schedules::make_schedule(schedules::Algorithm::tree,
                                                             Collective::all_reduce, rank, size, 0);
      REQUIRE(s.slices == 2);
      int children = 0, reductions = 0;
      for (const schedules::Step& step : s.steps) reductions += step.reduce;
      children = reductions;
      leaves_in_both += children == 0;
      CHECK(children <= (size == 2 ? 1 : 4));
    }
    CHECK(leaves_in_both == (size % 2 == 0 || size < 3 ? 0 : 1));
  }
}

TEST_CASE("a tree is as deep as the logarithm") {
  for (int size = 2; size <= 128; ++size) {
    const proof::CheckReport report =
        proof::check(all_schedules(schedules::Algorithm::tree, Collective::all_reduce, size),
                     Collective::all_reduce, 0);
    REQUIRE(report.ok());
    std::uint64_t height = 0;
    while ((2 << height) <= size) ++height;
    CHECK(report.rounds <= 2 * height);
  }
}

TEST_CASE("a chain moves each slice over each link once in each direction") {
  const auto schedules = all_schedules(schedules::Algorithm::chain, Collective::all_reduce, 6);
  CHECK(data_frames(schedules) == 10);
  CHECK(token_frames(schedules) == 0);
}

TEST_CASE("rounds of steps lie within those of the schedule") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (const int size : {2, 3, 7, 8, 20})
      for (const schedules::Schedule& s : all_schedules(algorithm, operation, size, size / 2))
        for (const schedules::Step& step : s.steps) {
          REQUIRE(step.round + (step.to != schedules::no_rank ? 1 : 0) <= s.rounds);
          REQUIRE((step.from == schedules::no_rank || step.round >= 1));
          REQUIRE(step.slice <= s.slices);
        }
  });
}

TEST_CASE("the planner's counts of frames and bytes are those of the schedules") {
  for_each_pair([](schedules::Algorithm algorithm, Collective operation) {
    for (const int size : {2, 3, 4, 5, 8, 13, 16, 33}) {
      const auto schedules = all_schedules(algorithm, operation, size, 0);
      const plan::Shape shape =
          plan::shape_of(algorithm, operation, {.ranks = size, .ranks_per_host = size});
      const auto data = static_cast<double>(data_frames(schedules));
      const auto tokens = static_cast<double>(token_frames(schedules));
      INFO(schedules::name_of(algorithm) << " " << name_of(operation) << " " << size);
      CHECK(shape.slices == schedules[0].slices);
      // The counts of a chain's reduce depend on the root, so its formula is an upper bound.
      if (algorithm == schedules::Algorithm::chain && operation == Collective::reduce) {
        CHECK(data + tokens <= shape.frames);
        CHECK(data / shape.slices <= shape.bytes);
      } else {
        CHECK(data + tokens == shape.frames);
        CHECK(data / shape.slices == Approx(shape.bytes));
        CHECK(shape.host.hops == schedules[0].rounds);
      }
    }
  });
}
