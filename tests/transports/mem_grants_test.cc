// SPDX-License-Identifier: Apache-2.0
// Senders that write into memory which the receiver has granted: early, late, and never after the
// receiver has halted.
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "catch.h"
#include "mem_pair.h"

namespace rondo::mem_testing {

namespace {

// Places every frame, and knows the destinations of all frames from the start.
class PlacingSink final : public transports::Sink {
 public:
  explicit PlacingSink(const std::vector<std::size_t>& sizes) {
    for (const std::size_t bytes : sizes) memory.emplace_back(bytes, unwritten);
  }

  static constexpr std::byte unwritten{0xEE};
  std::deque<transports::Blob> memory;  // by frame
  std::size_t come = 0;                 // frames
  std::vector<transports::HeaderBytes> headers;
  bool change_mind = false;
  std::string what;

  // Whether the whole payload lies where it belongs.
  bool has(std::size_t frame) const {
    return memory[frame] == payload_of(frame, memory[frame].size());
  }
  bool untouched(std::size_t frame) const {
    return memory[frame] == transports::Blob(memory[frame].size(), unwritten);
  }

  std::optional<transports::Receive> expected(transports::Link&, std::size_t ahead) override {
    if (come + ahead >= memory.size()) return std::nullopt;
    transports::Blob& place = memory[come + ahead];
    return transports::Receive{change_mind ? elsewhere_ : place.data(), place.size()};
  }
  transports::Header arrived(transports::Link&, const transports::HeaderBytes& header) override {
    if (come == memory.size()) return transports::Header::hold;
    headers.push_back(header);
    return transports::Header::accept;
  }
  std::size_t data(transports::Link&, std::span<const std::byte>) override { return 0; }
  void received(transports::Link&) override { ++come; }
  void sent(transports::Link&) override {}
  void broken(transports::Link&, std::error_code, std::string_view text, bool) override {
    what = text;
  }

 private:
  std::byte elsewhere_[64];
};

// Rank 0 sends frames of these sizes to rank 1, which has granted what it may before the first.
struct Granted {
  Granted(const mem::MemFaults& faults, const std::vector<std::size_t>& sizes)
      : pair(faults), sink(sizes) {
    pair.ends[1]->open({&sink, &sink, &sink});
    pair.ends[1]->progress();
    for (std::size_t i = 0; i < sizes.size(); ++i) payloads.push_back(payload_of(i, sizes[i]));
  }
  // As many frames as find room.
  void send() {
    while (sent < payloads.size() &&
           pair.out().send(header_of(sent), payloads[sent]) != transports::Send::full)
      ++sent;
  }
  void settle() {
    for (int idle = 0; idle < 500; ++idle) {
      send();
      if (pair.ends[0]->progress() || pair.ends[1]->progress()) idle = 0;
    }
  }
  void check_all() const {
    REQUIRE(sink.come == sink.memory.size());
    for (std::size_t i = 0; i < sink.come; ++i) {
      CHECK(sink.has(i));
      CHECK(sink.headers[i] == header_of(i));
    }
  }

  Pair pair;
  PlacingSink sink;
  std::deque<transports::Blob> payloads;
  std::size_t sent = 0;
};

mem::MemFaults granting(std::uint32_t frames, std::uint32_t late = 0) {
  mem::MemFaults faults;
  faults.grants = frames;
  faults.late = late;
  return faults;
}

}  // namespace

TEST_CASE("a granted payload is there before its header and before the frames in front of it") {
  mem::MemFaults faults = granting(3);
  faults.capacity = 10;  // headers trickle
  Granted run(faults, {70'000, 8, 100, 50});
  run.send();
  CHECK(run.sent == 4);
  for (const std::size_t frame : {0, 1, 2}) CHECK(run.sink.has(frame));
  CHECK(run.sink.untouched(3));  // nobody has granted it
  CHECK(run.sink.come == 0);
  CHECK(run.sink.headers.empty());
  run.settle();
  run.check_all();
}

TEST_CASE("a granted payload comes late, and its header after it") {
  Granted run(granting(1, 200), {5000});
  run.send();
  int calls = 0;
  for (; !run.sink.has(0) && calls <= 200; ++calls) {
    CHECK(run.sink.untouched(0));
    CHECK_FALSE(run.pair.ends[0]->prepare_sleep());
    run.pair.ends[0]->progress();
    if (!run.sink.has(0)) {
      run.pair.ends[1]->progress();
      CHECK(run.sink.headers.empty());
    }
  }
  CHECK(calls > 5);  // the seed draws more
  run.settle();
  run.check_all();
}

TEST_CASE("what a sender gives away as copied may change before it is written") {
  Granted run(granting(2, 30), {1000, 1000});
  REQUIRE(run.pair.out().send(header_of(0), run.payloads[0]) == transports::Send::copied);
  std::fill(run.payloads[0].begin(), run.payloads[0].end(), std::byte{0});
  run.sent = 1;
  run.settle();
  run.check_all();
}

TEST_CASE("nothing is written into granted memory after its receiver has halted or gone") {
  Granted run(granting(4, 100), {70'000, 8, 100, 5000});
  run.send();
  SECTION("halted") {
    run.pair.ends[1]->halt();
  }
  SECTION("halted twice, and asked to go on") {
    run.pair.ends[1]->halt();
    run.pair.ends[1]->progress();
    run.pair.ends[1]->halt();
  }
  SECTION("gone") {
    run.pair.ends[1].reset();
  }
  for (transports::Blob& memory : run.sink.memory)
    std::fill(memory.begin(), memory.end(), PlacingSink::unwritten);
  for (int i = 0; i < 1000; ++i) run.pair.ends[0]->progress();
  for (std::size_t frame = 0; frame < 4; ++frame) CHECK(run.sink.untouched(frame));
}

TEST_CASE("grants make no difference to what arrives") {
  mem::MemFaults faults = granting(GENERATE(1, 2, 7), GENERATE(0, 3, 40));
  faults.capacity = GENERATE(10, 1000, 1 << 18);
  faults.delay = faults.stall = 5;
  faults.split = 100;
  std::vector<std::size_t> sizes;
  for (int i = 0; i < 5; ++i) sizes.insert(sizes.end(), mixed.begin(), mixed.end());
  Granted run(faults, sizes);
  run.settle();
  run.check_all();
}

TEST_CASE("a flipped bit arrives although the memory has been granted") {
  mem::MemFaults faults = granting(2);
  faults.flips = {{0, 1, transports::Lane::bulk, 0, false, 8 * 40}};
  Granted run(faults, {100, 100});
  run.settle();
  REQUIRE(run.sink.come == 2);
  CHECK_FALSE(run.sink.has(0));
  CHECK(run.sink.has(1));
}

TEST_CASE("a sink that takes back what it has announced is told") {
  Granted run(granting(1), {50});
  run.sink.change_mind = true;
  run.settle();
  CHECK(run.sink.come == 0);
  CHECK(run.sink.what == "a frame was not taken where its memory had been announced");
}

}  // namespace rondo::mem_testing
