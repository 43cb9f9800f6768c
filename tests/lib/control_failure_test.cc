// SPDX-License-Identifier: Apache-2.0
//
// The control plane when ranks die, hang or send wrong messages.
#include <poll.h>

#include "catch.h"
#include "lib/control/late_ranks.h"
#include "lib/wire/messages.h"
#include "parties.h"

using namespace rondo;
using namespace rondo::tests;
using Catch::Contains;

TEST_CASE("a rank that dies is noticed by rank 0 and told to all", "[control]") {
  auto ranks = parties(4);
  ranks[3].control.reset();
  const operation::Failure failure = ranks[0].wait_for_failure();
  CHECK(failure.code == Errc::peer_lost);
  CHECK_THAT(failure.cause,
             Catch::StartsWith("rank 0 lost rank 3 at 127.0.0.1:") && Contains(": connection "));
  for (std::size_t rank : {1u, 2u}) CHECK(ranks[rank].wait_for_failure().cause == failure.cause);
  for (std::size_t rank : {0u, 1u, 2u}) check_blame(ranks[rank].wait_for_failure(), {3}, 0);
  const control::Heard heard = ranks[0].listener->heard();
  REQUIRE(heard.size() == 1);
  CHECK(heard[0].first == 3);
  CHECK_THAT(heard[0].second, Catch::StartsWith("connection ended: connection "));
}

TEST_CASE("when rank 0 dies each rank says so", "[control]") {
  auto ranks = parties(3);
  ranks[0].control.reset();
  for (std::size_t rank : {1u, 2u}) {
    const operation::Failure failure = ranks[rank].wait_for_failure();
    CHECK(failure.code == Errc::peer_lost);
    CHECK_THAT(failure.cause, Catch::StartsWith("lost rank 0 at 127.0.0.1:") &&
                                  Catch::EndsWith(": its control connection has ended"));
    check_blame(failure, {0}, static_cast<int>(rank));
  }
}

TEST_CASE("a rank's own cause counts more than the death of rank 0 just before", "[control]") {
  // The loss is told after 150 ms; a busy machine may take longer to report the cause.
  const auto attempt = [] {
    auto ranks = parties(2);
    ranks[0].control.reset();
    // Returns when rank 1 has lost rank 0.
    ranks[1].control->await_constants(base::after(base::Clock::now(), milliseconds{20'000}));
    ranks[1].control->report({Errc::aborted, "rank 1 called abort: the loss is NaN"});
    return ranks[1].wait_for_failure();
  };
  operation::Failure failure = attempt();
  for (int again = 0; again < 10 && failure.code != Errc::aborted; ++again) failure = attempt();
  CHECK(failure.code == Errc::aborted);
  CHECK_THAT(failure.cause,
             Catch::StartsWith("rank 1 called abort: the loss is NaN; lost rank 0 at 127.0.0.1:"));
}

TEST_CASE("a rank that is missed after it has left in order has left, whoever reports it lost",
          "[control]") {
  auto ranks = parties(3);
  const std::uint64_t finished[lane_count] = {7, 2};
  ranks[2].control->leave(finished, base::after(base::Clock::now(), milliseconds{20'000}));
  ranks[2].control.reset();
  const int reporter = GENERATE(0, 1);
  ranks[static_cast<std::size_t>(reporter)].control->report(
      {Errc::peer_lost, "rank 1 lost rank 2 at 127.0.0.1:9: connection reset by peer", 2});
  for (const std::size_t rank : {0u, 1u}) {
    const operation::Failure failure = ranks[rank].wait_for_failure();
    CHECK(failure.code == Errc::peer_left);
    CHECK(failure.cause ==
          "rank 2 has left: it destroyed its communicator after operation #7 and urgent operation "
          "#2");
    check_blame(failure, {2}, reporter);
  }
  CHECK(ranks[0].listener->heard().back() == std::pair<int, std::string>(2, "has left"));
}

TEST_CASE("connect() fails on every rank where it has failed on one, though all are ready at last",
          "[control]") {
  auto ranks = parties(3);
  ranks[2].control->report({Errc::system, "rank 2 could not connect:\nno memory"});
  for (int round = 0; round < 2; ++round)
    for (const Party& party : ranks) {
      CHECK(party.wait_for_failure().cause == "rank 2 could not connect: no memory");
      const auto failure =
          party.control->await_ready(base::after(base::Clock::now(), milliseconds{20'000}));
      REQUIRE(failure);
      CHECK(failure->cause == "rank 2 could not connect: no memory");
    }
}

TEST_CASE("a cause of several lines has one on every rank", "[control]") {
  auto ranks = parties(2);
  ranks[static_cast<std::size_t>(GENERATE(0, 1))].control->report(
      {Errc::aborted, "here\n" + std::string(5000, 'x')});
  const std::string first = ranks[0].wait_for_failure().cause;
  CHECK(first.starts_with("here x"));
  CHECK(ranks[1].wait_for_failure().cause == first);
}

TEST_CASE("rank 0 that comes back takes the cause on which the others have agreed without it",
          "[control]") {
  auto half = without_control_of(1, 3);
  std::vector<std::byte> both =
      wire::encode(wire::ReportMessage{{Errc::peer_lost, "rank 1 lost rank 2", 2}});
  const auto alone = wire::encode(
      wire::AloneMessage{{Errc::deadline_exceeded, "rank 0 does not answer", -1, {0}}});
  both.insert(both.end(), alone.begin(), alone.end());
  half.streams.front().send(both);
  for (const auto& [rank, party] : half.ranks) {
    CHECK(party.wait_for_failure().cause == "rank 0 does not answer");
    check_blame(party.wait_for_failure(), {0}, 1);
  }
  CHECK(half.ranks[0].listener->heard() == control::Heard{{1, "rank 0 does not answer"}});
}

TEST_CASE("a rank that has not called the operation is named with its last one", "[control]") {
  auto ranks = parties(4);
  for (std::size_t rank = 0; rank < 4; ++rank)
    ranks[rank].listener->set_status(standing(41, 40, {2}));
  ranks[2].listener->set_status(standing(40, 40));
  const int reporter = GENERATE(0, 1, 2);
  ranks[static_cast<std::size_t>(reporter == 2 ? 3 : reporter)].control->report_deadline(
      Priority::bulk, 41, milliseconds{5000}, "own view");
  for (const Party& party : ranks) {
    const operation::Failure failure = party.wait_for_failure();
    CHECK(failure.code == Errc::deadline_exceeded);
    CHECK(failure.cause ==
          "rank 2 has not called all_reduce #41 within 5 s; the last operation finished by it is "
          "all_reduce "
          "#40 (64 MiB f32 sum)");
    check_blame(failure, {2}, reporter == 2 ? 3 : reporter);
  }
  const std::string under_way = "all_reduce #41 (64 MiB f32 sum) under way, waits for rank 2; ";
  CHECK(ranks[0].listener->heard() == control::Heard{{1, under_way + "finished #40"},
                                                     {2, "finished #40"},
                                                     {3, under_way + "finished #40"}});
  CHECK(ranks[1].listener->heard().empty());
}

TEST_CASE("a stall in one lane shows that the ranks disagree in the other", "[control]") {
  auto ranks = parties(3);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    operation::RankStatus status = standing(5, 4);
    operation::LaneStatus& other = status.lanes[1];
    other.started = 9;
    other.finished = 8;
    other.current = rank == 2 ? "barrier #9" : "broadcast #9 (8 B f32 from 0)";
    ranks[rank].listener->set_status(status);
  }
  ranks[1].control->report_stall(Priority{}, 5);
  ranks[0].control->report_stall(Priority{}, 6);
  for (const Party& party : ranks) {
    const operation::Failure failure = party.wait_for_failure();
    CHECK(failure.code == Errc::mismatch);
    CHECK(failure.cause ==
          "rank 2 called barrier #9 where rank 0 called broadcast #9 (8 B f32 from 0)");
    CHECK(failure.culprits == std::vector<int>{2});
  }
}

// Rank 2 does not answer, so the first inquiry takes a second. A deadline that passes meanwhile is
// asked about afterwards.
TEST_CASE("a deadline that passes during an inquiry about something else is not lost",
          "[control]") {
  auto half = without_control_of(2, 3);
  for (auto& [rank, party] : half.ranks) party.listener->set_status(standing(41, 40, {2}));
  half.ranks[0].control->report_stall(Priority{}, 40);
  half.ranks[0].control->report_deadline(Priority{}, 41, milliseconds{5000}, "own view");
  for (const auto& [rank, party] : half.ranks)
    CHECK_THAT(party.wait_for_failure().cause, Catch::StartsWith("rank 2 does not answer"));
}

TEST_CASE(
    "a deadline that passes during an inquiry about a stall of the same operation is not lost",
    "[control]") {
  auto half = without_control_of(2, 3);
  for (auto& [rank, party] : half.ranks) party.listener->set_status(standing(41, 40, {2}));
  half.ranks[0].control->report_stall(Priority{}, 41);
  half.ranks[0].control->report_deadline(Priority{}, 41, milliseconds{5000}, "own view");
  for (const auto& [rank, party] : half.ranks)
    CHECK_THAT(party.wait_for_failure().cause, Catch::StartsWith("rank 2 does not answer"));
}

TEST_CASE("an answer to a question that rank 0 has not asked answers none", "[control]") {
  auto half = without_control_of(2, 3);
  for (auto& [rank, party] : half.ranks) party.listener->set_status(standing(41, 40, {2}));
  std::vector<std::byte> both = wire::encode(wire::StatusMessage{UINT64_MAX, standing(41, 40)});
  const auto deadline =
      wire::encode(wire::DeadlineMessage{Priority::bulk, 41, 5'000'000'000u, "its view"});
  both.insert(both.end(), deadline.begin(), deadline.end());
  half.streams.front().send(both);
  for (const auto& [rank, party] : half.ranks)
    CHECK_THAT(party.wait_for_failure().cause, Catch::StartsWith("rank 2 does not answer"));
}

TEST_CASE("a rank that leaves twice has left as it said first", "[control]") {
  auto half = without_control_of(1, 3);
  const auto last = wire::encode(wire::ReportMessage{{Errc::aborted, "rank 1 has called abort"}});
  std::vector<std::byte> all;
  for (const std::uint64_t finished : {7u, 8u, 9u}) {
    const auto leaving = wire::encode(wire::LeavingMessage{{finished, finished}});
    all.insert(all.end(), leaving.begin(), leaving.end());
  }
  all.insert(all.end(), last.begin(), last.end());
  half.streams.front().send(all);
  for (const auto& [rank, party] : half.ranks) {
    party.wait_for_failure();
    CHECK(party.listener->left() == std::map<int, std::uint64_t>{{1, 7}});
  }
}

TEST_CASE("a rank that does not answer is named", "[control]") {
  auto half = without_control_of(2, 4);
  for (auto& [rank, party] : half.ranks) party.listener->set_status(standing(41, 40, {2}));
  const base::TimePoint start = base::Clock::now();
  half.ranks[1].control->report_deadline(Priority::bulk, 41, milliseconds{5000}, "own view");
  for (const auto& [rank, party] : half.ranks) {
    const operation::Failure failure = party.wait_for_failure();
    CHECK(failure.code == Errc::deadline_exceeded);
    CHECK_THAT(
        failure.cause,
        Catch::StartsWith("rank 2 does not answer (stopped, unreachable, or behind a full link)") &&
            Contains("5 s"));
    check_blame(failure, {2}, 1);
  }
  CHECK(half.ranks[0].listener->heard().at(1) == std::pair<int, std::string>(2, "does not answer"));
  CHECK(seconds_since(start) >= 0.24);
  CHECK(seconds_since(start) < 5);
}

TEST_CASE("a real cause goes before the search for one", "[control]") {
  auto half = without_control_of(2, 3);
  half.ranks[1].control->report_deadline(Priority::bulk, 41, milliseconds{5000}, "own view");
  half.ranks[0].control->report({Errc::peer_lost, "rank 0 lost rank 2"});
  for (const auto& [rank, party] : half.ranks)
    CHECK(party.wait_for_failure().cause == "rank 0 lost rank 2");
}

TEST_CASE("when rank 0 hangs the others come to one conclusion within two seconds or so",
          "[control]") {
  auto half = without_control_of(0, 3);
  const base::TimePoint start = base::Clock::now();
  half.ranks[1].control->report(
      {Errc::peer_lost, "rank 1 lost rank 2 at 10.0.0.7:1: connection reset by peer", 2});
  half.ranks[2].control->report_deadline(Priority::urgent, 3, milliseconds{2000},
                                         "it waits for rank 0");
  for (const int rank : {1, 2}) {
    const operation::Failure failure = half.ranks[rank].wait_for_failure();
    CHECK(failure.code == Errc::deadline_exceeded);
    CHECK(failure.cause == "rank 0 does not answer (stopped, unreachable, or behind a full link)");
    check_blame(failure, {0}, rank);
  }
  CHECK(seconds_since(start) >= 1.99);
  CHECK(seconds_since(start) < 10);
}

TEST_CASE("what a rank knows first-hand is told although rank 0 hangs", "[control]") {
  auto half = without_control_of(0, 2);
  half.ranks[1].control->report(
      {Errc::mismatch, "rank 2 called barrier where rank 1 called broadcast", -1, {2}});
  check_blame(half.ranks[1].wait_for_failure(), {2}, 1);
  CHECK(half.ranks[1].wait_for_failure().cause ==
        "rank 2 called barrier where rank 1 called broadcast; rank 0 does not answer (stopped, "
        "unreachable, or behind a full link)");
}

TEST_CASE("a rank that has lost its link to rank 0 tells of it although rank 0 hangs",
          "[control]") {
  auto half = without_control_of(0, 2);
  half.ranks[1].control->report(
      {Errc::peer_lost, "rank 1 lost rank 0 at 10.0.0.7:1: connection reset by peer", 0});
  CHECK(half.ranks[1].wait_for_failure().cause ==
        "rank 1 lost rank 0 at 10.0.0.7:1: connection reset by peer; rank 0 does not answer "
        "(stopped, unreachable, or behind a full link)");
}

TEST_CASE("what a rank saw itself counts more than the loss of rank 0 before a verdict",
          "[control]") {
  const bool first_hand = GENERATE(true, false);
  auto half = without_control_of(0, 2);
  const Errc code = first_hand ? Errc::aborted : Errc::peer_lost;
  half.ranks[1].control->report({code, "own cause"});
  for (wire::Stream& hub = half.streams.front(); !hub.take_frame(); hub.read()) {
    pollfd readable{hub.descriptor(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 10'000) == 1);
  }
  half.streams.clear();
  CHECK_THAT(half.ranks[1].wait_for_failure().cause,
             Catch::StartsWith(first_hand ? "own cause; lost rank 0 at " : "lost rank 0 at "));
}

TEST_CASE("what breaks after rank 0 has gone breaks because of that", "[control]") {
  auto half = without_control_of(0, 2);
  half.streams.clear();
  const Party& party = half.ranks[1];
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  CHECK_FALSE(party.control->await_constants(until));  // until rank 0 has gone
  party.control->report({Errc::peer_lost, "rank 1 lost rank 2", 2});
  CHECK_THAT(party.wait_for_failure().cause, Catch::StartsWith("lost rank 0 at "));
}

TEST_CASE("a late verdict changes nothing any more", "[control]") {
  auto half = without_control_of(0, 2);
  half.ranks[1].control->report({Errc::aborted, "own"});
  const operation::Failure own = half.ranks[1].wait_for_failure();
  half.streams.front().send(wire::encode(wire::VerdictMessage{{Errc::mismatch, "late"}}));
  half.ranks[1].control.reset();
  CHECK(half.ranks[1].listener->failures() == 1);
  CHECK_THAT(own.cause, Catch::StartsWith("own"));
}

TEST_CASE("nonsense on a control connection ends it and names the sender", "[control]") {
  const auto nonsense =
      GENERATE(wire::make_frame(99, {}), wire::make_frame(16, std::vector<std::byte>(3)),
               wire::encode(wire::VerdictMessage{{Errc::aborted, "not his to say"}}),
               std::vector<std::byte>(64, std::byte{0xff}));
  auto half = without_control_of(1, 3);
  half.streams.front().send(nonsense);
  for (const auto& [rank, party] : half.ranks)
    CHECK_THAT(party.wait_for_failure().cause,
               Catch::StartsWith("rank 0 lost rank 1 at 127.0.0.1:") && Contains("it sent"));

  auto hub = without_control_of(0, 2);
  hub.streams.front().send(wire::encode(wire::ReportMessage{{Errc::aborted, "for rank 0 only"}}));
  CHECK_THAT(hub.ranks[1].wait_for_failure().cause,
             Contains("lost rank 0") && Contains("not for this rank"));
}

TEST_CASE("a rank that does not read is lost before its messages take much memory", "[control]") {
  auto half = without_control_of(1, 2);
  const Party& hub = half.ranks[0];
  for (int i = 0; i < 200'000 && hub.listener->failures() == 0; ++i) hub.control->publish({});
  const operation::Failure failure = hub.wait_for_failure();
  CHECK(failure.lost == 1);
  CHECK_THAT(failure.cause, Catch::Contains("it does not read"));
}

TEST_CASE("closing is bounded whatever the others do", "[control]") {
  const int raw = GENERATE(0, 1);
  auto half = without_control_of(raw, 3);
  // More than any socket takes, for a rank that never reads.
  if (raw == 1)
    for (int i = 0; i < 2000; ++i)
      half.ranks[2].control->report_deadline(Priority::bulk, 1, milliseconds{1},
                                             std::string(4096, 'x'));
  for (auto& [rank, party] : half.ranks) {
    const base::TimePoint start = base::Clock::now();
    party.control.reset();
    CHECK(seconds_since(start) < 1.5);
  }
}

TEST_CASE("leaving is bounded when rank 0 hangs", "[control]") {
  auto half = without_control_of(0, 2);
  const std::uint64_t finished[lane_count] = {1, 1};
  const base::TimePoint start = base::Clock::now();
  half.ranks[1].control->leave(finished, base::after(start, milliseconds{200}));
  CHECK(seconds_since(start) >= 0.2);
  CHECK(seconds_since(start) < 5);
}

TEST_CASE("the late ranks of a missed deadline are found in order", "[control]") {
  const wire::DeadlineMessage deadline{Priority::bulk, 41, 2'500'000'000u, "own view"};
  std::vector<control::Standing> ranks(
      4, {control::Standing::State::answered, true, standing(41, 40)});
  std::vector<int> culprits;
  const auto cause = [&] {
    const operation::Failure failure = control::find_late_ranks(deadline, 0, ranks);
    culprits = failure.culprits;
    return failure.cause;
  };

  CHECK(cause() == "own view");
  CHECK(culprits.empty());
  ranks[0].status = standing(41, 40, {3});
  ranks[1].status = standing(41, 40, {0});
  ranks[2].status = standing(41, 40, {1});
  CHECK(
      cause() ==
      "all_reduce #41 did not end within 2.5 s: rank 3 holds up the others and waits for no other "
      "rank: rank 0 waits for rank 3, rank 1 waits for rank 0, rank 2 waits for rank 1");
  CHECK(culprits == std::vector<int>{3});
  ranks[3].status = standing(41, 40, {2});
  CHECK_THAT(cause(), Catch::StartsWith(
                          "all_reduce #41 did not end within 2.5 s: rank 0 waits for rank 3") &&
                          Catch::EndsWith("rank 3 waits for rank 2"));
  ranks[1].status = ranks[2].status = standing(0, 0);
  CHECK(cause() ==
        "ranks 1, 2 have not called all_reduce #41 within 2.5 s; rank 1 has finished no operation "
        "yet; rank "
        "2 has finished no "
        "operation yet");
  CHECK(culprits == std::vector<int>{1, 2});
  ranks[3] = {control::Standing::State::left, true, standing(40, 40)};
  CHECK(cause() == "rank 3 left the communicator without finishing all_reduce #41");
  CHECK(culprits == std::vector<int>{3});
  ranks[2] = {control::Standing::State::silent, false, {}};
  CHECK(cause() ==
        "rank 2 does not answer (stopped, unreachable, or behind a full link); the deadline of "
        "2.5 s of all_reduce #41 has passed");
  CHECK(culprits == std::vector<int>{2});
  ranks[2] = {control::Standing::State::silent, true, standing(39, 38)};
  CHECK_THAT(cause(),
             Contains("the last operation known of it is all_reduce #38 (64 MiB f32 sum)"));
}

// Rank 0 had a batch fewer and already reduces metrics; the others wait for it with their
// gradients.
TEST_CASE("who waits for whom is told across lanes, the one who is alone first", "[control]") {
  operation::RankStatus ahead, behind;
  ahead.lanes[0] = {40, 40, "", "all_reduce #40 (64 MiB f32 sum)", {}};
  ahead.lanes[1] = {
      7, 6, "urgent all_reduce #7 (2 f64 sum)", "", {1, 2, 3}, "reduce_metrics", 12'020'000'000u};
  behind.lanes[0] = {41, 40, "all_reduce #41 (64 MiB f32 sum)", "", {0}, "", 12'500'000'000u};
  behind.lanes[1] = {6, 6, "", "", {}};
  std::vector<control::Standing> ranks(4, {control::Standing::State::answered, true, behind});
  ranks[0].status = ahead;
  const std::string wanted =
      "rank 0 has waited for 12 s in urgent all_reduce #7 \"reduce_metrics\" (2 f64 sum), which "
      "ranks 1-3 "
      "have not "
      "called; ranks 1-3 have waited for 12.5 s in all_reduce #41 (64 MiB f32 sum), which rank 0 "
      "has not "
      "called";
  const auto failure =
      control::find_late_ranks({Priority::urgent, 7, 12'000'000'000u, "own"}, 0, ranks);
  CHECK(failure.cause == wanted);
  CHECK(failure.culprits == std::vector<int>{0});
  CHECK(control::find_late_ranks({Priority::bulk, 41, 12'000'000'000u, "own"}, 2, ranks).cause ==
        wanted);
  CHECK(control::find_late_ranks({Priority::bulk, 41, 10'000'000'000u, "", true}, 2, ranks).cause ==
        wanted);

  ranks[1].status.messages = {
      0, 0, "receive #3 (8 f32 from rank 0, tag 7)", "", {0}, "", 3'000'000'000u};
  CHECK(control::find_late_ranks({Priority::bulk, 0, 3'000'000'000u, "own"}, 1, ranks).cause ==
        "rank 0 has waited for 12 s in urgent all_reduce #7 \"reduce_metrics\" (2 f64 sum), which "
        "ranks 1-3 "
        "have not "
        "called; rank 1 has waited for 3 s in receive #3 (8 f32 from rank 0, tag 7) for rank 0");
}

// The last status of the rank is older than its farewell.
TEST_CASE("a rank that has left waits for nothing", "[control]") {
  std::vector<control::Standing> ranks(
      3, {control::Standing::State::answered, true, standing(41, 40)});
  ranks[2] = {control::Standing::State::left, true, standing(40, 41)};
  ranks[2].status.lanes[1] = {7, 6, "urgent barrier #7", "", {0}};
  CHECK(control::find_late_ranks({Priority::bulk, 41, 1'000'000'000u, "own view"}, 0, ranks)
            .cause.find("urgent") == std::string::npos);
}

TEST_CASE("the late ranks of a large job stay readable and indexes from the wire are checked",
          "[control]") {
  const wire::DeadlineMessage deadline{Priority::bulk, 41, 1'000'000'000u, ""};
  std::vector<control::Standing> ranks(
      1000, {control::Standing::State::answered, true, standing(40, 40)});
  ranks[0].status = standing(41, 40);
  CHECK(control::find_late_ranks(deadline, 0, ranks).cause.size() < wire::most_text_bytes);
  std::vector<int> everybody(1000);
  for (int i = 0; i < 1000; ++i) everybody[static_cast<std::size_t>(i)] = i * 2'000'000;
  for (control::Standing& rank : ranks) rank.status = standing(41, 40, everybody);
  CHECK(control::find_late_ranks(deadline, 0, ranks).cause.size() < wire::most_text_bytes);
  CHECK_FALSE(control::find_late_ranks(deadline, 5000, ranks).cause.empty());
}
