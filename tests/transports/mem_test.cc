// SPDX-License-Identifier: Apache-2.0
// What mem does on purpose: the faults, on one thread where possible, so that a seed says everything.
#include "transports/mem/mem.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <rondo/error.h>

#include "catch.h"

namespace rondo {
namespace {

std::byte content(std::size_t frame, std::size_t position) {
  return static_cast<std::byte>(frame * 31 + position * 7 + 1);
}

Blob payload_of(std::size_t frame, std::size_t bytes) {
  Blob payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = content(frame, i);
  return payload;
}

HeaderBytes header_of(std::size_t frame) {
  HeaderBytes header;
  for (std::size_t i = 0; i < header.size(); ++i) header[i] = content(frame + 1000, i);
  return header;
}

// Takes frames of the given sizes from one peer, in elements of `element` bytes when borrowed, and notes what happens.
class NotingSink final : public Sink {
 public:
  std::deque<std::size_t> to_come;  // payload bytes of the frames expected
  bool placed = false;
  std::size_t element = 1;
  int holds = 0;  // how often a header is put on hold
  bool refuse = false;
  std::vector<Blob> frames;  // as they came
  std::vector<HeaderBytes> headers;
  std::vector<std::size_t> views;
  std::vector<std::uint64_t> cookies;
  int arrivals = 0, breaks = 0;
  bool clean = false;
  std::string what;
  std::error_code code;

  std::optional<Receive> expected(Link&) override {
    if (to_come.empty()) return std::nullopt;
    filling_.resize(to_come.front());
    return Receive{placed ? filling_.data() : nullptr, to_come.front()};
  }
  Header arrived(Link&, const HeaderBytes& header) override {
    ++arrivals;
    if (refuse) return Header::refuse;
    if (to_come.empty() || holds-- > 0) return Header::hold;
    headers.push_back(header);
    used_ = 0;
    return Header::accept;
  }
  std::size_t data(Link&, std::span<const std::byte> view) override {
    views.push_back(view.size());
    const std::size_t use = view.size() - view.size() % element;
    if (used_ + use > filling_.size()) throw std::logic_error("more data than the frame has");
    std::memcpy(filling_.data() + used_, view.data(), use);
    used_ += use;
    return use;
  }
  void received(Link&) override {
    frames.push_back(filling_);
    to_come.pop_front();
  }
  void sent(Link&, std::uint64_t cookie) override { cookies.push_back(cookie); }
  void broken(Link&, std::error_code why, std::string_view text, bool in_order) override {
    ++breaks;
    code = why;
    what = text;
    clean = in_order;
  }

 private:
  Blob filling_;
  std::size_t used_ = 0;
};

// Rank 0 sends to rank 1.
struct Pair {
  explicit Pair(const MemFaults& faults = {}, std::uint64_t seed = 1) : fabric(2, faults, seed) {
    for (int rank = 0; rank < 2; ++rank) ends[rank] = fabric.endpoint(rank);
    for (auto& end : ends) end->start({ends[0]->address(), ends[1]->address()}, 1);
  }
  Link& out() { return ends[0]->link(1, Priority::bulk); }
  // Sends frames of these sizes, and lets both ends work until nothing happens any more.
  void run(const std::vector<std::size_t>& sizes) {
    sink.to_come.insert(sink.to_come.end(), sizes.begin(), sizes.end());
    for (const std::size_t bytes : sizes) payloads.push_back(payload_of(payloads.size(), bytes));
    settle();
  }
  void settle() {
    for (int idle = 0; idle < 200; ++idle) {
      while (next < payloads.size()) {
        const Send answer = out().send(header_of(next), payloads[next], next);
        answers.push_back(answer);
        if (answer == Send::full) break;
        ++next;
      }
      if (ends[0]->progress(sender) || ends[1]->progress(sink)) idle = 0;
    }
  }
  void check_frames(std::size_t count) const {
    REQUIRE(sink.frames.size() == count);
    for (std::size_t i = 0; i < count; ++i) {
      CHECK(sink.headers[i] == header_of(i));
      CHECK(sink.frames[i] == payloads[i]);
    }
  }
  long asked(Send answer) const { return std::count(answers.begin(), answers.end(), answer); }

  MemFabric fabric;
  std::unique_ptr<Transport> ends[2];
  NotingSink sender, sink;
  std::deque<Blob> payloads;
  std::vector<Send> answers;
  std::size_t next = 0;
};

const std::vector<std::size_t> mixed = {0, 8, 16, 1000, 0, 0, 4096, 24, 65536, 8};

TEST_CASE("frames come in order and whole, whatever the link holds") {
  const std::size_t capacity = GENERATE(1, 3, 16, 63, 64, 65, 100, 1000, 1 << 18);
  const bool placed = GENERATE(false, true);
  const std::size_t queue = GENERATE(1, 4);
  MemFaults faults;
  faults.capacity = capacity;
  faults.queue = queue;
  Pair pair(faults);
  pair.sink.placed = placed;
  pair.sink.element = 8;
  pair.run(mixed);
  pair.check_frames(mixed.size());
  if (capacity > 80'000) {
    CHECK(pair.sender.cookies.empty());
    CHECK(pair.asked(Send::done) == static_cast<long>(mixed.size()));
  } else {
    CHECK(pair.asked(Send::copied) == static_cast<long>(pair.sender.cookies.size()));
    CHECK(pair.asked(Send::copied) != 0);
    CHECK(pair.asked(Send::queued) == 0);  // none is larger than eager_bytes
    CHECK(std::is_sorted(pair.sender.cookies.begin(), pair.sender.cookies.end()));
  }
}

TEST_CASE("pieces cut elements anywhere, and the sink still sees whole ones") {
  MemFaults faults;
  faults.split = GENERATE(1, 2, 7, 100);
  faults.capacity = GENERATE(5, 4096);
  const std::uint64_t seed = GENERATE(1, 2, 3);
  Pair pair(faults, seed);
  pair.sink.element = 8;
  pair.run(mixed);
  pair.check_frames(mixed.size());
  CHECK(*std::max_element(pair.sink.views.begin(), pair.sink.views.end()) <=
        std::max<std::size_t>(32, faults.split));
}

TEST_CASE("a seed says which pieces there are") {
  const auto views = [](std::uint64_t seed) {
    MemFaults faults;
    faults.split = 50;
    Pair pair(faults, seed);
    pair.run({5000});
    return pair.sink.views;
  };
  CHECK(views(7) == views(7));
  CHECK(views(7) != views(8));
}

TEST_CASE("a delayed frame is seen after so many calls, and nobody sleeps meanwhile") {
  MemFaults faults;
  faults.delay = 20;
  int longest = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Pair pair(faults, seed);
    pair.sink.to_come = {8};
    const Blob payload = payload_of(0, 8);
    REQUIRE(pair.out().send(header_of(0), payload, 0) == Send::done);
    int calls = 0;
    while (pair.sink.frames.empty()) {
      REQUIRE_FALSE(pair.ends[1]->prepare_sleep());
      pair.ends[1]->progress(pair.sink);
      REQUIRE(++calls <= 21);
    }
    CHECK(pair.ends[1]->prepare_sleep());
    longest = std::max(longest, calls);
  }
  CHECK(longest > 15);
}

TEST_CASE("a stalled frame is refused or kept for a while, and everything arrives") {
  MemFaults faults;
  faults.stall = 10;
  bool refused = false, queued = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pair pair(faults, seed);
    pair.run(mixed);
    pair.check_frames(mixed.size());
    refused |= pair.asked(Send::full) != 0;
    queued |= pair.asked(Send::copied) != 0;
  }
  CHECK(refused);
  CHECK(queued);
}

TEST_CASE("a sender that was refused does not sleep before it may try again") {
  MemFaults faults;
  faults.capacity = 64;
  faults.queue = 1;
  Pair pair(faults);
  const Blob payload = payload_of(0, 100);
  REQUIRE(pair.out().send(header_of(0), payload, 0) == Send::copied);
  REQUIRE(pair.out().send(header_of(1), payload, 1) == Send::full);
  pair.ends[0]->progress(pair.sender);
  CHECK(pair.ends[0]->prepare_sleep());  // no room: the receiver has to move first
  pair.sink.to_come = {100, 100};
  pair.ends[1]->progress(pair.sink);
  pollfd watch{pair.ends[0]->wait_descriptor(), POLLIN, 0};
  CHECK(::poll(&watch, 1, 0) == 1);  // and its moving rings
  CHECK(pair.ends[0]->progress(pair.sender));
  CHECK(::poll(&watch, 1, 0) == 0);
}

TEST_CASE("a small frame goes at once or is refused, until there is room for all of it") {
  MemFaults faults;
  faults.capacity = 300;
  Pair pair(faults);
  const Blob payload = payload_of(0, 100);
  REQUIRE(pair.out().send(header_of(0), payload, 0) == Send::done);
  REQUIRE(pair.out().send(header_of(1), payload, 1) == Send::full);
  CHECK_FALSE(pair.ends[0]->progress(pair.sender));
  CHECK(pair.ends[0]->prepare_sleep());
  pair.sink.to_come = {100, 100};
  CHECK(pair.ends[1]->progress(pair.sink));
  CHECK_FALSE(pair.ends[0]->prepare_sleep());
  CHECK(pair.ends[0]->progress(pair.sender));
  CHECK(pair.out().send(header_of(1), payload, 1) == Send::done);
}

TEST_CASE("a large payload is borrowed until it has gone") {
  MemFaults faults;
  faults.capacity = 5000;
  faults.queue = 2;
  Pair pair(faults);
  const std::vector<std::size_t> sizes = {eager_bytes + 1, eager_bytes, 3 * eager_bytes, 10};
  pair.run(sizes);
  pair.check_frames(sizes.size());
  CHECK(pair.asked(Send::queued) == 2);
  CHECK(pair.asked(Send::copied) == 1);
  CHECK(pair.sender.cookies == std::vector<std::uint64_t>{0, 1, 2});
}

TEST_CASE("a header on hold is shown again when the sink has an answer") {
  Pair pair;
  pair.payloads = {payload_of(0, 8), payload_of(1, 16)};
  pair.settle();
  CHECK(pair.sink.arrivals == 1);
  CHECK(pair.ends[1]->prepare_sleep());  // the frame waits for the sink: no reason to stay awake
  pair.sink.to_come = {8, 16};
  pair.sink.holds = 2;
  pair.settle();
  CHECK(pair.sink.arrivals == 5);
  pair.check_frames(2);
}

TEST_CASE("after a refusal nothing more is read") {
  Pair pair;
  pair.sink.refuse = true;
  pair.run({8, 8, 8});
  CHECK(pair.sink.arrivals == 1);
  CHECK(pair.sink.frames.empty());
  CHECK(pair.ends[1]->prepare_sleep());
}

TEST_CASE("a cut breaks both ends after exactly so many bytes") {
  MemFaults faults;
  const std::uint64_t bytes = GENERATE(0, 1, 63, 64, 65, 72, 100, 136, 200, 5000);
  faults.cuts = {{0, 1, Priority::bulk, bytes, false}};
  faults.capacity = GENERATE(10, 1 << 18);
  Pair pair(faults);
  pair.run(mixed);
  std::size_t whole = 0;  // frames that fit before the cut
  for (std::uint64_t left = bytes; whole < mixed.size() && left >= 64 + mixed[whole]; ++whole)
    left -= 64 + mixed[whole];
  pair.check_frames(whole);
  for (const NotingSink* sink : {&pair.sender, &pair.sink}) {
    CHECK(sink->breaks == 1);
    CHECK_FALSE(sink->clean);
    CHECK(sink->code == std::errc::connection_reset);
    CHECK(sink->what == "connection reset by peer (a fault, after " + std::to_string(bytes) + " bytes)");
  }
  CHECK(pair.out().send(header_of(0), {}, 0) == Send::full);
  CHECK(pair.ends[0]->prepare_sleep());
  CHECK(pair.ends[1]->prepare_sleep());
}

TEST_CASE("a clean cut falls on the end of a frame") {
  MemFaults faults;
  faults.cuts = {{0, 1, Priority::bulk, 137, true}};
  Pair pair(faults);
  pair.run(mixed);
  pair.check_frames(3);
  CHECK(pair.sink.breaks == 1);
  CHECK(pair.sink.clean);
  CHECK(pair.sender.breaks == 1);
  CHECK(pair.sender.clean);
}

TEST_CASE("an endpoint that goes away closes its links in order") {
  Pair pair;
  pair.run({8, 100});
  pair.payloads.push_back(payload_of(2, 300));
  REQUIRE(pair.out().send(header_of(2), pair.payloads[2], 2) == Send::done);
  pair.sink.to_come = {300};
  pair.ends[0].reset();
  CHECK_FALSE(pair.ends[1]->prepare_sleep());
  while (pair.ends[1]->progress(pair.sink)) {
  }
  pair.check_frames(3);          // what was sent before still arrives
  CHECK(pair.sink.breaks == 2);  // both lanes
  CHECK(pair.sink.clean);
}

TEST_CASE("an endpoint that goes away in the middle of a frame does not close in order") {
  MemFaults faults;
  faults.capacity = 100;
  Pair pair(faults);
  const Blob payload = payload_of(0, 300);
  REQUIRE(pair.out().send(header_of(0), payload, 0) == Send::copied);
  pair.sink.to_come = {300};
  pair.ends[0].reset();
  while (pair.ends[1]->progress(pair.sink)) {
  }
  CHECK(pair.sink.breaks == 2);  // the urgent lane first
  CHECK_FALSE(pair.sink.clean);
  CHECK(pair.sink.frames.empty());
}

TEST_CASE("one bit arrives wrong, where it was asked for") {
  MemFaults faults;
  const bool header = GENERATE(true, false);
  const std::uint64_t bit = GENERATE(0, 9, 511, 1'000'003);
  const std::uint64_t frame = GENERATE(0, 3, 4);
  faults.flips = {{0, 1, Priority::bulk, frame, header, bit}};
  faults.capacity = GENERATE(7, 1 << 18);
  Pair pair(faults);
  pair.run(mixed);
  REQUIRE(pair.sink.frames.size() == mixed.size());
  std::size_t victim = frame;
  while (!header && mixed[victim] == 0) ++victim;
  for (std::size_t i = 0; i < mixed.size(); ++i) {
    HeaderBytes wanted_header = header_of(i);
    Blob wanted = pair.payloads[i];
    if (i == victim && header) wanted_header[bit % 512 / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    if (i == victim && !header)
      wanted[bit % (8 * wanted.size()) / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    CHECK(pair.sink.headers[i] == wanted_header);
    CHECK(pair.sink.frames[i] == wanted);
  }
}

TEST_CASE("addresses of another fabric, another rank or garbage are not reached") {
  MemFabric fabric(3), other(3);
  const auto rank0 = fabric.endpoint(0), rank1 = fabric.endpoint(1), foreign = other.endpoint(1);
  CHECK(rank0->reach(1, rank1->address()).distance == distance_process);
  CHECK_FALSE(rank0->reach(1, foreign->address()).distance);
  CHECK_FALSE(rank0->reach(2, rank1->address()).distance);
  CHECK_FALSE(rank0->reach(1, {}).distance);
  Blob longer = rank1->address();
  longer.push_back(std::byte{0});
  CHECK_FALSE(rank0->reach(1, longer).distance);
  CHECK(&rank0->link(1, Priority::urgent) != &rank0->link(1, Priority::bulk));
  CHECK(&rank0->link(1, Priority::urgent) == &rank0->link(1, Priority::urgent));
  int here = 0;
  CHECK(rank0->link(1, Priority::bulk).window(reinterpret_cast<std::uintptr_t>(&here), sizeof here) ==
        reinterpret_cast<std::byte*>(&here));
}

TEST_CASE("faults that cannot be are refused") {
  CHECK_THROWS_AS(MemFabric(0), Error);
  MemFaults faults;
  faults.capacity = 0;
  CHECK_THROWS_AS(MemFabric(2, faults), Error);
  faults = {};
  faults.queue = 0;
  CHECK_THROWS_AS(MemFabric(2, faults), Error);
  faults = {};
  faults.cuts = {{0, 2, Priority::bulk, 1, false}};
  CHECK_THROWS_WITH(MemFabric(2, faults), Catch::Contains("rank 0 to rank 2") && Catch::Contains("0 to 1"));
  faults.cuts = {{1, 1, Priority::bulk, 1, false}};
  CHECK_THROWS_AS(MemFabric(2, faults), Error);
  MemFabric fabric(2);
  CHECK_THROWS_AS(fabric.endpoint(2), Error);
  const auto once = fabric.endpoint(1);
  CHECK_THROWS_AS(fabric.endpoint(1), Error);
}

// Exchanges `frames` frames with a peer that does the same; sleeps whenever the transport allows.
void exchange(Transport& end, int peer, NotingSink& sink, std::size_t frames) {
  const Blob payload = payload_of(0, 256);
  sink.to_come.assign(frames, 256);
  Link& link = end.link(peer, Priority::urgent);
  std::size_t begun = 0, done = 0;
  while (sink.frames.size() < frames || done + sink.cookies.size() < frames) {
    bool moved = false;
    // At most two frames ahead of the peer, so that both ends fall asleep and wake all the time.
    while (begun < std::min(frames, sink.frames.size() + 2)) {
      const Send answer = link.send(header_of(0), payload, begun);
      if (answer == Send::full) break;
      if (answer == Send::done) ++done;
      ++begun;
      moved = true;
    }
    moved |= end.progress(sink);
    if (moved || !end.prepare_sleep()) continue;
    pollfd watch{end.wait_descriptor(), POLLIN, 0};
    if (::poll(&watch, 1, 20'000) != 1) throw Error(Errc::deadline_exceeded, "a wake-up was lost");
  }
}

TEST_CASE("no wake-up is lost between two threads that sleep whenever they may") {
  MemFaults faults;
  faults.capacity = GENERATE(50, 400, 100'000);
  MemFabric fabric(2, faults);
  const auto a = fabric.endpoint(0), b = fabric.endpoint(1);
  NotingSink sink_a, sink_b;
  std::exception_ptr failure;
  std::thread other([&] {
    try {
      exchange(*b, 0, sink_b, 3000);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  CHECK_NOTHROW(exchange(*a, 1, sink_a, 3000));
  other.join();
  CHECK_FALSE(failure);
}

}  // namespace
}  // namespace rondo
