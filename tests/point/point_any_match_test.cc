// SPDX-License-Identifier: Apache-2.0
//
// Which message a receive from any rank takes, against a model; and what becomes of it when ranks
// are lost or leave. The test plays the links and the other ranks.
#include <algorithm>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "catch.h"
#include "point/played_peers.h"
#include "support/draw.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

using point::PointKind;

// The rule, in the plainest way: one list of receives in the order of their calls, one of messages
// in the order in which they came.
class MatchModel {
 public:
  struct Receive {
    std::size_t number = 0;
    int peer = 0;  // or any_rank
    std::uint32_t tag = 0;
  };
  struct Message {
    std::uint64_t number = 0;
    int from = 0;
    std::uint32_t tag = 0;
  };

  std::vector<Message> taken;  // by receive; number 0: none yet

  void call(int peer, std::uint32_t tag) {
    const Receive receive{taken.size(), peer, tag};
    taken.emplace_back();
    const auto fits = [&](const Message& message) { return fit(receive, message); };
    const auto found = std::ranges::find_if(messages_, fits);
    if (found == messages_.end()) return receives_.push_back(receive);
    taken[receive.number] = *found;
    messages_.erase(found);
  }
  void come(const Message& message) {
    const auto fits = [&](const Receive& receive) { return fit(receive, message); };
    const auto found = std::ranges::find_if(receives_, fits);
    if (found == receives_.end()) return messages_.push_back(message);
    taken[found->number] = message;
    receives_.erase(found);
  }

 private:
  static bool fit(const Receive& receive, const Message& message) {
    return receive.tag == message.tag &&
           (receive.peer == point::any_rank || receive.peer == message.from);
  }
  std::vector<Receive> receives_;
  std::vector<Message> messages_;
};

// Plays one seed: receives are called and messages come in a random order, at once or announced,
// whole or with the payload later, from three ranks and from this one.
class MatchPlay {
 public:
  explicit MatchPlay(std::uint64_t seed) : draw_(seed), bytes_(sizes[draw_(3)]) {
    tags_ = 1 + static_cast<std::uint32_t>(draw_(3));
    for (std::size_t i = 0; i < calls; ++i) payloads_.emplace_back(bytes_);
  }

  void run() {
    for (std::size_t step = 0; step < 4 * calls; ++step) {
      if (draw_(2) == 0)
        call();
      else
        come();
      answer_grants();
    }
    for (int rank = 1; rank < ranks; ++rank) finish(rank);
    answer_grants();
    for (std::size_t i = 0; i < receives_.size(); ++i) check(i);
    peers_.point.clear();
  }

 private:
  static constexpr int ranks = 4;
  static constexpr std::size_t calls = 20;
  static constexpr std::size_t sizes[] = {8, 100, 3000};

  void call() {
    if (receives_.size() == calls) return;
    Payload& memory = payloads_[receives_.size()];
    const std::uint32_t tag = tag_of();
    if (draw_(2) == 0) {
      model_.call(point::any_rank, tag);
      receives_.push_back(peers_.receive_any(memory, tag));
    } else {
      const int peer = static_cast<int>(draw_(ranks));
      model_.call(peer, tag);
      receives_.push_back(peers_.receive(memory, tag, peer));
    }
  }

  void come() {
    if (messages_ == calls) return;
    const int from = static_cast<int>(draw_(ranks));
    const std::uint32_t tag = tag_of();
    if (from != 0) finish(from);
    const std::uint64_t number = ++messages_;
    model_.come({number, from, tag});
    contents_.push_back(content(number));
    if (from == 0) {
      sends_.push_back(peers_.send(contents_.back(), tag, 0));
      return;
    }
    point::PointFrame frame;
    frame.kind = draw_(2) == 0 ? PointKind::message : PointKind::announce;
    frame.key = {tag, 0};
    frame.message = ++sent_[from];
    frame.count = bytes_;
    numbers_[from].push_back(number);
    if (frame.kind == PointKind::message && bytes_ <= point::inline_bytes)
      std::ranges::copy(contents_.back(), frame.content.begin());
    peers_.arrive(from, frame);
    if (frame.kind == PointKind::message && bytes_ > point::inline_bytes)
      coming_[from] = number;
    else
      peers_.complete(from);
    if (draw_(2) == 0) finish(from);
  }

  // The payload whose header has come.
  void finish(int from) {
    if (const std::uint64_t number = std::exchange(coming_[from], 0))
      peers_.complete(from, contents_[number - 1]);
  }

  void answer_grants() {
    peers_.point.advance();
    for (int from = 1; from < ranks; ++from) {
      auto& grants = peers_.links[static_cast<std::size_t>(from)].grants;
      while (coming_[from] == 0 && !grants.empty()) {
        const std::uint64_t message = grants.front().message;
        grants.erase(grants.begin());
        peers_.arrive(from, PointKind::piece, message, bytes_);
        peers_.complete(from, contents_[numbers_[from][message - 1] - 1]);
        peers_.point.advance();
      }
    }
  }

  void check(std::size_t receive) const {
    const MatchModel::Message& message = model_.taken[receive];
    const point::MessageOperation& operation = *receives_[receive];
    INFO("receive " << receive);
    REQUIRE(PlayedPeers::done(operation) == (message.number != 0));
    if (message.number == 0) return;
    CHECK(operation.source() == message.from);
    CHECK(payloads_[receive] == contents_[message.number - 1]);
  }

  std::uint32_t tag_of() {
    return 7 + 16 * static_cast<std::uint32_t>(draw_(tags_));
  }  // one bucket
  Payload content(std::uint64_t number) const {
    Payload bytes(bytes_, std::byte{0x55});
    base::store_little(bytes.data(), number);
    return bytes;
  }

  Draw draw_;
  std::size_t bytes_;
  std::uint32_t tags_ = 1;
  MatchModel model_;
  PlayedPeers peers_{ranks};
  std::vector<Payload> payloads_;
  std::deque<Payload> contents_;  // by number of the message, from 1
  std::vector<PlayedPeers::Started> receives_, sends_;
  std::size_t messages_ = 0;
  std::uint64_t sent_[ranks] = {}, coming_[ranks] = {};
  std::vector<std::uint64_t> numbers_[ranks];  // of the messages of each rank
};

// Later than what the clock says when a receive is called.
const base::TimePoint some_time = base::Clock::now() + std::chrono::hours{1};

}  // namespace

TEST_CASE("receives from any rank and from one match as the model does") {
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    if (!drawn(seed)) continue;
    INFO("seed " << seed);
    MatchPlay(seed).run();
  }
}

TEST_CASE(
    "a receive from any rank awaits a header from every other rank until it has its message") {
  PlayedPeers peers(3);
  Payload memory(100), other(100);
  CHECK_FALSE(peers.awaits(2));
  const auto first = peers.receive_any(memory), second = peers.receive_any(other);
  CHECK(peers.awaited(*first) == std::vector<int>{1, 2});
  CHECK(peers.awaits(1));
  peers.arrive(2, PointKind::message, 1, memory.size());
  CHECK_FALSE(peers.awaits(2));  // its payload comes first
  CHECK(peers.awaits(1));
  CHECK(peers.awaited(*first) == std::vector<int>{2});
  CHECK(peers.point.late_text(*first) ==
        "not done within 2 s on rank 0: rank 2 has sent the header of send with tag 7, and not yet "
        "all of its 100 B");
  peers.complete(2);
  CHECK(first->source() == 2);
  CHECK(peers.awaits(2));
  peers.arrive(1, PointKind::message, 1, memory.size());
  peers.complete(1);
  CHECK(second->source() == 1);
  CHECK_FALSE(peers.awaits(1));
  CHECK_FALSE(peers.awaits(2));
}

TEST_CASE("a receive or send that names its peer awaits a header from that rank alone") {
  PlayedPeers peers(3);
  Payload memory(8);
  SECTION("a receive") {
    const auto receive = peers.receive(memory, 7, 2);
    CHECK(peers.awaits(2));
    CHECK_FALSE(peers.awaits(1));
    peers.arrive(2, PointKind::message, 1, memory.size());
    peers.complete(2);
    CHECK(PlayedPeers::done(*receive));
  }
  SECTION("a send") {
    const auto send = peers.send(memory, 7, 2);
    CHECK(peers.awaits(2));
    CHECK_FALSE(peers.awaits(1));
    peers.point.advance();
    CHECK(PlayedPeers::done(*send));
  }
  CHECK_FALSE(peers.awaits(2));
}

TEST_CASE("a receive from any rank that nobody serves says what has come and who has left") {
  PlayedPeers peers(5);
  Payload memory(100);
  const auto receive = peers.receive_any(memory);
  CHECK(peers.point.late_text(*receive) ==
        "not done within 2 s on rank 0: no rank has called send with tag 7 to rank 0");
  for (const std::uint64_t number : {1, 2})
    peers.arrive(2, PointKind::announce, number, 10, 0, static_cast<std::uint32_t>(number + 2));
  peers.complete(2);
  peers.arrive(3, PointKind::announce, 1, 10, 0, 23);  // another tag in the same bucket
  peers.complete(3);
  peers.point.peer_left(4, some_time);
  CHECK(peers.point.late_text(*receive) ==
        "not done within 2 s on rank 0: no rank has called send with tag 7 to rank 0; rank 2 has "
        "sent messages with tags 3, 4 that are not received here; rank 3 has sent messages with "
        "tag 23 that are not received here; rank 4 has left");
  CHECK(peers.awaited(*receive) == std::vector<int>{1, 2, 3});
  peers.point.clear();
}

TEST_CASE("of many ranks with other messages eight are named, and all that have left") {
  constexpr int last = 12;
  PlayedPeers peers(last + 1);
  Payload memory(100);
  const auto receive = peers.receive_any(memory);
  for (int rank = 3; rank <= last; ++rank) {
    peers.arrive(rank, PointKind::announce, 1, 10, 0, 9);
    peers.complete(rank);
  }
  for (const int rank : {last, 1, 2}) peers.point.peer_left(rank, some_time);
  const std::string text = peers.point.late_text(*receive);
  INFO(text);
  for (int rank = 1; rank <= last; ++rank)
    CHECK((text.find("; rank " + std::to_string(rank) + " has sent messages with tag 9 ") !=
           std::string::npos) == (rank >= 3 && rank <= 10));
  CHECK(text.ends_with("; ranks 1, 2, 12 have left"));
  peers.point.clear();
  CHECK_FALSE(peers.awaits(1));
}

TEST_CASE("ranks that leave end nothing where no receive is from any rank") {
  PlayedPeers peers(2);
  peers.lose(1, true, some_time);
  peers.point.peer_left(1, some_time);
  peers.point.check(some_time + 10 * operation::Losses::unseen_time);
  CHECK_FALSE(peers.failure);
}

TEST_CASE("a rank that leaves in order does not end a receive from any rank before the last one") {
  PlayedPeers peers(4);
  peers.may_fail = true;
  Payload memory(8);
  const auto receive = peers.receive_any(memory);
  // The link of rank 1 is reset before the message that it has left, as may be when it leaves.
  peers.lose(1, false, some_time);
  CHECK_FALSE(peers.failure);
  peers.point.peer_left(1, some_time + operation::Losses::patient_time / 2);
  peers.lose(2, true, some_time);
  peers.point.peer_left(2, some_time);
  peers.point.check(some_time + 2 * operation::Losses::patient_time);
  CHECK_FALSE(peers.failure);
  SECTION("another rank can still send") {
    peers.arrive(3, PointKind::message, 1, memory.size());
    peers.complete(3);
    CHECK(receive->source() == 3);
  }
  SECTION("the last one leaves, too") {
    const base::TimePoint end = some_time + 3 * operation::Losses::patient_time;
    peers.point.peer_left(3, end);
    CHECK_FALSE(peers.failure);  // what it has sent may still come
    CHECK(peers.point.next_check() == end + operation::Losses::unseen_time);
    peers.point.check(end + operation::Losses::unseen_time);
    REQUIRE(peers.failure);
    CHECK(peers.failure->code == Errc::peer_left);
    CHECK(peers.failure->cause ==
          "ranks 1-3 have left: they destroyed their communicators, and no other rank can send to "
          "rank 0");
    peers.point.clear();
  }
}

TEST_CASE("a receive from any rank reads the link of a rank that has left to its end") {
  PlayedPeers peers(2);
  peers.may_fail = true;
  Payload memory(8);
  peers.arrive(1, PointKind::message, 1, memory.size(), 0, 9);  // the link has been seen
  peers.complete(1);
  const auto receive = peers.receive_any(memory);
  peers.point.peer_left(1, some_time);
  const base::TimePoint later = some_time + 10 * operation::Losses::unseen_time;
  peers.point.check(later);
  REQUIRE_FALSE(peers.failure);
  SECTION("a message is still there") {
    peers.arrive(1, PointKind::message, 2, memory.size());
    peers.complete(1);
    CHECK(receive->source() == 1);
  }
  SECTION("nothing is there") {
    peers.lose(1, true, later);
    CHECK_FALSE(peers.failure);
    peers.point.check(later + operation::Losses::leaving_timeout);
    REQUIRE(peers.failure);
    CHECK(peers.failure->code == Errc::peer_left);
    peers.point.clear();
  }
}

TEST_CASE(
    "a receive from any rank that is called after all others have left does not wait for ever") {
  PlayedPeers peers(2);
  peers.may_fail = true;
  Payload memory(8);
  peers.lose(1, true, some_time);
  peers.point.peer_left(1, some_time);
  CHECK_FALSE(peers.failure);
  const auto receive = peers.receive_any(memory);
  CHECK(peers.point.next_check() == some_time + operation::Losses::leaving_timeout);
  peers.point.check(some_time + operation::Losses::leaving_timeout);
  REQUIRE(peers.failure);
  CHECK(peers.failure->code == Errc::peer_left);
  CHECK(peers.failure->cause ==
        "rank 1 has left: it destroyed its communicator, and no other rank can send to rank 0");
  peers.point.clear();
}

TEST_CASE("a receive from any rank whose message waits at a lost rank ends at once") {
  PlayedPeers peers(3);
  peers.may_fail = true;
  Payload memory(8);
  peers.arrive(1, PointKind::announce, 1, memory.size());
  peers.complete(1);
  peers.lose(1, false, some_time);
  const auto receive = peers.receive_any(memory);
  REQUIRE(peers.failure);
  CHECK(peers.failure->code == Errc::peer_lost);
  peers.point.clear();
}

TEST_CASE("a rank that is lost and has not left ends a receive from any rank") {
  const bool in_order = GENERATE(false, true);
  PlayedPeers peers(3);
  peers.may_fail = true;
  Payload memory(8);
  const auto receive = peers.receive_any(memory);
  peers.lose(2, in_order, some_time);
  CHECK_FALSE(peers.failure);
  CHECK(peers.point.next_check() == some_time + operation::Losses::patient_time);
  peers.point.check(some_time + operation::Losses::patient_time);
  REQUIRE(peers.failure);
  CHECK(peers.failure->code == Errc::peer_lost);
  CHECK(peers.failure->cause == "rank 0 lost rank 2 at the played rank: connection reset by peer");
  CHECK(peers.failure->lost == 2);
  peers.point.clear();
}

}  // namespace rondo::testing
