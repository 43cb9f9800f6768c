// SPDX-License-Identifier: Apache-2.0
#include "conformance.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>

#include "base/file_descriptor.h"
#include "catch.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

// Sizes around each limit at which an implementation may work in another way.
const std::vector<std::size_t> sizes{0,       1,       7,         16,   63,   64,     65,
                                     4095,    4097,    449,       1000, 4096, 65'536, 131'071,
                                     131'072, 131'073, 1'048'579, 0,    3};

bool readable(int descriptor, int milliseconds) {
  pollfd one{descriptor, POLLIN, 0};
  return ::poll(&one, 1, milliseconds) == 1;
}

// By memcmp, which is fast in every build.
bool holds_only(const transports::Blob& bytes, std::byte value) {
  return bytes.front() == value &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// More bytes of a frame than a link takes while nobody reads. rdma posts up to 16 MiB at once.
std::size_t more_than_fits() {
  return std::size_t{20} << 20;
}

void all_sizes(const MakeTransports& make, bool placed, std::size_t element) {
  Group group(make, 2);
  std::uint64_t number = 1;
  for (const std::size_t size : sizes)
    for (const transports::Lane lane : transports::link_lanes)
      for (const int from : {0, 1}) {
        const std::size_t bytes = size / element * element;
        group[from].send(1 - from, lane, number, bytes);
        group[1 - from].expect(from, lane, {number, bytes, placed, element});
        ++number;
      }
  group.finish();
  CHECK(group[0].frames == static_cast<int>(transports::link_lanes.size() * sizes.size()));
}

void placed(const MakeTransports& make) {
  all_sizes(make, true, 1);
}

void borrowed(const MakeTransports& make) {
  if (whole_set() && !few_cases()) {
    for (const std::size_t element : {1, 2, 3, 4, 8, 12, 15, 16}) all_sizes(make, false, element);
  } else {
    for (const std::size_t element : {3, 8}) all_sizes(make, false, element);
  }
}

void mixed(const MakeTransports& make) {
  Group group(make, 2);
  for (std::uint64_t number = 1; number <= 300; ++number) {
    const std::size_t bytes = (number * 7919) % 5000 / 4 * 4;
    group[0].send(1, transports::Lane::bulk, number, bytes);
    group[1].expect(0, transports::Lane::bulk, {number, bytes, number % 3 == 0, 4});
  }
  group.finish();
}

void large(const MakeTransports& make) {
  Group group(make, 2);
  const std::size_t bytes = std::size_t{whole_set() && !few_cases() ? 64u : 16u} << 20;
  for (const int from : {0, 1}) {
    group[from].send(1 - from, transports::Lane::bulk, 1, bytes);
    group[1 - from].expect(from, transports::Lane::bulk, {1, bytes, from == 0, 8});
  }
  group.finish();
}

void tokens(const MakeTransports& make) {
  Group group(make, 2);
  for (std::uint64_t number = 1; number <= 2000; ++number) {
    group[0].send(1, transports::Lane::urgent, number, 0);
    group[1].expect(0, transports::Lane::urgent, {number, 0, number % 2 == 0, 4});
  }
  group.finish();
}

void held_then_accepted(const MakeTransports& make) {
  Group group(make, 2);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{100}, std::size_t{300'000}}) {
    for (const bool place : {true, false}) {
      const int before = group[1].held;
      group[0].send(1, transports::Lane::bulk, 5, bytes);
      CHECK(group.run_until([&] { return group[1].held > before; }));
      for (int i = 0; i < 50; ++i) group[1].turn();
      CHECK(group[1].held == before + 1);
      group[1].expect(0, transports::Lane::bulk, {5, bytes, place, 4});
      group.finish();
    }
  }
}

void hold_does_not_stop_others(const MakeTransports& make) {
  Group group(make, 2);
  group[0].send(1, transports::Lane::bulk, 1, 200'000);
  CHECK(group.run_until([&] { return group[1].held == 1; }));
  group[0].send(1, transports::Lane::urgent, 2, 40);
  group[1].expect(0, transports::Lane::urgent, {2, 40, false, 8});
  CHECK(group.run_until([&] { return group[1].frames == 1; }));
  group[1].expect(0, transports::Lane::bulk, {1, 200'000, true, 1});
  group.finish();
}

void refused(const MakeTransports& make) {
  Group group(make, 2);
  group[1].refuse_unexpected = true;
  group[0].send(1, transports::Lane::bulk, 9, 1000);
  CHECK(group.run_until([&] { return group[1].refused == 1; }));
  group[1].expect(0, transports::Lane::bulk, {9, 1000, true, 1});
  for (int i = 0; i < 100; ++i) group[1].turn();
  CHECK(group[1].refused == 1);
  CHECK(group[1].frames == 0);
  CHECK(group[1].problems.empty());
}

void many_links(const MakeTransports& make) {
  constexpr int size = 7;
  Group group(make, size);
  for (int from = 0; from < size; ++from)
    for (int to = 0; to < size; ++to)
      for (const transports::Lane lane : transports::link_lanes)
        for (std::uint64_t number = 1; from != to && number <= 3; ++number) {
          const std::size_t bytes = number * 10'000 * static_cast<std::size_t>(from + 1);
          group[from].send(to, lane, number, bytes);
          group[to].expect(from, lane, {number, bytes, (from + to) % 2 == 0, 8});
        }
  group.finish();
}

void clean_close(const MakeTransports& make) {
  Group group(make, 2);
  group[0].send(1, transports::Lane::bulk, 1, 100);
  group[1].expect(0, transports::Lane::bulk, {1, 100, true, 1});
  group.finish();
  transports::Link& link = group[0].transport().link(1, transports::Lane::bulk);
  group[1].destroy();
  for (int i = 0; i < 1'000'000 && group[0].broken_links.empty(); ++i)
    if (group[0].transport().prepare_sleep())
      readable(group[0].transport().wake_source().descriptor, 10'000);
    else
      group[0].turn();
  REQUIRE(group[0].broken_links.size() == 1);
  CHECK(group[0].broken_links[0].clean);
  CHECK(group[0].broken_links[0].peer == 1);
  CHECK_FALSE(group[0].broken_links[0].what.empty());
  CHECK(link.send(header_of(2), {}) == transports::Send::full);
  for (int i = 0; i < 100; ++i) group[0].turn();
  CHECK(group[0].broken_links.size() == 1);
  CHECK(group[0].problems.empty());
}

void cut_within_a_frame(const MakeTransports& make) {
  Group group(make, 2);
  const std::size_t bytes = 3 * more_than_fits();
  group[0].send(1, transports::Lane::bulk, 1, bytes);
  group[0].send(1, transports::Lane::bulk, 2, bytes);
  CHECK(group.run_until([&] { return group[1].held == 1; }));
  group[1].expect(0, transports::Lane::bulk, {1, bytes, true, 1});
  group[1].turn();
  group[0].destroy();
  for (int i = 0; i < 1'000'000 && group[1].broken_links.empty(); ++i)
    if (!group[1].turn() && group[1].transport().prepare_sleep())
      readable(group[1].transport().wake_source().descriptor, 10'000);
  REQUIRE(group[1].broken_links.size() == 1);
  CHECK_FALSE(group[1].broken_links[0].clean);
  CHECK(group[1].frames == 0);
  CHECK(group[1].problems.empty());
}

// Reads the byte at `place`, which a device may be writing, through the kernel, as another device
// would.
std::byte peek(const std::byte* place) {
  static const base::FileDescriptor memory(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  std::byte seen{};
  REQUIRE(::pread(memory.get(), &seen, 1,
                  static_cast<off_t>(reinterpret_cast<std::uintptr_t>(place))) == 1);
  return seen;
}

// After halt(), the transport leaves memory alone that was announced or given to send().
void halted(const MakeTransports& make, int who) {
  Group group(make, 2);
  const std::size_t bytes = more_than_fits();
  for (const transports::Lane lane : transports::link_lanes) {
    group[0].send(1, lane, 1, bytes);
    group[1].expect(0, lane, {1, bytes, true, 1});
  }
  // The frames of all lanes have begun, and the one that began last is not complete.
  std::set<transports::Lane> begun;
  CHECK(group.run_until([&] {
    for (const transports::Lane lane : transports::link_lanes) {
      const transports::Blob& buffer = group[1].buffer(0, lane);
      if (!buffer.empty() && peek(buffer.data()) == payload_of(1, 1)[0]) begun.insert(lane);
    }
    return begun.size() == transports::link_lanes.size();
  }));
  const int complete = group[1].frames, sent_later = group[who].sent_later;
  REQUIRE(complete < static_cast<int>(transports::link_lanes.size()));
  for (int i = 0; i < 2; ++i) group[who].transport().halt();
  for (const transports::Lane lane : transports::link_lanes)
    std::ranges::fill(group[1].buffer(0, lane), std::byte{0x55});
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  while (std::chrono::steady_clock::now() < until) {
    group[0].turn();
    CHECK(!(group[1].turn() && who == 1));
  }
  for (const transports::Lane lane : transports::link_lanes) {
    const transports::Blob& buffer = group[1].buffer(0, lane);  // empty after a complete frame
    CHECK((who == 0 || buffer.empty() || holds_only(buffer, std::byte{0x55})));
  }
  CHECK(group[1].frames == complete);
  CHECK(group[who].broken_links.empty());
  CHECK(group[who].sent_later == sent_later);
  CHECK(group[who].problems.empty());
  CHECK(group[who].transport().link(1 - who, transports::Lane::bulk).send(header_of(2), {}) ==
        transports::Send::full);
}

void halted_receiver(const MakeTransports& make) {
  halted(make, 1);
}

void halted_sender(const MakeTransports& make) {
  halted(make, 0);
}

void sleeps_and_wakes(const MakeTransports& make) {
  Group group(make, 2);
  transports::Transport& receiver = group[1].transport();
  for (std::uint64_t number = 1; number <= 20; ++number) {
    group[1].expect(0, transports::Lane::bulk, {number, 1000, number % 2 == 0, 1});
    while (group[1].turn() || !receiver.prepare_sleep()) {
    }
    CHECK((number == 1 || !readable(receiver.wake_source().descriptor, 0)));
    group[0].send(1, transports::Lane::bulk, number, 1000);
    CHECK(group.run_until([&] { return group[0].idle(); }));
    if (number > 1)
      CHECK((group[1].idle() || !receiver.prepare_sleep() ||
             readable(receiver.wake_source().descriptor, 10'000)));
    group.finish();
  }
}

// A receiver that sleeps in the middle of a frame is woken by each part that comes, also by a short
// last one: a ring of shared memory has 256 KiB.
void rest_of_a_frame_wakes(const MakeTransports& make) {
  Group group(make, 2);
  transports::Transport& receiver = group[1].transport();
  std::uint64_t number = 0;
  for (const std::size_t bytes : {std::size_t{270'000}, more_than_fits()}) {
    group[1].expect(0, transports::Lane::bulk, {++number, bytes, true, 1});
    group[0].send(1, transports::Lane::bulk, number, bytes);
    for (;;) {
      while (!group[1].idle() && (group[1].turn() || !receiver.prepare_sleep())) {
      }
      if (group[1].idle()) break;
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      bool woken = false;
      while (!woken && std::chrono::steady_clock::now() < until) {
        group[0].turn();
        woken = readable(receiver.wake_source().descriptor, 0);
      }
      REQUIRE(woken);
    }
  }
  group.finish();
}

// A peer that is ahead fills the link. A rank that cannot take the frames must be able to sleep.
void stalled_link_lets_sleep(const MakeTransports& make) {
  Group group(make, 2);
  const std::size_t bytes = more_than_fits();
  group[0].send(1, transports::Lane::bulk, 1, bytes);
  CHECK(group.run_until([&] { return group[1].held == 1; }));
  int sleeps = 0;
  for (int i = 0; i < 100'000 && sleeps < 3; ++i) {
    bool slept = true;
    for (const int rank : {0, 1}) {
      if (group[rank].turn() || !group[rank].transport().prepare_sleep())
        slept = false;
      else if (readable(group[rank].transport().wake_source().descriptor, 20))
        slept = false;
    }
    sleeps = slept ? sleeps + 1 : 0;
  }
  CHECK(sleeps == 3);
  group[1].expect(0, transports::Lane::bulk, {1, bytes, false, 8});
  group.finish();
}

}  // namespace

const std::vector<Check>& conformance() {
  static const std::vector<Check> checks{
      {"placed frames of all sizes, all lanes, both directions", placed},
      {"borrowed frames of all sizes and odd elements", borrowed},
      {"placed and borrowed mixed, in order", mixed},
      {"large frames in both directions at once", large},
      {"many frames without payload", tokens},
      {"held, then accepted", held_then_accepted},
      {"a held frame does not stop another lane", hold_does_not_stop_others},
      {"refused", refused},
      {"all pairs of seven ranks, all lanes", many_links},
      {"closed in order", clean_close},
      {"cut within a frame", cut_within_a_frame},
      {"a receiver that halts writes nothing more", halted_receiver},
      {"a sender that halts sends nothing more", halted_sender},
      {"sleeps and wakes", sleeps_and_wakes},
      {"the rest of a frame wakes who sleeps", rest_of_a_frame_wakes},
      {"a stalled link lets its owner sleep", stalled_link_lets_sleep},
  };
  return checks;
}

}  // namespace rondo::testing
