// SPDX-License-Identifier: Apache-2.0
//
// Faults on a real device: tests/vm runs these in guests.
#include <rondo/error.h>

#include <deque>

#include "catch.h"
#include "conformance.h"
#include "faulty_verbs.h"
#include "rdma_helpers.h"
#include "transports/rdma/rdma.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;
using transports::Lane;

// Two ranks of this process on the devices of this machine.
struct Pair {
  Pair() {
    const rdma::LoadedVerbs loaded = rdma::load_verbs();
    INFO(loaded.obstacle);
    REQUIRE(loaded.verbs != nullptr);
    const rdma::Report devices = rdma::report({}, -1);
    INFO(devices.obstacle);
    REQUIRE(devices.obstacle.empty());
    const auto with_faults = [&](int) {
      return verbs.emplace_back(std::make_shared<FaultyVerbs>(loaded.verbs));
    };
    for (auto& transport : rdma_transports(2, with_faults))
      nodes.emplace_back(std::move(transport));
    exchange(1);
    REQUIRE(run_until([&] { return nodes[0].idle() && nodes[1].idle(); }));
  }

  // The end of a transport sends too, when what a test has captured is gone.
  ~Pair() {
    for (const auto& one : verbs) one->on_send = nullptr;
  }

  template <class Done>
  bool run_until(Done done) {
    return turn_until(nodes, done);
  }
  // Rank 0 sends a frame.
  void exchange(std::uint64_t number) {
    nodes[0].send(1, Lane::bulk, number, 100);
    nodes[1].expect(0, Lane::bulk, {.number = number, .bytes = 100});
  }
  bool lost(std::size_t rank) const { return !nodes[rank].broken_links.empty(); }
  // Sends frames until rank 0 has lost rank 1. Rank 1 must not hear of it first: it would close the
  // connection, and rank 0 would name that.
  void lose_alone() {
    for (std::uint64_t number = 2; number < 4; ++number) exchange(number);
    const auto end = base::after(base::Clock::now(), std::chrono::seconds(5));
    while (!lost(0) && base::Clock::now() < end) nodes[0].turn();
  }
  void check_lost(const std::string& cause) {
    REQUIRE(run_until([&] { return lost(0) && lost(1); }));
    for (const Node& node : nodes) {
      CHECK_FALSE(node.broken_links.front().clean);
      CHECK_THAT(node.broken_links.front().what, Contains("queue pair") || Contains("connection"));
    }
    CHECK_THAT(nodes[0].broken_links.front().what, Contains(cause) && Contains("rxe0:1 GID"));
  }

  std::vector<std::shared_ptr<FaultyVerbs>> verbs;
  std::deque<Node> nodes;
};

}  // namespace

TEST_CASE("rdma on a device: a granted destination is written directly", "[.rdma]") {
  Pair pair;
  std::size_t direct = 0;
  pair.verbs[0]->on_send = [&](ibv_send_wr& request) {
    if (request.opcode == IBV_WR_RDMA_WRITE && request.num_sge != 0)
      direct += request.sg_list[0].length;
  };
  constexpr std::size_t bytes = 300'000;
  transports::Blob& buffer = pair.nodes[1].buffer(0, Lane::bulk);
  buffer.resize(bytes);
  const auto registration = pair.nodes[1].transport().register_memory(buffer);
  REQUIRE(registration != nullptr);
  pair.nodes[1].expect(0, Lane::bulk, {.number = 2, .bytes = bytes});
  int grants = 0;
  pair.verbs[1]->on_send = [&](ibv_send_wr& request) { grants += request.opcode == IBV_WR_SEND; };
  REQUIRE(pair.run_until([&] { return grants != 0; }));
  // The grant is there before the frame: the device delivers in order, and the answer to this frame
  // follows the grant.
  pair.nodes[1].send(0, Lane::bulk, 3, 100);
  pair.nodes[0].expect(1, Lane::bulk, {.number = 3, .bytes = 100});
  REQUIRE(pair.run_until([&] { return pair.nodes[0].idle(); }));
  pair.nodes[0].send(1, Lane::bulk, 2, bytes);
  REQUIRE(pair.run_until([&] { return pair.nodes[0].idle() && pair.nodes[1].idle(); }));
  CHECK(direct > 0);
  CHECK(pair.nodes[1].problems.empty());
}

TEST_CASE("rdma on a device: a bad key is reported as a remote access error", "[.rdma]") {
  Pair pair;
  pair.verbs[0]->on_send = [](ibv_send_wr& request) {
    if (request.opcode != IBV_WR_SEND) request.wr.rdma.rkey ^= 0x5a5a00u;
  };
  pair.lose_alone();
  pair.check_lost("remote access error");
}

TEST_CASE("rdma on a device: a receiver that is not ready is reported", "[.rdma]") {
  Pair pair;
  pair.verbs[1]->drops_receives = true;
  // Rank 1 takes frames until its receives are used up.
  for (std::uint64_t number = 2; number < 500 && !pair.lost(0); ++number) {
    pair.exchange(number);
    REQUIRE(pair.run_until([&] { return pair.lost(0) || pair.nodes[1].idle(); }));
  }
  pair.check_lost("receiver-not-ready");
}

TEST_CASE("rdma on a device: a queue pair in the error state is reported", "[.rdma]") {
  Pair pair;
  for (ibv_qp* const one : pair.verbs[0]->queue_pairs()) {
    ibv_qp_attr wanted{};
    wanted.qp_state = IBV_QPS_ERR;
    REQUIRE(pair.verbs[0]->modify_qp(one, &wanted, IBV_QP_STATE) == 0);
  }
  pair.lose_alone();
  pair.check_lost("queue pair");
}

}  // namespace rondo::testing
