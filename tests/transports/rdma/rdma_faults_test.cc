// SPDX-License-Identifier: Apache-2.0
//
// A device or a peer fails: what the ranks say, and what goes on.
#include <poll.h>
#include <rondo/error.h>

#include <algorithm>

#include "catch.h"
#include "conformance.h"
#include "faulty_verbs.h"
#include "rdma_helpers.h"
#include "transports/rdma/address.h"
#include "transports/rdma/context.h"
#include "transports/rdma/devices.h"
#include "transports/rdma/messages.h"
#include "transports/rdma/path.h"

namespace rondo::testing {
namespace {

using transports::Lane;

// The ranks of a fabric, and the fabric itself for what is to go wrong.
struct Ranks {
  explicit Ranks(int size, FakeFaults faults = {}, int devices = 1, const EditRdma& edit = {})
      : fabric(std::make_shared<FakeFabric>(roce_hosts(size, devices), faults, 1)) {
    const auto with_faults = [&](int rank) {
      return verbs.emplace_back(std::make_shared<FaultyVerbs>(fabric->verbs(rank)));
    };
    for (auto& transport : rdma_transports(size, with_faults, edit))
      nodes.emplace_back(std::make_unique<OnFabric>(fabric, std::move(transport), false));
  }
  // The end of a transport sends too, when what a test has captured is gone.
  ~Ranks() {
    for (const auto& one : verbs) one->on_send = nullptr;
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  template <class Done>
  bool run_until(Done done) {
    return turn_until(nodes, done);
  }
  // Rank 0 sends rank 1 a frame, which opens their link.
  void open() {
    nodes[0].send(1, Lane::bulk, 1, 100);
    nodes[1].expect(0, Lane::bulk, {.number = 1, .bytes = 100});
    REQUIRE(run_until([&] { return nodes[0].idle() && nodes[1].idle(); }));
  }
  std::string cause(int rank) {
    Node& node = nodes[static_cast<std::size_t>(rank)];
    REQUIRE(run_until([&] { return !node.broken_links.empty(); }));
    CHECK_FALSE(node.broken_links.front().clean);
    return node.broken_links.front().what;
  }

  std::shared_ptr<FakeFabric> fabric;
  std::vector<std::shared_ptr<FaultyVerbs>> verbs;
  std::deque<Node> nodes;
};

// Hosts whose only device has two ports.
struct TwoPorts {
  explicit TwoPorts(int size) {
    std::vector<FakeHost> hosts = roce_hosts(size);
    for (int i = 0; i < size; ++i)
      hosts[static_cast<std::size_t>(i)].devices[0].ports.push_back(
          roce_host(50 + i).devices[0].ports[0]);
    fabric = std::make_shared<FakeFabric>(hosts);
    for (auto& transport : rdma_transports(*fabric, size))
      nodes.emplace_back(std::make_unique<OnFabric>(fabric, std::move(transport), false));
  }
  std::shared_ptr<FakeFabric> fabric;
  std::deque<Node> nodes;
};

}  // namespace

TEST_CASE("rdma: memory that cannot be registered is no failure") {
  Ranks ranks(2);
  ranks.fabric->fail(0, "reg_mr", ENOMEM, 0, -1);
  std::array<std::byte, 64> memory{};
  CHECK(ranks.nodes[0].transport().register_memory(memory) == nullptr);
  ranks.fabric->fail(0, "reg_mr", 0, 0, 0);
}

TEST_CASE("rdma: both ends reach each other, or neither does") {
  std::vector<FakeHost> hosts{roce_host(1), roce_host(2), infiniband_host(3)};
  hosts[1].devices[0].ports[0].gids = {fake_gid("fe80::2", IBV_GID_TYPE_ROCE_V1)};
  FakeFabric fabric(hosts);
  std::vector<std::unique_ptr<transports::Transport>> all;
  for (int rank = 0; rank < 3; ++rank) {
    rdma::Options options;
    options.rank = rank;
    options.size = 3;
    options.host = "one host";
    all.push_back(rdma::make_rdma(options, rdma::Shared(options, fabric.verbs(rank))));
  }
  for (int a = 0; a < 3; ++a)
    for (int b = 0; b < 3; ++b) {
      const auto reach =
          all[static_cast<std::size_t>(a)]->reach(b, all[static_cast<std::size_t>(b)]->address());
      CHECK(reach.distance.has_value() == (a == b));
      if (a != b) contains(reach.why, "no port of rank");
    }
}

TEST_CASE("rdma: a peer that vanishes is named with both ends") {
  Ranks ranks(2);
  ranks.open();
  ranks.fabric->kill(1);
  ranks.nodes[0].send(1, Lane::bulk, 2, 100);
  const std::string cause = ranks.cause(0);
  contains(cause, "does not answer (transport retries exceeded)");
  contains(cause, "mlx5_0:1 GID 3 10.0.0.1 -> mlx5_0:1 GID 3 10.0.0.2, RoCE v2 (IPv4), MTU 4096");
}

TEST_CASE("rdma: what a device reports once reaches all communicators that share it") {
  FakeFabric fabric(roce_hosts(1, 1), {}, 1);
  const rdma::Shared shared(rdma::Options{}, fabric.verbs(0));
  rdma::DeviceEvents& events = shared.context()->events;
  rdma::DeviceEvents::Listener one(events), other(events);
  const auto readable = [](int descriptor) {
    pollfd waited{descriptor, POLLIN, 0};
    return ::poll(&waited, 1, 0) == 1;
  };
  CHECK_FALSE(readable(one.descriptor()));
  fabric.cut(0);
  REQUIRE(readable(events.descriptor_of(0)));
  events.read(0);
  CHECK_FALSE(readable(events.descriptor_of(0)));
  for (rdma::DeviceEvents::Listener* const listener : {&one, &other}) {
    CHECK(readable(listener->descriptor()));
    const auto heard = listener->take();
    REQUIRE(heard.size() == 1);
    CHECK(heard[0].device == 0);
    CHECK(heard[0].port == 1);
    CHECK(heard[0].what == "the port is down");
    CHECK_FALSE(readable(listener->descriptor()));
    CHECK(listener->take().empty());
  }
}

TEST_CASE("rdma: a port that goes down ends its links at once") {
  Ranks ranks(2);
  ranks.open();
  ranks.fabric->cut(0);
  contains(ranks.cause(0), "the port is down");
}

TEST_CASE("rdma: a queue pair in the error state ends its link") {
  Ranks ranks(2);
  ranks.open();
  ranks.fabric->force_error(ranks.fabric->queue_pairs(0).front());
  contains(ranks.cause(0), "queue pair went into the error state");
}

TEST_CASE("rdma: a process that ends without a word is noticed by a rank that only receives") {
  Ranks ranks(2);
  ranks.open();
  ranks.nodes[1].expect(0, Lane::bulk, {.number = 2, .bytes = 100});
  ranks.nodes[0].transport().halt();
  ranks.nodes[0].destroy();
  ranks.nodes.pop_front();
  Node& left = ranks.nodes.front();
  REQUIRE(ranks.run_until([&] { return !left.broken_links.empty(); }));
  contains(left.broken_links.front().what, "its process closed the connection");
}

// More completions than one look takes. A communicator halts its transports when it leaves, which
// stops the devices.
TEST_CASE("rdma: all that peers sent before an orderly end is delivered") {
  constexpr int size = 9, frames = 6;
  const bool halts = GENERATE(false, true);
  Ranks ranks(size, halts ? FakeFaults{.delay = 3, .late_completions = 4} : FakeFaults{});
  for (int peer = 1; peer < size; ++peer) {
    ranks.nodes[static_cast<std::size_t>(peer)].send(0, Lane::bulk, 0, 100);
    ranks.nodes[0].expect(peer, Lane::bulk, {.number = 0, .bytes = 100});
  }
  REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle(); }));
  for (int peer = 1; peer < size; ++peer)
    for (std::uint64_t i = 1; i <= frames; ++i) {
      ranks.nodes[static_cast<std::size_t>(peer)].send(0, Lane::bulk, i, 100);
      ranks.nodes[0].expect(peer, Lane::bulk, {.number = i, .bytes = 100});
    }
  while (ranks.nodes.size() > 1) {
    while (!ranks.nodes.back().idle()) ranks.nodes.back().turn();
    if (halts) {
      transports::Transport& leaver = ranks.nodes.back().transport();
      leaver.finish_sending(base::Clock::now() + std::chrono::seconds(5));
      leaver.halt();
    }
    ranks.nodes.pop_back();
  }
  Node& left = ranks.nodes.front();
  REQUIRE(ranks.run_until([&] { return left.broken_links.size() == size - 1; }));
  CHECK(left.idle());
  for (const auto& one : left.broken_links) CHECK(one.clean);
}

// The goodbye travels over a connection of its own, which stays open.
TEST_CASE("rdma: a goodbye that overtakes the last frames waits for them") {
  Ranks ranks(2);
  ranks.open();
  ranks.nodes[1].expect(0, Lane::bulk, {.number = 2, .bytes = 100});
  ranks.fabric->hold(0, 1);
  ranks.nodes[0].send(1, Lane::bulk, 2, 100);
  REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle(); }));
  ranks.nodes[0].transport().finish_sending(base::Clock::now());
  for (int i = 0; i < 100; ++i) {
    ranks.nodes[1].turn();
    ranks.nodes[1].transport().prepare_sleep();  // looks at the connection
  }
  CHECK(ranks.nodes[1].broken_links.empty());
  ranks.fabric->release(0, 1);
  REQUIRE(ranks.run_until([&] { return !ranks.nodes[1].broken_links.empty(); }));
  CHECK(ranks.nodes[1].idle());
  CHECK(ranks.nodes[1].broken_links.front().clean);
}

TEST_CASE("rdma: a rank that cannot make a queue pair does not leave its peer waiting") {
  Ranks ranks(2);
  ranks.fabric->fail(1, "create_qp", ENOMEM, 0, -1);
  ranks.nodes[0].send(1, Lane::bulk, 1, 100);
  contains(ranks.cause(1), "cannot make a queue pair");
  contains(ranks.cause(0), "gave the link up and said: \"mlx5_0:1: cannot make a queue pair");
}

// Together the links to ranks 1 and 2 take all blocks of the pool.
TEST_CASE("rdma: a link that has failed gives back what all links share") {
  Ranks ranks(4);
  for (const int peer : {1, 2}) {
    ranks.fabric->hold(0, peer);
    for (const Lane lane : {Lane::messages, Lane::bulk})
      for (std::uint64_t i = 0; i < 8; ++i) ranks.nodes[0].send(peer, lane, i, 60'000);
  }
  for (int i = 0; i < 1000; ++i)
    for (Node& node : ranks.nodes) node.turn();
  for (const int peer : {1, 2}) {
    ranks.fabric->kill(peer);
    ranks.fabric->release(0, peer);
  }
  REQUIRE(ranks.run_until([&] { return ranks.nodes[0].broken_links.size() == 4; }));
  for (std::uint64_t i = 0; i < 40; ++i) {
    ranks.nodes[0].send(3, Lane::bulk, i, 60'000);
    ranks.nodes[3].expect(0, Lane::bulk, {.number = i, .bytes = 60'000});
  }
  CHECK(ranks.run_until([&] { return ranks.nodes[3].idle(); }));
}

TEST_CASE("rdma: a device with two ports has room for the completions of both") {
  TwoPorts ranks(4);
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 4; ++b)
      for (const Lane lane : {Lane::bulk, Lane::messages, Lane::urgent}) {
        if (a == b) continue;
        ranks.nodes[static_cast<std::size_t>(a)].send(b, lane, 1, 300'000);
        ranks.nodes[static_cast<std::size_t>(b)].expect(a, lane, {.number = 1, .bytes = 300'000});
      }
  CHECK(turn_until(ranks.nodes, [&] { return std::ranges::all_of(ranks.nodes, &Node::idle); }));
}

// Urgent links use the first port.
TEST_CASE("rdma: a port that goes down leaves links over the other port alone") {
  TwoPorts ranks(2);
  Node &sender = ranks.nodes[0], &receiver = ranks.nodes[1];
  const auto exchange = [&](Lane lane, std::uint64_t number) {
    sender.send(1, lane, number, 100);
    receiver.expect(0, lane, {.number = number, .bytes = 100});
    return turn_until(ranks.nodes, [&] { return sender.idle() && receiver.idle(); });
  };
  REQUIRE(exchange(Lane::urgent, 1));
  REQUIRE(exchange(Lane::bulk, 1));
  ranks.fabric->inject(0, IBV_EVENT_PORT_ERR, 0, 2);
  REQUIRE(turn_until(ranks.nodes, [&] { return !sender.broken_links.empty(); }));
  CHECK(exchange(Lane::urgent, 2));
  REQUIRE(sender.broken_links.size() == 1);
  CHECK(sender.broken_links.front().lane == Lane::bulk);
}

TEST_CASE("rdma: a rank sleeps although a peer has left behind a frame on hold") {
  Ranks ranks(2);
  ranks.open();
  ranks.nodes[0].send(1, Lane::bulk, 2, 100);
  Node& holder = ranks.nodes[1];
  REQUIRE(ranks.run_until([&] { return holder.held > 0; }));
  ranks.nodes.pop_front();
  for (int i = 0; i < 1000; ++i) ranks.nodes.front().turn();
  bool sleeps = false;
  for (int i = 0; i < 20 && !sleeps; ++i) {
    sleeps = ranks.nodes.front().transport().prepare_sleep();
    ranks.nodes.front().turn();
  }
  CHECK(sleeps);
}

TEST_CASE("rdma: no registration and no queue pair is made once a link has been used") {
  Ranks ranks(2);
  ranks.open();
  const auto before = ranks.fabric->counts();
  for (std::uint64_t i = 2; i < 50; ++i) {
    ranks.nodes[0].send(1, Lane::bulk, i, 300'000);
    ranks.nodes[1].expect(0, Lane::bulk, {.number = i, .bytes = 300'000});
  }
  REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle() && ranks.nodes[1].idle(); }));
  CHECK(ranks.fabric->counts().registrations_made == before.registrations_made);
  CHECK(ranks.fabric->counts().queue_pairs_made == before.queue_pairs_made);
}

TEST_CASE("rdma: used receives are posted again together") {
  Ranks ranks(2);
  ranks.open();
  const auto before = ranks.fabric->counts();
  for (std::uint64_t i = 2; i < 202; ++i) {
    ranks.nodes[0].send(1, Lane::bulk, i, 100);
    ranks.nodes[1].expect(0, Lane::bulk, {.number = i, .bytes = 100});
    REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle() && ranks.nodes[1].idle(); }));
  }
  const auto counts = ranks.fabric->counts();
  const auto arrived = [](const FakeCounts& all) { return all.requests[1] + all.requests[2]; };
  const std::uint64_t used = arrived(counts) - arrived(before);
  const std::uint64_t posts = counts.receive_posts - before.receive_posts;
  CHECK(used >= 200);
  CHECK(posts >= used / rdma::Path::receive_batch - 2);
  CHECK(posts <= used / rdma::Path::receive_batch + 2);
}

TEST_CASE("rdma: memory that is registered late is granted, unless grants are off") {
  const bool grants = GENERATE(true, false);
  Ranks ranks(2, {}, 1, [&](rdma::Options& options) { options.grants = grants; });
  ranks.open();
  ranks.nodes[1].expect(0, Lane::bulk, {.number = 2, .bytes = 300'000});
  const auto turns = [&] {
    for (int i = 0; i < 100; ++i)
      for (Node& node : ranks.nodes) node.turn();
  };
  turns();
  const auto before = ranks.fabric->counts();
  const auto registration = ranks.nodes[1].transport().register_memory(all_memory());
  turns();
  CHECK(ranks.fabric->counts().requests[IBV_WR_SEND] == before.requests[IBV_WR_SEND] + grants);
  ranks.nodes[0].send(1, Lane::bulk, 2, 300'000);
  REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle() && ranks.nodes[1].idle(); }));
  const auto direct = ranks.fabric->counts().bytes[IBV_WR_RDMA_WRITE];
  CHECK((direct - before.bytes[IBV_WR_RDMA_WRITE] > 0) == grants);
}

TEST_CASE("rdma: each of many frames is granted") {
  Ranks ranks(2);
  ranks.open();
  const auto registration = ranks.nodes[1].transport().register_memory(all_memory());
  const auto written = [&] { return ranks.fabric->counts().bytes[IBV_WR_RDMA_WRITE]; };
  for (std::uint64_t i = 2; i < 42; ++i) {
    ranks.nodes[1].expect(0, Lane::bulk, {.number = i, .bytes = 100'000});
    for (int turn = 0; turn < 20; ++turn)
      for (Node& node : ranks.nodes) node.turn();
    const auto before = written();
    ranks.nodes[0].send(1, Lane::bulk, i, 100'000);
    REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle() && ranks.nodes[1].idle(); }));
    INFO("frame " << i);
    CHECK(written() > before);
  }
}

TEST_CASE("rdma: what a peer cannot have sent ends a link that had no news") {
  Ranks ranks(2);
  ranks.open();
  struct Forgery {
    std::string_view field, cause;
  };
  const Forgery forgery = GENERATE(Forgery{"slot", "a slot that it may not use"},
                                   Forgery{"full slot", "a slot that it may not use"},
                                   Forgery{"credit", "more than was sent"},
                                   Forgery{"direct", "to memory that was not granted"});
  ranks.verbs[0]->on_send = [&](ibv_send_wr& request) {
    auto mark = rdma::decode_mark(be32toh(request.imm_data)).value();
    if (forgery.field == "slot") mark.slot = 200;
    if (forgery.field == "full slot") mark.slot = 1;
    if (forgery.field == "credit") mark.consumed = std::uint16_t{1000};
    if (forgery.field == "direct") mark.direct = true;
    request.imm_data = htobe32(encode(mark));
  };
  ranks.nodes[0].send(1, Lane::bulk, 2, 100);
  ranks.nodes[0].send(1, Lane::bulk, 3, 100);
  if (forgery.field != "full slot")
    ranks.nodes[1].expect(0, Lane::bulk, {.number = 2, .bytes = 100});
  CHECK(contains(ranks.cause(1), std::string(forgery.cause)));
}

// A piece carries the low 16 bits of the count of pieces that its sender has consumed. If the count
// has grown a lot, a message of its own carries it instead.
TEST_CASE("rdma: both ends send more pieces than the count in a piece has numbers",
          "[one-thread]") {
  Ranks ranks(2);
  ranks.open();
  constexpr std::uint64_t frames = (std::uint64_t{1} << 16) + 100, at_once = 2;
  for (std::uint64_t i = 2; i < frames; i += at_once) {
    for (std::uint64_t k = i; k < i + at_once; ++k)
      for (const int rank : {0, 1}) {
        ranks.nodes[static_cast<std::size_t>(rank)].send(1 - rank, Lane::bulk, k, 0);
        ranks.nodes[static_cast<std::size_t>(rank)].expect(1 - rank, Lane::bulk, {.number = k});
      }
    REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle() && ranks.nodes[1].idle(); }));
  }
}

TEST_CASE("rdma: the end of a link that gives up tells the other end why") {
  Ranks ranks(2);
  ranks.open();
  ranks.fabric->fail(0, "post_send", ENOMEM);
  ranks.nodes[0].send(1, Lane::bulk, 2, 100);
  CHECK(contains(ranks.cause(0), "refuses a send request"));
  CHECK(contains(ranks.cause(1), "said: \"mlx5_0:1 GID"));
  CHECK(contains(ranks.cause(1), "refuses a send request"));
}

TEST_CASE("rdma: a rank sleeps after a link was full") {
  Ranks ranks(2);
  ranks.open();
  for (std::uint64_t i = 2; i < 40; ++i) {
    ranks.nodes[0].send(1, Lane::bulk, i, 100);
    ranks.nodes[1].expect(0, Lane::bulk, {.number = i, .bytes = 100});
  }
  for (int i = 0; i < 100; ++i) ranks.nodes[0].turn();
  CHECK_FALSE(ranks.nodes[0].idle());
  REQUIRE(ranks.run_until([&] { return ranks.nodes[0].idle() && ranks.nodes[1].idle(); }));
  CHECK(ranks.run_until([&] { return ranks.nodes[0].transport().prepare_sleep(); }));
}

TEST_CASE("rdma: messages that cannot be are refused") {
  rdma::Told told{rdma::Notice::setup, 0, {}};
  told.setup = {64u << 10, 8, 0x1000, {{17, 5, 3, 0}}};
  const auto good = rdma::decode(rdma::encode(told));
  REQUIRE(good);
  CHECK(good->setup.paths.front().queue_pair == 17);
  const auto refused = [&](auto change) {
    rdma::Told other = told;
    change(other.setup);
    return !rdma::decode(rdma::encode(other));
  };
  CHECK(refused([](auto& setup) { setup.slots = 0; }));
  CHECK(refused([](auto& setup) { setup.slots = 65; }));
  CHECK(refused([](auto& setup) { setup.slot_bytes = 128u << 10; }));
  CHECK(refused([](auto& setup) { setup.slot_bytes = 8u << 10; }));
  CHECK(refused([](auto& setup) { setup.paths.clear(); }));
  CHECK(refused([](auto& setup) { setup.paths[0].queue_pair = 1u << 24; }));
  CHECK(refused([](auto& setup) { setup.paths[0].device = 4; }));
  const rdma::Told why{rdma::Notice::failed, 0, {}, std::string(600, 'a') + "\n"};
  const auto cut = rdma::decode(rdma::encode(why));
  REQUIRE(cut);
  constexpr std::size_t most = rdma::message_bytes - rdma::message_head_bytes;
  CHECK(cut->text == why.text.substr(0, most - 3) + "...");
  const rdma::Told control{rdma::Notice::failed, 0, {}, "one\x1b[2J\xff"};
  CHECK(rdma::decode(rdma::encode(control))->text == "one?[2J?");
  rdma::Message unreadable = rdma::encode(control);
  unreadable[rdma::message_head_bytes] = std::byte{7};
  CHECK_FALSE(rdma::decode(unreadable));
  unreadable = rdma::encode(control);
  unreadable[9] = std::byte{2};  // its length is more than there is
  CHECK_FALSE(rdma::decode(unreadable));
  CHECK_FALSE(rdma::decode_mark(0x800));
  CHECK_FALSE(rdma::decode_mark(0x8000000));
  const rdma::PieceMark mark{63, true, false, std::uint16_t{0xfffe}};
  CHECK(rdma::decode_mark(rdma::encode(mark))->consumed == 0xfffe);
  std::uint64_t consumed = 0;
  std::array<rdma::Grant, rdma::most_grants_at_once> grants;
  rdma::ControlBytes bytes;
  const std::size_t count = rdma::encode(9, std::span(grants).first(2), bytes);
  CHECK(rdma::decode(std::span(bytes).first(count), consumed, grants) == 2);
  CHECK(consumed == 9);
  CHECK_FALSE(rdma::decode(std::span(bytes).first(count - 1), consumed, grants));
}

}  // namespace rondo::testing
