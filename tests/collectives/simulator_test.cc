// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan/simulator.h"

#include <cmath>

#include <rondo/error.h>

#include "catch.h"
#include "collectives/proof/checker.h"
#include "collectives/schedules/symmetry.h"

using namespace rondo;
using Catch::Matchers::Contains;

namespace {

constexpr double a = 1e-5, b = 1e-9, g = 1e-10;

// The assumptions of the closed formulas: frames cost nothing, and a rank handles a frame only when
// all of it is there.
plan::Fabric ideal(int hosts, int ranks_per_host = 1) {
  return {.hosts = hosts,
          .ranks_per_host = ranks_per_host,
          .inside = {a, b},
          .between = {a, b},
          .reduce_seconds_per_byte = g,
          .chunk_bytes = std::size_t{1} << 40};
}

plan::SimulatedCall one_segment(Collective operation, schedules::Algorithm algorithm,
                                std::uint64_t bytes) {
  return {.operation = operation,
          .algorithm = algorithm,
          .bytes = bytes,
          .segment_bytes = bytes,
          .depth = 1};
}

double seconds_of(schedules::Algorithm algorithm, int ranks, std::uint64_t bytes) {
  return plan::simulate(one_segment(Collective::all_reduce, algorithm, bytes), ideal(ranks), {})
      .seconds;
}

}  // namespace

TEST_CASE("simulated rings take what the formula says") {
  for (const int n : {2, 3, 4, 7, 8, 33}) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(n) * 100'000;
    const double k = n - 1, s = static_cast<double>(bytes);
    INFO(n << " ranks");
    CHECK(seconds_of(schedules::Algorithm::ring, n, bytes) ==
          Approx(2 * k * a + 2 * k / n * s * b + k / n * s * g));
    const auto gathered = plan::simulate(
        one_segment(Collective::all_gather, schedules::Algorithm::ring, bytes), ideal(n), {});
    CHECK(gathered.seconds == Approx(k * a + k / n * s * b));
    const auto scattered = plan::simulate(
        one_segment(Collective::reduce_scatter, schedules::Algorithm::ring, bytes), ideal(n), {});
    CHECK(scattered.seconds == Approx(k * a + k / n * s * (b + g)));
  }
}

TEST_CASE("simulated recursive doubling takes what the formula says") {
  for (const int exchanges : {1, 2, 3, 6}) {
    const double s = 50'000;
    CHECK(seconds_of(schedules::Algorithm::doubling, 1 << exchanges, 50'000) ==
          Approx(exchanges * (a + s * (b + g))));
  }
  // Surplus ranks: one hop at the start, which reduces, and one at the end, which does not. The
  // first may have to wait for another frame.
  const double folded = 4 * (a + 50'000 * b) + 3 * 50'000 * g,
               time = seconds_of(schedules::Algorithm::doubling, 5, 50'000);
  CHECK(time >= folded * 0.9999);
  CHECK(time <= folded + 50'000 * b);
}

TEST_CASE("simulated chains and trees take what the formula says") {
  const double s = 60'000;
  CHECK(seconds_of(schedules::Algorithm::chain, 5, 60'000) == Approx(8 * (a + s * b) + 4 * s * g));
  CHECK(seconds_of(schedules::Algorithm::tree, 2, 60'000) ==
        Approx(2 * (a + s / 2 * b) + s / 2 * g));
  // Each half of the buffer goes up and down floor(log2 n) hops. An inner node receives from its
  // two children one after the other on its link, and sends to them the same way. Both trees share
  // the links.
  for (const int n : {3, 4, 7, 8, 15, 16, 63}) {
    const double height = std::floor(std::log2(n));
    const double time = seconds_of(schedules::Algorithm::tree, n, 60'000);
    INFO(n << " ranks");
    CHECK(time >= 2 * height * (a + s / 2 * b));
    CHECK(time <= 2 * height * (a + 2 * s * b) + 2 * height * s * g);
  }
}

TEST_CASE("a pipeline of a chain takes one segment more for each segment") {
  plan::SimulatedCall call{.operation = Collective::broadcast,
                           .algorithm = schedules::Algorithm::ring,
                           .bytes = 1'000'000,
                           .segment_bytes = 10'000,
                           .depth = 64};
  const double n = 5, segments = 100, one = a + 10'000 * b;
  const auto run = plan::simulate(call, ideal(5), {});
  CHECK(run.segments == 100);
  // Tokens go to the root, then a segment goes along the ring, and the others follow it.
  CHECK(run.seconds >= ((n - 1) * (a + one) + (segments - 1) * 10'000 * b) * 0.9999);
  CHECK(run.seconds <= (n - 1) * (a + one) + (segments - 1) * 10'000 * b * 1.2);
}

TEST_CASE("simulated bytes are those that the checker counts") {
  for (int o = 0; o < collective_count; ++o) {
    for (int i = 0; i < schedules::algorithm_count; ++i) {
      const auto operation = static_cast<Collective>(o);
      const auto algorithm = static_cast<schedules::Algorithm>(i);
      if (!schedules::supports(algorithm, operation)) continue;
      for (const int n : {2, 3, 6, 8}) {
        const schedules::Hosts apart =
            schedules::Hosts::in_blocks(std::vector<int>(static_cast<std::size_t>(n), 1));
        std::vector<schedules::Schedule> schedules;
        for (int rank = 0; rank < n; ++rank)
          schedules.push_back(schedules::make_schedule(algorithm, operation, rank, n, 0, apart));
        const proof::CheckReport proof = proof::check(schedules, operation, 0, {});
        const std::uint64_t slice = 1000;
        const std::uint64_t segment = slice * schedules.front().slices;
        const plan::SimulatedCall call{.operation = operation,
                                       .algorithm = algorithm,
                                       .bytes = operation == Collective::barrier ? 0 : 3 * segment,
                                       .segment_bytes = segment,
                                       .depth = 2};
        const SimulatedRun run = plan::simulate(call, ideal(n), {});
        std::uint64_t sent = 0;
        for (const std::uint64_t slices : proof.slices_sent) sent += slices;
        INFO(schedules::name_of(algorithm) << " " << name_of(operation) << " over " << n);
        CHECK(run.bytes == (operation == Collective::barrier ? 0 : sent * slice * 3));
        CHECK(run.link_bytes == run.bytes);
        CHECK(static_cast<double>(run.frames) <= plan::count_frames(call, ideal(n)));
        CHECK(run.seconds > 0);
      }
    }
  }
}

TEST_CASE("a ring in host order crosses each link 2(n-1)/n times, however the ranks are numbered") {
  const std::uint64_t bytes = 8'000'000;
  plan::SimulatedCall call = one_segment(Collective::all_reduce, schedules::Algorithm::ring, bytes);
  plan::Fabric fabric = ideal(2, 4);
  const SimulatedRun blocks = plan::simulate(call, fabric, {});
  CHECK(blocks.busiest_link_bytes == 2 * 7 * bytes / 8);
  CHECK(blocks.link_bytes == 2 * blocks.busiest_link_bytes);
  fabric.in_turns = true;
  const SimulatedRun turns = plan::simulate(call, fabric, {});
  CHECK(turns.busiest_link_bytes == blocks.busiest_link_bytes);
  CHECK(turns.seconds == Approx(blocks.seconds));
}

TEST_CASE("one host stands for all where all do the same") {
  for (const int per_host : {1, 3}) {
    for (const Collective operation : {Collective::all_reduce, Collective::all_gather}) {
      plan::Fabric fabric = ideal(6, per_host);
      fabric.frame_s = 2e-6;
      fabric.byte_s = 3e-10;
      fabric.cores_per_host = 2;
      const plan::SimulatedCall call{.operation = operation,
                                     .algorithm = schedules::Algorithm::ring,
                                     .bytes = 180'000u * static_cast<unsigned>(per_host),
                                     .segment_bytes = 36'000u * static_cast<unsigned>(per_host),
                                     .depth = 3};
      plan::SimulationLimits limits{.scope = plan::SimulatedScope::all_hosts};
      const SimulatedRun all = plan::simulate(call, fabric, {}, limits);
      limits.scope = plan::SimulatedScope::one_host;
      const SimulatedRun one = plan::simulate(call, fabric, {}, limits);
      CHECK_FALSE(all.one_host);
      CHECK(one.one_host);
      CHECK(one.seconds == all.seconds);
      CHECK(one.frames == all.frames);
      CHECK(one.bytes == all.bytes);
      CHECK(one.link_bytes == all.link_bytes);
      CHECK(one.busiest_link_bytes == all.busiest_link_bytes);
      CHECK(one.mean_rank_share == Approx(all.mean_rank_share));
    }
  }
  const schedules::Hosts hosts = schedules::Hosts::in_blocks(std::vector<int>{4, 4, 4});
  CHECK(schedules::is_periodic(schedules::Algorithm::ring, Collective::all_reduce, hosts));
  CHECK(schedules::is_periodic(schedules::Algorithm::doubling, Collective::barrier, hosts));
  CHECK_FALSE(schedules::is_periodic(schedules::Algorithm::tree, Collective::all_reduce, hosts));
  CHECK_FALSE(
      schedules::is_periodic(schedules::Algorithm::doubling, Collective::all_reduce, hosts));
  CHECK_FALSE(schedules::is_periodic(schedules::Algorithm::ring, Collective::broadcast, hosts));
  CHECK_FALSE(schedules::is_periodic(schedules::Algorithm::ring, Collective::all_reduce,
                                     schedules::Hosts::in_blocks(std::vector<int>{4, 4, 3})));
}

TEST_CASE("a straggler is found on the critical path, and slows the operation") {
  plan::Fabric fabric = ideal(8);
  fabric.frame_s = 2e-6;
  fabric.byte_s = 1e-9;
  const plan::SimulatedCall call =
      one_segment(Collective::all_reduce, schedules::Algorithm::ring, 800'000);
  const double usual = plan::simulate(call, fabric, {}).seconds;
  for (const int slow : {0, 3, 7}) {
    const SimulatedRun late =
        plan::simulate(call, fabric, std::vector<plan::Straggler>{{.rank = slow, .delay_s = 5e-3}});
    CHECK(late.critical_rank == slow);
    CHECK(late.seconds == Approx(usual + 5e-3).epsilon(0.2));
    const SimulatedRun slower =
        plan::simulate(call, fabric, std::vector<plan::Straggler>{{.rank = slow, .factor = 5}});
    CHECK(slower.critical_rank == slow);
    CHECK(slower.seconds > usual * 1.5);
    // A host with one rank: its link is five times as slow, too.
    const SimulatedRun host =
        plan::simulate(call, fabric, std::vector<plan::Straggler>{{.host = slow, .factor = 5}});
    CHECK(host.seconds >= slower.seconds);
    CHECK(host.busiest_link_share > 0.4);
  }
}

TEST_CASE("cores that all ranks share are not used twice") {
  plan::Fabric fabric = ideal(4);
  fabric.between = {0, 0};
  fabric.reduce_seconds_per_byte = 0;
  fabric.byte_s = 1e-9;
  fabric.cores = 2;
  const plan::SimulatedCall call =
      one_segment(Collective::all_reduce, schedules::Algorithm::ring, 4'000'000);
  const SimulatedRun run = plan::simulate(call, fabric, {});
  const double work = 2 * static_cast<double>(run.bytes) * 1e-9;
  CHECK(run.seconds >= work / 2);
  CHECK(run.seconds <= work / 2 * 1.1);
  fabric.cores = 0;
  CHECK(plan::simulate(call, fabric, {}).seconds < run.seconds * 0.7);
}

TEST_CASE("a burst leaves at once, but only after a rest") {
  plan::SimulatedCall call =
      one_segment(Collective::broadcast, schedules::Algorithm::star, 100'000);
  plan::Fabric fabric = ideal(2);
  fabric.burst_bytes = 100'000;
  CHECK(plan::simulate(call, fabric, {}).seconds == Approx(2 * a).epsilon(0.01));
  call.bytes = 1'000'000;
  call.depth = 10;
  const double time = plan::simulate(call, fabric, {}).seconds;
  CHECK(time == Approx(2 * a + 0.9 * 1e6 * b));
}

TEST_CASE("what is too large to simulate is refused at once, with its numbers") {
  const plan::SimulatedCall call =
      one_segment(Collective::all_reduce, schedules::Algorithm::ring, 1 << 20);
  const plan::Straggler slow{.rank = 5, .factor = 2};
  CHECK_THROWS_WITH(plan::simulate(call, ideal(100'000), std::span(&slow, 1)),
                    Contains("ring over 100000 ranks sends 2e+10 frames"));
  CHECK_THROWS_WITH(
      plan::simulate(call, ideal(1000), {},
                     {.scope = plan::SimulatedScope::all_hosts, .memory_bytes = 1 << 20}),
      Contains("of memory"));
  CHECK_THROWS_WITH(
      plan::simulate(one_segment(Collective::all_reduce, schedules::Algorithm::tree, 1000),
                     ideal(4), {}, {.scope = plan::SimulatedScope::one_host}),
      Contains("cannot stand for all"));
  CHECK(plan::simulate(call, ideal(1), {}).seconds == 0);
}
