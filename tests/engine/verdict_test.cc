// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/verdict.h"

#include "catch.h"

using namespace rondo;
using engine::Verdict;
using operation::Failure;

namespace {

struct Heard final : engine::EngineObserver {
  void failure(const Failure& failure) override { causes.push_back(failure.cause); }
  void stalled(Priority, std::uint64_t) override {}
  void slow(Priority, std::uint64_t, nanoseconds) override {}
  void late(const operation::LateReport&) override {}
  void deadline(Priority lane, std::uint64_t number, nanoseconds,
                const std::string& view) override {
    causes.push_back((lane == Priority::urgent ? "urgent " : "") + std::to_string(number) + view);
  }
  std::vector<std::string> causes;
};

const base::TimePoint verdict_start{std::chrono::hours{1}};

Failure failure_of(const char* cause) {
  return {Errc::peer_lost, cause, 1};
}

std::vector<std::string> reported(Verdict& verdict, Heard& heard) {
  for (const Verdict::Report& report : verdict.take_reports()) report(heard);
  return heard.causes;
}

}  // namespace

TEST_CASE("a suspicion stops this rank and is reported once", "[verdict]") {
  Heard heard;
  Verdict verdict(&heard);
  CHECK_FALSE(verdict.stopped());
  CHECK_FALSE(verdict.suspect(failure_of("first"), verdict_start));
  CHECK(verdict.stopped());
  CHECK(verdict.failure() == nullptr);
  CHECK_FALSE(verdict.suspect(failure_of("second"), verdict_start));
  CHECK_FALSE(
      verdict.expire(Priority::bulk, 4, nanoseconds{1}, failure_of("third"), verdict_start));
  CHECK(reported(verdict, heard) == std::vector<std::string>{"first"});
  CHECK_FALSE(verdict.has_reports());
}

TEST_CASE("the cause that holds for all ranks replaces the suspicion", "[verdict]") {
  Heard heard;
  Verdict verdict(&heard);
  CHECK_FALSE(verdict.suspect(failure_of("own"), verdict_start));
  CHECK(verdict.settle(failure_of("of all")));
  CHECK_FALSE(verdict.settle(failure_of("later")));
  CHECK_FALSE(verdict.check(verdict_start + Verdict::verdict_time));
  REQUIRE(verdict.failure() != nullptr);
  CHECK(verdict.failure()->cause == "of all");
  CHECK(verdict.next_check() == base::TimePoint::max());
}

TEST_CASE("without an answer a rank settles for its own suspicion", "[verdict]") {
  Heard heard;
  Verdict verdict(&heard);
  CHECK_FALSE(verdict.expire(Priority::urgent, 4, nanoseconds{1},
                             {Errc::deadline_exceeded, " is late", -1, {2}, 1}, verdict_start));
  CHECK(reported(verdict, heard) == std::vector<std::string>{"urgent 4 is late"});
  CHECK(verdict.next_check() == verdict_start + Verdict::verdict_time);
  CHECK_FALSE(verdict.check(verdict_start + Verdict::verdict_time - nanoseconds{1}));
  CHECK(verdict.check(verdict_start + Verdict::verdict_time));
  CHECK(verdict.failure()->code == Errc::deadline_exceeded);
  CHECK(verdict.failure()->culprits == std::vector<int>{2});
  CHECK(verdict.stopped());
}

TEST_CASE("a suspicion is the verdict where nobody is asked", "[verdict]") {
  Verdict verdict(nullptr);
  CHECK(verdict.suspect(failure_of("own"), verdict_start));
  CHECK(verdict.stopped());
  CHECK(verdict.failure()->cause == "own");
  CHECK_FALSE(verdict.has_reports());
}

TEST_CASE("a cause from another rank stops this one, which reports nothing", "[verdict]") {
  Heard heard;
  Verdict verdict(&heard);
  CHECK(verdict.settle(failure_of("of all")));
  CHECK(verdict.stopped());
  CHECK_FALSE(verdict.suspect(failure_of("own"), verdict_start));
  CHECK(reported(verdict, heard).empty());
  CHECK(verdict.failure()->cause == "of all");
}

TEST_CASE("a rank that ends while it suspects a failure names that one", "[verdict]") {
  Heard heard;
  Verdict suspicious(&heard), content(&heard);
  CHECK_FALSE(suspicious.suspect(failure_of("aborted"), verdict_start));
  CHECK(suspicious.end(failure_of("left")));
  CHECK(suspicious.failure()->cause == "aborted");
  CHECK(content.end(failure_of("left")));
  CHECK(content.failure()->cause == "left");
  CHECK_FALSE(content.end(failure_of("again")));
}
