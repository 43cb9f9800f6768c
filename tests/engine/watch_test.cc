// SPDX-License-Identifier: Apache-2.0
//
// Checks what a Watch counts for the looks and events that it is given. The test plays the owner.
#include "collectives/operation/watch.h"

#include <memory>

#include "catch.h"
#include "cluster.h"
#include "collectives/engine/engine.h"
#include "collectives/operation/owner.h"

using namespace rondo;
using operation::Standing;

namespace {

struct PlayedOwner final : operation::OperationOwner {
  bool advance() override { return false; }
  void clear() noexcept override {}
  Standing standing(const operation::Operation&, bool wants_only) override {
    if (!wants_only) return {answer.cause};
    return answer;
  }
  void append_awaited(const operation::Operation&, operation::Awaited&) const override {}
  std::string late_text(const operation::Operation&) const override { return {}; }
  operation::Traffic traffic() const noexcept override { return {}; }
  Standing answer;
};

constexpr Standing many{WaitCause::ranks}, only_2{WaitCause::ranks, 2, true},
    moving{WaitCause::transfer};

// Rank 0 of 3, with one call at a time.
struct Watched {
  Watched() { operation->owner = &owner; }
  ~Watched() { pool->close(); }

  void call() {
    const schedules::Call call =
        make_call(Collective::all_gather, schedules::Algorithm::ring, in, out, in.size());
    operation->start(call, ++number);
  }
  void look(const Standing& standing, base::TimePoint at) {
    owner.answer = standing;
    watch.look(operation.get(), at);
  }
  nanoseconds waited(WaitCause cause) const { return watch.waited(cause); }
  // A call whose last rank comes at least so long after the others.
  std::optional<operation::LateReport> late_call(nanoseconds late, const Standing& last = only_2,
                                                 nanoseconds before = {}) {
    call();
    const base::TimePoint now = base::Clock::now();
    look(many, now - late - before);
    look(last, now - late);
    watch.heard_all(*operation);
    return watch.ended(*operation);
  }
  std::optional<operation::LateReport> quick_call() {
    call();
    return watch.ended(*operation);
  }

  PlayedOwner owner;
  std::vector<float> in = std::vector<float>(4), out = std::vector<float>(12);
  engine::Engine engine{{}, {nullptr}, {}, nullptr};  // only what operations refer to
  std::shared_ptr<operation::OperationPool> pool = std::make_shared<operation::OperationPool>();
  operation::Taken<operation::ScheduledOperation> operation{
      new operation::ScheduledOperation(engine, pool)};
  operation::TagCounts tags;
  operation::Watch watch{3, &tags};
  std::uint64_t number = 0;
};

}  // namespace

TEST_CASE("a call that ends before the second look counts as no wait", "[watch]") {
  Watched w;
  w.call();
  w.look(only_2, base::Clock::now() - milliseconds{5});
  w.watch.heard_all(*w.operation);
  CHECK_FALSE(w.watch.ended(*w.operation));
  CHECK(w.waited(WaitCause::ranks) == nanoseconds{});
  CHECK(w.watch.late()[2].calls == 0);
}

TEST_CASE("times count by cause, and the last rank from when the others had come", "[watch]") {
  Watched w;
  w.call();
  const base::TimePoint now = base::Clock::now();
  w.look({WaitCause::gpu}, now - milliseconds{20});
  w.look(many, now - milliseconds{17});
  w.look(only_2, now - milliseconds{12});
  w.look(only_2, now - milliseconds{8});
  CHECK(w.waited(WaitCause::gpu) == milliseconds{3});
  CHECK(w.waited(WaitCause::ranks) == milliseconds{9});
  w.watch.heard_all(*w.operation);
  CHECK(w.waited(WaitCause::ranks) >= milliseconds{17});
  CHECK(w.watch.late()[2].calls == 1);
  CHECK(w.watch.late()[2].waited >= milliseconds{12});
  CHECK(w.watch.late()[1].calls == 0);
  w.look(moving, base::Clock::now());
  const nanoseconds before = w.waited(WaitCause::transfer);
  w.watch.heard_all(*w.operation);  // as owners do when nothing is left to hear
  w.watch.ended(*w.operation);
  CHECK(w.waited(WaitCause::transfer) > before);
  CHECK(w.watch.late()[2].calls == 1);
  CHECK(w.tags.named()[0].waited[static_cast<std::size_t>(WaitCause::ranks)] ==
        w.waited(WaitCause::ranks));
}

TEST_CASE("a sleep that the end of the call ends counts, without a second look", "[watch]") {
  Watched w;
  w.call();
  w.look(only_2, base::Clock::now() - milliseconds{5});
  w.watch.pausing();
  w.watch.heard_all(*w.operation);
  CHECK(w.watch.late()[2].waited >= milliseconds{5});
}

TEST_CASE("several ranks that are missing blame none", "[watch]") {
  Watched w;
  w.call();
  const base::TimePoint now = base::Clock::now();
  w.look(many, now - milliseconds{9});
  w.look(many, now - milliseconds{4});
  w.watch.heard_all(*w.operation);
  CHECK(w.waited(WaitCause::ranks) >= milliseconds{9});
  for (const LateRank& late : w.watch.late()) CHECK(late.calls == 0);
}

TEST_CASE("a rank that is late in more than 90 of 100 calls is told, once a minute", "[watch]") {
  Watched w;
  const int late = GENERATE(90, 91);
  // The first call is so late that the others need not last long.
  CHECK_FALSE(w.late_call(std::chrono::seconds{6}));
  std::optional<operation::LateReport> report;
  for (int i = 1; i < 100; ++i) {
    CHECK_FALSE(report);
    report = i < late ? w.late_call(milliseconds{5}) : w.quick_call();
  }
  REQUIRE(report.has_value() == (late == 91));
  if (report) {
    CHECK(report->rank == 2);
    CHECK(report->times == 91);
    CHECK(report->calls == 100);
    CHECK(report->each >= milliseconds{5});
    CHECK_FALSE(w.late_call(std::chrono::seconds{6}));
    for (int i = 0; i < 200; ++i) CHECK_FALSE(w.late_call(milliseconds{5}));
  }
}

TEST_CASE("a rank is told when it has been late for five seconds", "[watch]") {
  Watched w;
  for (int i = 0; i < 150; ++i) CHECK_FALSE(w.late_call(milliseconds{5}));
  CHECK(w.watch.late()[2].calls == 150);
}

TEST_CASE("a rank is not told when it is late by little, or by little of the call", "[watch]") {
  Watched w;
  const auto [late, before] = GENERATE(std::pair(microseconds{1}, milliseconds{0}),
                                       std::pair(milliseconds{6000}, milliseconds{60'000}));
  for (int i = 0; i < 100; ++i) CHECK_FALSE(w.late_call(late, only_2, before));
  CHECK(w.watch.late()[2].calls == 100);
}

TEST_CASE("a rank is not told when ranks are late in turn, or another one tells", "[watch]") {
  Watched w;
  const bool in_turn = GENERATE(true, false);
  for (int i = 0; i < 100; ++i) {
    const Standing last{WaitCause::ranks, in_turn ? 1 + i % 2 : 2, in_turn};
    CHECK_FALSE(w.late_call(std::chrono::seconds{6}, last));
  }
}

TEST_CASE("the first 32 tags have an entry each", "[watch]") {
  operation::TagCounts tags;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 40; ++i) {
      char tag[32] = {};
      tag[0] = static_cast<char>('a' + i % 20);
      tag[1] = static_cast<char>('a' + i / 20);
      tags.count(tag, 0);
      const char none[32] = {};
      tags.count(none, 1);
    }
  REQUIRE(tags.named().size() == 33);
  CHECK(tags.named()[0].operations[1] == 80);
  for (const auto& entry : tags.named().subspan(1)) CHECK(entry.operations[0] == 2);
  CHECK(tags.other().operations[0] == 16);
}
