// SPDX-License-Identifier: Apache-2.0
//
// Large frames whose payload lies in allocated memory: the receiver reads them there.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include <rondo/error.h>

#include "catch.h"
#include "conformance.h"
#include "shm_helpers.h"
#include "shm_impostor.h"
#include "shm_rank_process.h"
#include "support/effort.h"
#include "transports/host/exports.h"
#include "transports/host/extent.h"
#include "transports/shm/outgoing.h"
#include "transports/shm/segment.h"

namespace rondo::testing {
namespace {

using Catch::Contains;
using transports::Lane;
using transports::Send;
using Transports = std::vector<std::unique_ptr<transports::Transport>>;

// Transports whose first extents, of 64, 128 and 256 MiB, everybody has mapped.
Transports mapped_transports(int size) {
  Transports transports = shm_transports(size);
  for (std::size_t rank = 0; rank < transports.size(); ++rank)
    for (std::uint32_t extent = 0; extent < 3; ++extent) {
      const std::size_t bytes = host::Extent(extent).bytes();
      const auto memory = transports[rank]->allocate(bytes);
      REQUIRE(find_everywhere(transports, rank, memory->memory().data(), bytes).slot == extent);
    }
  return transports;
}

const MakeTransports mapped(mapped_transports, Payloads::allocated);

bool readable(transports::Transport& transport) {
  pollfd one{transport.wake_source().descriptor, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

void overwrite(std::span<std::byte> memory) {
  std::ranges::fill(memory, std::byte{0x66});
}

}  // namespace

TEST_CASE("shm with allocated memory does what every transport must do") {
  for (const Check& check : conformance()) DYNAMIC_SECTION(check.name) {
      check.run(mapped);
    }
}

TEST_CASE("large payloads in allocated memory are not copied, and wait for the receiver") {
  Transports transports = mapped_transports(2);
  const auto memory = transports[0]->allocate(std::size_t{1} << 20);
  transports::Link& link = transports[0]->link(1, Lane::bulk);
  const auto send = [&](std::span<const std::byte> payload) {
    return link.send(header_of(1), payload);
  };
  const std::size_t large = transports::eager_bytes + 1;
  CHECK(send(memory->memory().first(transports::eager_bytes)) == Send::done);
  const transports::Blob ordinary(large);
  CHECK(send(ordinary) == Send::done);
  CHECK(send(memory->memory().first(large)) == Send::queued);
  CHECK(send(memory->memory().subspan(12'345, large)) == Send::queued);
  CHECK(send(memory->memory().last(large)) == Send::queued);
  CHECK(send({}) == Send::done);
  // Memory of another transport is ordinary memory for this one.
  const auto others = transports[1]->allocate(large);
  CHECK(send(others->memory()) == Send::done);
}

TEST_CASE("memory that not every rank has mapped goes through the ring") {
  Group group(MakeTransports([](int size) { return shm_transports(size); }, Payloads::allocated),
              3);
  group[0].send(1, Lane::bulk, 1, 100'000);
  group[0].turn();
  group[1].expect(0, Lane::bulk, {1, 100'000, true, 1});
  for (int i = 0; i < 3; ++i) group[1].turn();
  CHECK(group[1].frames == 1);
  CHECK(group[0].sent_later == 0);
  group.finish();
}

TEST_CASE("many frames are under way, and each is sent when it has been read") {
  Group group(mapped, 2);
  const bool placed = GENERATE(true, false);
  const int most = static_cast<int>(shm::ShmOutgoing::most_queued);
  const std::size_t bytes = 99'999;
  for (int i = 0; i < 2 * most; ++i)
    group[0].send(1, Lane::bulk, static_cast<std::uint64_t>(i), bytes);
  for (int i = 0; i < 100; ++i) group[0].turn();
  CHECK(group[0].sent_later == 0);
  CHECK_FALSE(group[0].turn());
  CHECK(group[0].transport().prepare_sleep());
  for (int i = 0; i < 2 * most; ++i)
    group[1].expect(0, Lane::bulk, {static_cast<std::uint64_t>(i), bytes, placed, 3});
  // The frames came without a turn of the sender.
  for (int i = 0; i < 1000; ++i) group[1].turn();
  CHECK(group[1].frames == most);
  group[0].turn();
  CHECK(group[0].sent_later == most);
  group.finish();
  CHECK(group[0].sent_later == 2 * most);
}

TEST_CASE("frames by reference and through the ring alternate in both directions") {
  Group group(mapped, 2);
  const std::size_t sizes[] = {65'540, 600'000, 10, 300'005, 65'535, 1'000'000};
  std::uint64_t number = 1;
  for (int i = 0; i < (few_cases() ? 24 : 200); ++i)
    for (const int from : {0, 1}) {
      const std::size_t bytes = sizes[static_cast<std::size_t>(i) % std::size(sizes)];
      group[from].payloads = i % 3 == 1 ? Payloads::ordinary : Payloads::allocated;
      group[from].send(1 - from, Lane::messages, number, bytes);
      group[1 - from].expect(from, Lane::messages, {number, bytes, i % 2 == 0, 5});
      ++number;
    }
  group.finish();
}

TEST_CASE("the end of a frame by reference wakes the sender, and its rest keeps the reader awake") {
  Group group(mapped, 2);
  const std::size_t bytes = std::size_t{1} << 20;
  group[0].send(1, Lane::bulk, 1, bytes);
  while (group[0].turn() || !group[0].transport().prepare_sleep()) {
  }
  CHECK_FALSE(readable(group[0].transport()));
  group[1].expect(0, Lane::bulk, {1, bytes, true, 1});
  REQUIRE(group[1].turn());
  REQUIRE(group[1].frames == 0);
  CHECK_FALSE(group[1].transport().prepare_sleep());
  CHECK_FALSE(readable(group[0].transport()));
  while (group[1].frames == 0) REQUIRE(group[1].turn());
  CHECK(readable(group[0].transport()));
  CHECK(group[0].turn());
  CHECK(group[0].sent_later == 1);
  CHECK(group[1].transport().prepare_sleep());
}

TEST_CASE("a frame by reference wakes the receiver, and its end keeps an awake sender awake") {
  Group group(mapped, 2);
  while (group[1].turn() || !group[1].transport().prepare_sleep()) {
  }
  CHECK_FALSE(readable(group[1].transport()));
  group[0].send(1, Lane::bulk, 1, 100'000);
  group[0].turn();
  CHECK(readable(group[1].transport()));
  group[1].expect(0, Lane::bulk, {1, 100'000, true, 1});
  while (group[1].frames == 0) REQUIRE(group[1].turn());
  CHECK_FALSE(group[0].transport().prepare_sleep());
  group.finish();
}

TEST_CASE(
    "a frame by reference never finishes if its sender stops before all of it has been read") {
  Group group(mapped, 2);
  const bool placed = GENERATE(true, false);
  const bool by_destruction = GENERATE(true, false);
  const std::size_t bytes = std::size_t{256} << 10;
  group[0].send(1, Lane::bulk, 1, bytes);
  const auto stop = [&] {
    if (by_destruction)
      group[0].destroy();
    else
      group[0].transport().halt();
    overwrite(group[0].unsent(1, Lane::bulk));
  };
  std::size_t shown = 0;
  SECTION("before it is read") {
    group[0].turn();
    stop();
  }
  SECTION("while its last bytes are read") {
    if (placed) return;
    group[0].turn();
    group[1].on_data = [&](std::size_t view) {
      if ((shown += view) == bytes) stop();
    };
  }
  group[1].expect(0, Lane::bulk, {1, bytes, placed, 1});
  for (int i = 0; i < 100; ++i) group[1].turn();
  CHECK(group[1].frames == 0);
  CHECK(group[1].problems.empty());
  if (by_destruction) {
    for (int i = 0; i < 1'000'000 && group[1].broken_links.empty(); ++i) group[1].turn();
    REQUIRE(group[1].broken_links.size() == 1);
    CHECK(group[1].broken_links[0].what ==
          "the peer closed the connection in the middle of a frame");
    return;
  }
  // No cause is invented: the failure comes from the control plane. Until then the rank sleeps.
  CHECK(group[1].broken_links.empty());
  CHECK(group[1].transport().prepare_sleep());
}

TEST_CASE("what has been read before its sender stops has arrived") {
  Group group(mapped, 2);
  group[0].send(1, Lane::bulk, 1, 100'000);
  group[0].turn();
  group[1].expect(0, Lane::bulk, {1, 100'000, true, 1});
  group[1].turn();
  CHECK(group[1].frames == 1);
  group[0].transport().halt();
  overwrite(group[0].unsent(1, Lane::bulk));
  for (int i = 0; i < 100; ++i) group[1].turn();
  CHECK(group[1].frames == 1);
  CHECK(group[1].problems.empty());
  CHECK(group[1].broken_links.empty());
}

TEST_CASE("a receiver that halts within a frame by reference does not count it as read") {
  Group group(mapped, 2);
  const std::size_t bytes = std::size_t{256} << 10;
  const std::size_t at = GENERATE_COPY(std::size_t{1}, bytes);
  group[0].send(1, Lane::bulk, 1, bytes);
  group[0].turn();
  group[1].expect(0, Lane::bulk, {1, bytes, false, 1});
  std::size_t shown = 0;
  group[1].on_data = [&](std::size_t view) {
    if ((shown += view) >= at) group[1].transport().halt();
  };
  for (int i = 0; i < 100; ++i) {
    group[1].turn();
    group[0].turn();
  }
  CHECK(shown >= at);
  CHECK(group[0].sent_later == 0);
  CHECK(group[1].frames == 0);
  CHECK(group[1].problems.empty());
}

TEST_CASE("a frame by reference of a process that is killed still arrives") {
  auto mine = shm::make_shm(options_of(0, 2));
  constexpr std::size_t bytes = std::size_t{3} << 20;
  RankProcess other(*mine, [](transports::Transport& theirs) {
    const auto memory = theirs.allocate(bytes);
    std::ranges::copy(payload_of(1, bytes), memory->memory().begin());
    const auto until = base::after(base::Clock::now(), patience);
    while (theirs.windows()->find(memory->memory().data(), bytes).generation == 0 &&
           base::Clock::now() < until)
      std::this_thread::yield();
    if (theirs.link(0, Lane::bulk).send(header_of(1), memory->memory()) != Send::queued)
      throw std::runtime_error("the frame does not go by reference");
    ::raise(SIGKILL);
  });
  Node node(std::move(mine));
  const auto until = base::after(base::Clock::now(), patience);
  // The frame is expected only when the process is gone.
  while (node.held == 0 && base::Clock::now() < until) node.turn();
  other.wait();
  for (int i = 0; i < 1000; ++i) node.turn();
  node.expect(1, Lane::bulk, {1, bytes, true, 1});
  while (node.broken_links.size() < transports::link_lanes.size() && base::Clock::now() < until)
    node.turn();
  CHECK(node.frames == 1);
  CHECK(node.problems.empty());
  REQUIRE(node.broken_links.size() == transports::link_lanes.size());
  for (const Node::Broken& broken : node.broken_links)
    CHECK(broken.what == "its process has ended");
}

TEST_CASE("a place that lies outside the peer's memory breaks the link") {
  auto victim = shm::make_shm(options_of(0, 2));
  Impostor impostor(*victim);
  std::thread thread([&] { victim->start({victim->address(), impostor.address()}, shm_job); });
  REQUIRE(impostor.shake_hands() == base::Verdict::welcome);
  const shm::SegmentLayout layout(2);
  const base::FileDescriptor memory = memory_of(layout.bytes(), F_SEAL_SHRINK | F_SEAL_GROW);
  const shm::Segment segment(
      layout, base::Mapping(memory.get(), layout.bytes(), base::Mapping::Access::write));
  impostor.show(memory.get());
  thread.join();
  // The impostor has allocated one extent.
  const host::Extent extent(0);
  const std::size_t bytes = 100'000;
  const base::FileDescriptor allocated = memory_of(extent.bytes(), F_SEAL_SHRINK);
  const base::Mapping contents(allocated.get(), extent.bytes(), base::Mapping::Access::write);
  std::ranges::copy(payload_of(1, bytes), contents.data() + (extent.bytes() - bytes));
  const std::array<int, 1> descriptors{allocated.get()};
  host::send_packet(impostor.socket(),
                    std::as_bytes(std::span(host::memory_magic.data(), host::memory_magic.size())),
                    descriptors);
  segment.head().extents = extent.bit();
  shm::SegmentPair& pair = segment.pair(0);
  pair.extents = host::descriptor_sent;
  victim->windows()->find(nullptr, 0);

  Node node(std::move(victim));
  const bool placed = GENERATE(true, false);
  node.expect(1, Lane::bulk, {1, bytes, placed, 1});
  const auto send = [&](transports::WindowPlace place) {
    std::byte* const ring = segment.ring(0, Lane::bulk);
    const std::size_t end = put_header(ring, header_of(1));
    std::memcpy(ring + end, &place, sizeof place);
    pair.produced[0] = end + shm::ring_unit;
    ++pair.changes;
    for (int i = 0; i < 10; ++i) node.turn();
  };
  SECTION("the last place is good") {
    send({0, 1, extent.bytes() - bytes});
    CHECK(node.frames == 1);
    CHECK(node.broken_links.empty());
  }
  const auto breaks = [&](transports::WindowPlace place, const std::string& text) {
    send(place);
    REQUIRE(node.broken_links.size() == 1);
    CHECK(node.broken_links[0].code == Errc::corrupt);
    CHECK_THAT(node.broken_links[0].what, Contains(text));
    CHECK(node.frames == 0);
  };
  SECTION("one byte too far") {
    breaks({0, 1, extent.bytes() - bytes + 1}, "100000 bytes at offset 67008865 of extent 0");
  }
  SECTION("an offset that overflows") {
    breaks({0, 1, UINT64_MAX - 10}, "at offset 18446744073709551605 of extent 0");
  }
  SECTION("an extent that the peer does not have") {
    breaks({1, 1, 0}, "of extent 1");
  }
  SECTION("an extent that cannot be") {
    breaks({UINT32_MAX, UINT32_MAX, 0}, "of extent 4294967295");
  }
  CHECK(node.problems.empty());
}

}  // namespace rondo::testing
