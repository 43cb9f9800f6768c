// SPDX-License-Identifier: Apache-2.0
#include "transports/assembler.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "catch.h"
#include "conformance.h"
#include "support/idle_link.h"

namespace rondo::testing {
namespace {

// Answers as the test tells it, for one frame at a time.
class ScriptedSink final : public transports::Sink {
 public:
  transports::Header answer = transports::Header::accept;
  transports::Blob buffer;  // for the payload of the frame
  bool placed = true, known = true;
  std::size_t element = 1;
  std::size_t used = 0;
  int arrivals = 0, frames = 0;
  std::function<void()> in_call;

  std::optional<transports::Receive> expected(transports::Link&, std::size_t) override {
    if (!known) return std::nullopt;
    return transports::Receive{placed ? buffer.data() : nullptr, buffer.size()};
  }
  transports::Header arrived(transports::Link&, const transports::HeaderBytes& header) override {
    CHECK(header == header_of(7));
    ++arrivals;
    if (in_call) in_call();
    return answer;
  }
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    if (in_call) in_call();
    const std::size_t use = view.size() / element * element;
    REQUIRE(used + use <= buffer.size());
    std::copy_n(view.begin(), use, buffer.begin() + static_cast<std::ptrdiff_t>(used));
    used += use;
    return use;
  }
  void received(transports::Link&) override {
    ++frames;
    used = 0;
  }
  void sent(transports::Link&) override {}
  void broken(transports::Link&, std::error_code, std::string_view, bool) override {}
};

struct Bench {
  ScriptedSink sink;
  IdleLink link{1, transports::Lane::bulk, &sink};
  transports::Assembler frames;
  std::vector<std::byte> slot = std::vector<std::byte>(100);

  void head() {
    const transports::HeaderBytes header = header_of(7);
    CHECK(frames.head_rest().size() == header.size());
    std::ranges::copy(header, frames.head_rest().begin());
    frames.head_came(header.size());
    CHECK(frames.head_complete());
  }
  // Gives bytes as a ring does: in place, `piece` bytes at a time.
  void take(const transports::Blob& payload, std::size_t piece) {
    for (std::size_t at = 0; at < payload.size() && frames.accepted();) {
      const std::size_t bytes = std::min(piece, payload.size() - at);
      at += frames.take(link, std::span(payload).subspan(at, bytes));
      CHECK(frames.left() == payload.size() - at);
    }
  }
  // Gives bytes as a socket does.
  void read(const transports::Blob& payload, std::size_t piece) {
    for (std::size_t at = 0; at < payload.size() && frames.accepted();) {
      const auto room = frames.room(slot);
      REQUIRE(!room.empty());
      const std::size_t bytes = std::min(piece, room.size());
      std::copy_n(payload.begin() + static_cast<std::ptrdiff_t>(at), bytes, room.begin());
      frames.came(link, slot, bytes);
      at += bytes;
      CHECK(frames.left() == payload.size() - at);
    }
  }
};

}  // namespace

TEST_CASE("a frame is put together from pieces of any size", "[assembler]") {
  const bool placed = GENERATE(true, false), ring = GENERATE(true, false);
  const std::size_t element =
      placed ? 1 : GENERATE(std::size_t{1}, std::size_t{8}, std::size_t{12}, std::size_t{16});
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{40}})
    for (std::size_t piece = 1; piece <= 70; ++piece) {
      Bench bench;
      const transports::Blob payload = payload_of(3, count * element);
      bench.sink.buffer.resize(payload.size());
      bench.sink.placed = placed;
      bench.sink.element = element;
      for (int frame = 1; frame <= 2; ++frame) {
        CHECK(bench.frames.at_boundary());
        bench.head();
        REQUIRE(bench.frames.show(bench.link));
        CHECK(bench.frames.receive().bytes == payload.size());
        std::ranges::fill(bench.sink.buffer, std::byte{0});
        ring ? bench.take(payload, piece) : bench.read(payload, piece);
        REQUIRE(bench.frames.left() == 0);
        bench.frames.finish(bench.link);
        CHECK(bench.sink.frames == frame);
        CHECK(bench.sink.buffer == payload);
      }
      CHECK(bench.frames.misuse().empty());
    }
}

TEST_CASE("a header may come in parts, with a trailer behind it", "[assembler]") {
  Bench bench;
  bench.frames.expect_trailer(16);
  std::size_t came = 0;
  const transports::HeaderBytes header = header_of(7);
  for (std::size_t piece : {1, 30, 33, 5, 11}) {
    CHECK_FALSE(bench.frames.head_complete());
    REQUIRE(bench.frames.head_rest().size() == 80 - came);
    for (std::size_t i = 0; i < piece; ++i)
      bench.frames.head_rest()[i] =
          came + i < header.size() ? header[came + i] : static_cast<std::byte>(came + i);
    bench.frames.head_came(piece);
    CHECK_FALSE(bench.frames.at_boundary());
    came += piece;
  }
  REQUIRE(bench.frames.head_complete());
  CHECK(bench.frames.header() == header);
  for (std::size_t i = 0; i < 16; ++i)
    CHECK(bench.frames.trailer()[i] == static_cast<std::byte>(64 + i));
}

TEST_CASE("a header on hold is shown again, the same", "[assembler]") {
  Bench bench;
  bench.sink.answer = transports::Header::hold;
  bench.sink.known = false;
  bench.head();
  CHECK_FALSE(bench.frames.show(bench.link));
  CHECK(bench.frames.held());
  CHECK_FALSE(bench.frames.at_boundary());
  bench.sink.answer = transports::Header::accept;
  const transports::Blob payload = payload_of(1, 10);
  bench.sink.buffer.resize(10);
  bench.frames.announce(transports::Receive{bench.sink.buffer.data(), 10});
  REQUIRE(bench.frames.show(bench.link));
  CHECK(bench.sink.arrivals == 2);
  bench.take(payload, 4);
  bench.frames.finish(bench.link);
  CHECK(bench.sink.buffer == payload);
}

TEST_CASE("what was announced before a hold does not count after it", "[assembler]") {
  Bench bench;
  transports::Blob other(5);
  bench.frames.announce(transports::Receive{other.data(), other.size()});
  bench.sink.answer = transports::Header::hold;
  bench.head();
  CHECK_FALSE(bench.frames.show(bench.link));
  bench.sink.answer = transports::Header::accept;
  bench.sink.buffer.resize(10);
  REQUIRE(bench.frames.show(bench.link));
  CHECK(bench.frames.receive().bytes == 10);
  CHECK(bench.frames.receive().destination == bench.sink.buffer.data());
}

TEST_CASE("after a refusal nothing comes any more", "[assembler]") {
  Bench bench;
  bench.sink.answer = transports::Header::refuse;
  bench.head();
  CHECK_FALSE(bench.frames.show(bench.link));
  CHECK(bench.frames.closed());
  CHECK(bench.frames.misuse().empty());
  bench.frames.finish(bench.link);
  CHECK(bench.sink.frames == 0);
}

TEST_CASE("a halt from within a call of the sink is for good", "[assembler]") {
  Bench bench;
  bench.sink.buffer.resize(8);
  bench.sink.placed = false;
  SECTION("from arrived") {
    bench.sink.in_call = [&] { bench.frames.halt(); };
    bench.head();
    CHECK_FALSE(bench.frames.show(bench.link));
  }
  SECTION("from data") {
    bench.head();
    REQUIRE(bench.frames.show(bench.link));
    bench.sink.in_call = [&] { bench.frames.halt(); };
    bench.take(payload_of(1, 8), 8);
    CHECK(bench.frames.left() == 0);
    bench.frames.finish(bench.link);
  }
  CHECK(bench.frames.closed());
  CHECK(bench.sink.frames == 0);
}

TEST_CASE("a sink that leaves too much has made a mistake", "[assembler]") {
  Bench bench;
  bench.sink.placed = false;
  bench.sink.buffer.resize(40);
  bench.head();
  REQUIRE(bench.frames.show(bench.link));
  SECTION("an element's size or more") {
    bench.sink.element = 17;
    bench.take(payload_of(1, 40), 16);
  }
  SECTION("an element that the frame has not whole") {
    bench.sink.element = 12;
    bench.take(payload_of(1, 40), 40);
    REQUIRE(bench.frames.left() == 0);
    bench.frames.finish(bench.link);
  }
  CHECK(bench.frames.misuse() == "received bytes have been left unused");
  CHECK(bench.frames.closed());
  CHECK(bench.sink.frames == 0);
}

TEST_CASE("a sink that accepts a frame and does not announce it has made a mistake",
          "[assembler]") {
  Bench bench;
  bench.sink.known = false;
  bench.head();
  CHECK_FALSE(bench.frames.show(bench.link));
  CHECK(bench.frames.misuse() == "a frame has been accepted and not announced");
  CHECK(bench.frames.closed());
}

}  // namespace rondo::testing
