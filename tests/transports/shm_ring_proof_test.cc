// SPDX-License-Identifier: Apache-2.0
//
// A proof of the protocol of a ring in shared memory (ring.h), for frames of at most whole_bytes.
// It runs the real halves of a link, and tries every order of these steps:
//   send        the sender sends a frame of any kind in a list, or finds no room for it
//   land        what the sender stored for the oldest invisible frame reaches the receiver's memory
//   land early  as well, what it stored for the next frame without release
//   poll        the receiver takes what has landed
// The words of a frame land one by one, in two orders, with a poll after each; its first word is
// the last. That send() stores it last and with release is taken for granted: the test sees what
// send() stores, but not when. Old counters of the receiver need no step: they are a late poll.
//
// A state is where both halves are, the frames under way, and which units begin with 0. Each other
// word that the sender stores is unique in the ring, so an old one is never taken for the right
// one. States that differ by rounds of the ring are the same. A hash of 64 bits stands for a state.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mix.h"
#include "catch.h"
#include "support/idle_link.h"
#include "transports/shm/incoming.h"
#include "transports/shm/outgoing.h"

namespace rondo::testing::ring_proof {
namespace {

using Header = std::array<std::uint64_t, shm::header_words>;
template <std::size_t ring_bytes>
using Words = std::array<std::uint64_t, ring_bytes / sizeof(std::uint64_t)>;

constexpr auto used_lane = transports::Lane::messages;
constexpr auto lane_index = static_cast<std::size_t>(used_lane);
constexpr std::size_t most_under_way = 2;
constexpr std::uint64_t not_stored = 0xdead'0000'dead'0000;

// A rule that the test breaks, in what it lets the other half see.
enum class Break {
  nothing,
  word_not_cleared,  // where the next header begins
  one_word_too_far,  // is cleared, when the sender clears all that is free
  first_word_early,  // it lands before the rest of its frame
  told_early,        // what is under way counts as consumed
};

struct Kind {
  std::uint64_t mask;   // the words in which its header differs from the one before
  std::size_t payload;  // bytes
};

struct Frame {
  Header header{};
  std::size_t payload = 0;
  std::uint64_t begin = 0, end = 0;  // in the ring, as bytes since the start
  // The words that are new in its header, and then those of its payload.
  std::uint64_t word(std::size_t i) const { return base::mix_hash(begin, i) | 1; }
  std::uint64_t payload_word(std::size_t i) const { return word(header.size() + i); }
};

template <std::size_t ring_bytes>
struct World {
  shm::ShmOutgoing sender;
  shm::ShmIncoming receiver;
  Words<ring_bytes> ring{};                                // as the receiver sees it
  std::array<Frame, most_under_way> frames{};              // not received
  std::size_t under_way = 0, landed = 0;                   // the first ones have landed
  std::array<Words<ring_bytes>, most_under_way> stores{};  // for those that have not
  Header last_header{};
  std::uint64_t produced = 0, told = 0;  // told: consumed, as the receiver says
  std::uint64_t cleared = 0, known = 0;  // as ShmOutgoing::cleared_ and consumed_
  std::size_t step = 0;                  // led here
  std::size_t invisible() const { return under_way - landed; }
  std::uint64_t consumed() const { return under_way == 0 ? produced : frames[0].begin; }
};

struct Result {
  std::size_t states = 0;
  std::size_t refused = 0;     // for how many frames there was no room
  std::uint64_t produced = 0;  // the most
  std::string violation;       // empty: none
};

struct NoWindows final : transports::Windows {
  NoWindows() : Windows({0, 1}) {}
  std::byte* area(int) const noexcept override { return nullptr; }
  transports::WindowPlace find(const void*, std::size_t) noexcept override { return {}; }
  std::byte* map(int, transports::WindowPlace, std::size_t) override { return nullptr; }
  void notify() noexcept override {}
};

// One half's neighbour. Its segment ends before the rings, which the test has.
struct Neighbour {
  static shm::Segment segment() {
    const shm::SegmentLayout layout(2);
    return {layout, base::Mapping(base::make_shared_memory(layout.area()).get(), layout.area(),
                                  base::Mapping::Access::write)};
  }
  shm::SegmentPair own{};
  shm::ShmNeighbourState state{1,  1,  segment(), own, 0, shm::Bell(shm::Bell::Kind::event),
                               {}, {}, false};
};

void require(bool kept, const char* violation) {
  if (!kept) throw std::string(violation);
}

// Runs the halves of all worlds at the same place, one world at a time, and is the receiver's sink.
template <std::size_t ring_bytes>
class Explorer final : transports::Sink {
  using World = ring_proof::World<ring_bytes>;
  using Words = ring_proof::Words<ring_bytes>;
  using Stores = std::vector<std::pair<std::size_t, std::uint64_t>>;

 public:
  Explorer(const std::vector<Kind>& kinds, Break broken) : kinds_(kinds), broken_(broken) {}

  // Breadth first, so that the way to a violation is short. It stops at the first one.
  Result run() {
    enter({{receiver_.state, used_lane, bytes_of(written_), ring_bytes, no_windows_},
           {sender_.state, used_lane, bytes_of(read_), ring_bytes, imports_}},
          "");
    try {
      for (; !worlds_.empty(); worlds_.pop_front()) expand(worlds_.front());
    } catch (const std::string& violation) {
      for (std::size_t i = worlds_.front().step; i != 0; i = steps_[i].first)
        way_ = steps_[i].second + ", " + way_;
      result_.violation = violation + " after: " + way_;
    }
    result_.states = visited_.size();
    return result_;
  }

 private:
  static std::byte* bytes_of(Words& words) { return reinterpret_cast<std::byte*>(words.data()); }
  static std::size_t place_of(std::uint64_t byte) {
    return shm::in_ring(byte, ring_bytes) / sizeof(std::uint64_t);
  }

  void expand(const World& world) {
    for (std::size_t i = 0; i < kinds_.size() && world.under_way < most_under_way; ++i)
      step(world, "send " + std::to_string(i), [&](World& next) { send(next, kinds_[i]); });
    if (world.invisible() > 0) step(world, "land", [&](World& next) { land(next, false); });
    if (world.invisible() > 1) step(world, "land early", [&](World& next) { land(next, true); });
    read_ = world.ring;
    step(world, "poll", [&](World& next) { poll(next); });
  }
  template <class Change>
  void step(World world, std::string name, const Change& change) {
    way_ = std::move(name);
    change(world);
    enter(world, way_);
  }
  void enter(const World& world, const std::string& name) {
    if (!visited_.insert(hash_of(world)).second) return;
    steps_.emplace_back(worlds_.empty() ? 0 : worlds_.front().step, name);
    worlds_.push_back(world);
    worlds_.back().step = steps_.size() - 1;
  }

  void send(World& world, const Kind& kind) {
    Frame frame{world.last_header, kind.payload, world.produced};
    for (std::size_t i = 0; i < frame.header.size(); ++i)
      if ((kind.mask >> i & 1) != 0) frame.header[i] = frame.word(i);
    frame.end = frame.begin + shm::header_bytes(kind.mask) + shm::whole_units(kind.payload);
    std::vector<std::uint64_t> payload(kind.payload / sizeof(std::uint64_t));
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = frame.payload_word(i);

    const std::uint64_t told = broken_ == Break::told_early ? world.produced : world.told;
    const std::size_t needed = shm::header_bytes(shm::every_word) + shm::whole_units(kind.payload);
    if (world.produced + needed + shm::ring_unit > world.known + ring_bytes) world.known = told;
    receiver_.state.theirs.pair(0).consumed[lane_index] = told;
    written_.fill(not_stored);
    const transports::Send answer = world.sender.send(
        std::bit_cast<transports::HeaderBytes>(frame.header), std::as_bytes(std::span(payload)));
    require(!world.sender.corrupt(), "the sender finds a wrong count");
    if (answer == transports::Send::full) {
      ++result_.refused;
      require(world.under_way != 0, "the sender waits for ever");
      require(std::ranges::count(written_, not_stored) == std::ssize(written_),
              "the sender stores a part of a frame that it refuses");
      return;
    }
    std::uint64_t end = frame.end;  // of what it has cleared
    while (end < frame.begin + ring_bytes && written_[place_of(end)] == 0) end += shm::ring_unit;
    if (end != frame.end) {
      world.cleared = end;
      if (broken_ == Break::word_not_cleared) written_[place_of(frame.end)] = not_stored;
      if (broken_ == Break::one_word_too_far && end == world.known + ring_bytes &&
          written_[place_of(end)] == not_stored)
        written_[place_of(end)] = 0;
    }
    world.stores[world.invisible()] = written_;
    world.frames[world.under_way++] = frame;
    world.last_header = frame.header;
    world.produced = frame.end;
    result_.produced = std::max(result_.produced, world.produced);
  }

  void land(World& world, bool early) {
    const auto [stored, next] = world.stores;
    const std::size_t first = place_of(world.frames[world.landed].begin);
    Stores order, filled;
    for (std::size_t i = 0; i < stored.size(); ++i)
      if (stored[i] != not_stored && i != first)
        (stored[i] == 0 ? order : filled).emplace_back(i, stored[i]);
    order.insert(order.end(), filled.begin(), filled.end());
    // Two stores to one place land in the order of the program.
    for (std::size_t i = 0; early && i < next.size(); ++i)
      if (next[i] != not_stored && stored[i] == not_stored &&
          i != place_of(world.frames[world.landed + 1].begin))
        order.emplace_back(i, next[i]);
    // A receiver that has not taken the frames before goes on as one that has.
    for (int i = 0; i < 2 && world.landed == 0; ++i, std::ranges::reverse(order))
      land_slowly(world, {first, stored[first]}, order);
    for (const auto& [place, word] : order) world.ring[place] = word;
    world.ring[first] = stored[first];
    ++world.landed;
    world.stores[0] = next;
  }
  void land_slowly(World world, Stores::value_type first, const Stores& order) {
    read_ = world.ring;
    if (broken_ == Break::first_word_early) read_[first.first] = first.second;
    for (const auto& [place, word] : order) {
      read_[place] = word;
      poll(world);
    }
    read_[first.first] = first.second;
    ++world.landed;
    poll(world);
  }

  // Takes what has landed, and nothing else.
  void poll(World& world) {
    world_ = &world;
    received_ = words_come_ = 0;
    sender_.own.consumed[lane_index] = world.told;
    world.receiver.pump(link_);
    world.told = sender_.own.consumed[lane_index];
    require(!world.receiver.corrupt(), "the receiver finds an impossible header");
    require(received_ == world.landed, "the receiver does not take what has landed");
    std::shift_left(world.frames.begin(), world.frames.end(),
                    static_cast<std::ptrdiff_t>(received_));
    world.under_way -= received_;
    world.landed = 0;
    require(world.told <= world.consumed(), "the receiver tells a wrong count");
  }
  const Frame& frame() const { return world_->frames[received_]; }

  std::optional<transports::Receive> expected(transports::Link&, std::size_t) override {
    return transports::Receive{nullptr, frame().payload};
  }
  transports::Header arrived(transports::Link&, const transports::HeaderBytes& header) override {
    require(received_ < world_->landed, "the receiver takes a frame that has not landed");
    require(std::bit_cast<Header>(header) == frame().header, "the receiver takes a wrong header");
    return transports::Header::accept;
  }
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    std::uint64_t word;
    for (std::size_t at = 0; at < view.size(); at += sizeof word) {
      std::memcpy(&word, view.data() + at, sizeof word);
      require(word == frame().payload_word(words_come_++), "the receiver takes a wrong payload");
    }
    return view.size();
  }
  void received(transports::Link&) override {
    require(words_come_ * sizeof(std::uint64_t) == frame().payload, "a payload is incomplete");
    words_come_ = 0;
    ++received_;
  }
  void sent(transports::Link&) override {}
  void broken(transports::Link&, std::error_code, std::string_view, bool) override {}

  static std::uint64_t hash_of(const World& world) {
    std::uint64_t hash = world.produced % ring_bytes;
    const auto add = [&](std::uint64_t value) { hash = base::mix_hash(hash, value); };
    for (const std::uint64_t at : {world.consumed(), world.told, world.known})
      add(world.produced - at);
    add(std::max(world.cleared, world.produced) - world.produced);
    add(world.landed);
    for (std::size_t i = 0; i < world.under_way; ++i) {
      add(world.frames[i].end - world.frames[i].begin);
      add(shm::whole_units(world.frames[i].payload));
    }
    const auto add_zeros = [&](const Words& words) {
      std::uint64_t zeros = 0;
      for (std::size_t at = 0; at < ring_bytes; at += shm::ring_unit)
        zeros = zeros << 1 | (words[place_of(at)] == 0);
      add(zeros);
    };
    add_zeros(world.ring);
    for (std::size_t i = 0; i < world.invisible(); ++i) add_zeros(world.stores[i]);
    return hash;
  }

  const std::vector<Kind>& kinds_;
  const Break broken_;
  Words written_{}, read_{};  // the ring, where the sender and the receiver of a world run
  NoWindows no_windows_;
  Neighbour sender_, receiver_;  // as the other one sees it
  shm::ShmImports imports_{sender_.state};
  IdleLink link_{1, used_lane, this};
  World* world_ = nullptr;  // its receiver polls
  std::size_t received_ = 0, words_come_ = 0;
  std::unordered_set<std::uint64_t> visited_;
  std::deque<World> worlds_;  // the steps from here have not been tried yet
  std::vector<std::pair<std::size_t, std::string>> steps_;  // the one before, and the name
  std::string way_;
  Result result_;
};

constexpr std::uint64_t no_word = 0, one_word = 0b0010'0000, three_words = 0b1000'1001;
const std::vector<Kind> all_kinds{{no_word, 0},         {no_word, 40},         {one_word, 0},
                                  {one_word, 200},      {three_words, 8},      {three_words, 40},
                                  {shm::every_word, 0}, {shm::every_word, 200}};

template <std::size_t ring_bytes>
Result prove(const std::vector<Kind>& kinds) {
  const Result result = Explorer<ring_bytes>(kinds, Break::nothing).run();
  CHECK(result.violation == "");
  CHECK(result.produced > 2 * ring_bytes);
  std::printf("shm ring protocol, %zu bytes: %zu states\n", ring_bytes, result.states);
  return result;
}

}  // namespace

// Hardly two of the largest frame fit in.
TEST_CASE("a small ring in shared memory keeps its protocol in every interleaving") {
  const Result result = prove<512>(all_kinds);
  CHECK(result.states > 20'000);
  CHECK(result.refused > 1000);
}

// The sender clears less than the whole ring ahead.
TEST_CASE("a ring in shared memory that is cleared in parts keeps its protocol") {
  CHECK(prove<2048>({{one_word, 40}, {shm::every_word, 0}}).states > 10'000);
}

TEST_CASE("the proof of the ring in shared memory finds rules that are broken") {
  const char* const not_landed = "the receiver takes a frame that has not landed";
  const char* const not_taken = "the receiver does not take what has landed";
  for (const auto& [broken, finding] : {std::pair{Break::word_not_cleared, not_landed},
                                        {Break::one_word_too_far, not_taken},
                                        {Break::first_word_early, not_landed},
                                        {Break::told_early, not_taken}}) {
    const Result result = Explorer<512>(all_kinds, broken).run();
    INFO("broken rule " << static_cast<int>(broken) << ": " << result.violation);
    CHECK(result.violation.find(finding) == 0);
  }
}

}  // namespace rondo::testing::ring_proof
