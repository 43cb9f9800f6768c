// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/driver.h"

#include <atomic>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "catch.h"
#include "collectives/engine/engine.h"

using namespace rondo;
using engine::BackgroundDelay;

namespace {

// Work that never moves. The deadline of its only operation passes while a pass runs.
class LateWork final : public engine::Driven {
 public:
  explicit LateWork(operation::Operation& operation) : operation_(operation) {}

  bool pass() override {
    // The driver counts from the first pass that moves nothing. This outlasts all of its spinning.
    if (++passes == 2) std::this_thread::sleep_for(std::chrono::milliseconds{20});
    return false;
  }
  void check_time(base::TimePoint) override {
    if (passes > 1) operation_.fail(Errc::deadline_exceeded, {});
  }
  base::TimePoint next_check() const noexcept override { return base::TimePoint::max(); }
  void deliver() override {}
  bool pending() const noexcept override {
    return operation_.state() == operation::Operation::State::running;
  }
  void pausing() noexcept override {}
  engine::Waiting::Company company() override { return engine::Waiting::Company::none; }
  bool prepare_sleep(operation::WakeDescriptors&) override {
    ++sleeps;
    return false;
  }

  int passes = 0, sleeps = 0;

 private:
  operation::Operation& operation_;
};

// Work that comes only to a look for the operation that is awaited.
class AwaitedWork final : public engine::Driven {
 public:
  explicit AwaitedWork(operation::Operation& operation) : operation_(operation) {}

  bool pass() override {
    if (++passes == 1000) operation_.succeed();  // nobody looks
    return false;
  }
  bool look_for(const operation::Operation& operation) override {
    CHECK(&operation == &operation_);
    if (++looks < needed) return false;
    operation_.succeed();
    delivered = false;
    return true;
  }
  void check_time(base::TimePoint) override {}
  base::TimePoint next_check() const noexcept override { return base::TimePoint::max(); }
  void deliver() override { delivered = true; }
  bool pending() const noexcept override {
    return operation_.state() == operation::Operation::State::running;
  }
  void pausing() noexcept override {}
  engine::Waiting::Company company() override { return engine::Waiting::Company::none; }
  bool prepare_sleep(operation::WakeDescriptors&) override { return false; }

  static constexpr int needed = 40;
  int passes = 0, looks = 0;
  bool delivered = false;

 private:
  operation::Operation& operation_;
};

// Work that never moves, beside which another thread starts an operation when the lock is released
// after the second pass. It looks whether a pass comes before the next sleep.
class WorkBesideAStart final : public engine::Driven {
 public:
  explicit WorkBesideAStart(operation::Operation& operation) : operation_(operation) {}

  bool pass() override {
    ++passes_;
    return false;
  }
  void check_time(base::TimePoint) override {}
  base::TimePoint next_check() const noexcept override { return base::TimePoint::max(); }
  void deliver() override {
    if (passes_ != 2 || started_) return;
    started_ = true;
    driver->mutex().assert_held();
    driver->operation_started({true, moves, false});
  }
  bool pending() const noexcept override {
    return operation_.state() == operation::Operation::State::running;
  }
  void pausing() noexcept override {}
  engine::Waiting::Company company() override { return engine::Waiting::Company::none; }
  bool prepare_sleep(operation::WakeDescriptors&) override {
    if (!started_) return false;
    passes_before_sleep = passes_;
    operation_.fail(Errc::aborted, {});
    return false;
  }

  engine::Driver* driver = nullptr;
  bool moves = false;
  int passes_before_sleep = 0;

 private:
  operation::Operation& operation_;
  int passes_ = 0;
  bool started_ = false;
};

// Work that never moves, and whose operation ends after some sleeps of a millisecond.
class QuietWork final : public engine::Driven {
 public:
  explicit QuietWork(operation::Operation& operation) : operation_(operation) {}

  bool pass() override {
    if (sleeps > 0) ++passes;
    return false;
  }
  void check_time(base::TimePoint) override {
    if (sleeps == most_sleeps) operation_.fail(Errc::aborted, {});
  }
  base::TimePoint next_check() const noexcept override {
    return base::Clock::now() + milliseconds{1};
  }
  void deliver() override {}
  bool pending() const noexcept override {
    return operation_.state() == operation::Operation::State::running;
  }
  void pausing() noexcept override {}
  engine::Waiting::Company company() override { return engine::Waiting::Company::none; }
  bool prepare_sleep(operation::WakeDescriptors&) override {
    ++sleeps;
    return true;
  }

  static constexpr int most_sleeps = 20;
  int passes = 0, sleeps = 0;

 private:
  operation::Operation& operation_;
};

// Work that moves something in every pass, until the driver has looked at the time twice.
class BusyWork final : public engine::Driven {
 public:
  explicit BusyWork(operation::Operation& operation) : operation_(operation) {}

  bool pass() override {
    ++passes;
    return true;
  }
  void check_time(base::TimePoint) override {
    if (++looks == 2) operation_.fail(Errc::deadline_exceeded, {});
  }
  base::TimePoint next_check() const noexcept override { return base::TimePoint::max(); }
  void deliver() override {}
  bool pending() const noexcept override { return looks < 2; }
  void pausing() noexcept override {}
  engine::Waiting::Company company() override { return engine::Waiting::Company::none; }
  bool prepare_sleep(operation::WakeDescriptors&) override { return false; }

  int passes = 0, looks = 0;

 private:
  operation::Operation& operation_;
};

// Work that is pending until its next pass.
class WorkOfOnePass final : public engine::Driven {
 public:
  bool pass() override {
    pending_ = false;
    passed_at.store(base::Clock::now());
    return true;
  }
  void check_time(base::TimePoint) override {}
  base::TimePoint next_check() const noexcept override { return base::TimePoint::max(); }
  void deliver() override {}
  bool pending() const noexcept override { return pending_; }
  void pausing() noexcept override {}
  engine::Waiting::Company company() override { return engine::Waiting::Company::none; }
  bool prepare_sleep(operation::WakeDescriptors&) override { return true; }

  void start() {
    pending_ = true;
    passed_at.store({});
  }

  std::atomic<base::TimePoint> passed_at{};

 private:
  bool pending_ = false;
};

// Work that is pending until it may end. Its driver sleeps meanwhile.
class WorkThatLasts final : public engine::Driven {
 public:
  bool pass() override {
    if (pending_ && may_end.load()) pending_ = false;
    return false;
  }
  void check_time(base::TimePoint) override {}
  base::TimePoint next_check() const noexcept override { return base::TimePoint::max(); }
  void deliver() override {}
  bool pending() const noexcept override { return pending_; }
  void pausing() noexcept override {}
  engine::Waiting::Company company() override { return engine::Waiting::Company::none; }
  bool prepare_sleep(operation::WakeDescriptors&) override {
    ++sleeps;
    return true;
  }

  void start(engine::Driver& driver) {
    const base::Locked lock(driver.mutex());
    pending_ = true;
    driver.operation_started({true, false, false});
  }
  bool ends_by(engine::Driver& driver, base::TimePoint limit) {
    while (base::Clock::now() < limit) {
      {
        const base::Locked lock(driver.mutex());
        if (!pending_) return true;
        driver.wake_sleeper();
      }
      std::this_thread::yield();
    }
    return false;
  }

  std::atomic<int> sleeps{0};
  std::atomic<bool> may_end{false};

 private:
  bool pending_ = false;
};

// The time from a start that nobody waits for to the pass of the background thread.
nanoseconds time_to_pass(engine::Driver& driver, WorkOfOnePass& work, bool unattended) {
  const base::TimePoint began = base::Clock::now();
  {
    const base::Locked lock(driver.mutex());
    work.start();
    driver.operation_started({true, false, unattended});
  }
  while (work.passed_at.load() == base::TimePoint{}) std::this_thread::yield();
  const nanoseconds time = work.passed_at.load() - began;
  // The background thread goes back to sleep meanwhile, most of the time.
  for (const auto end = base::Clock::now() + milliseconds{1}; base::Clock::now() < end;)
    std::this_thread::yield();
  return time;
}

// An operation that lives until a test has driven it.
class Waited {
 public:
  Waited() {
    pool_->close();
    const point::PointTransfer transfer;
    operation->start({{&transfer, 1}, {}, std::chrono::seconds{1}, ""}, 1);
  }

 private:
  engine::Engine engine_{{}, {nullptr}, {}, nullptr};  // only what the operation refers to
  const std::shared_ptr<operation::OperationPool> pool_ =
      std::make_shared<operation::OperationPool>();

 public:
  const operation::Taken<point::MessageOperation> operation{
      new point::MessageOperation(engine_, pool_)};
};

}  // namespace

TEST_CASE("a driver whose operation ends at its deadline does not sleep first", "[driver]") {
  const Waited waited;
  const auto& operation = waited.operation;
  LateWork work(*operation);
  engine::Driver driver(work, {engine::WaitMode::automatic, std::chrono::microseconds{20}, 1});
  {
    const base::Locked lock(driver.mutex());
    driver.wait({*operation}, base::TimePoint::max());
  }
  CHECK(operation->code == Errc::deadline_exceeded);
  CHECK(work.passes > 1);
  CHECK(work.sleeps == 0);
}

TEST_CASE("a driver looks for what its thread awaits many times between two passes", "[driver]") {
  const Waited waited;
  AwaitedWork work(*waited.operation);
  engine::Driver driver(work, {engine::WaitMode::automatic, std::chrono::milliseconds{1}, 1});
  {
    const base::Locked lock(driver.mutex());
    driver.wait({*waited.operation}, base::TimePoint::max());
  }
  CHECK(work.looks == AwaitedWork::needed);
  CHECK(work.delivered);
  CHECK(work.passes > 1);
  CHECK(work.passes < 8);
}

// A rank on shared memory looks every 100 ms whether its peers still live. If it spun again each
// time, a wait beside a busy program would cost one percent of a core.
TEST_CASE("a driver whose sleep ends by time alone goes back to sleep", "[driver]") {
  const Waited waited;
  QuietWork work(*waited.operation);
  base::WakeWord word{0};
  engine::Driver driver(work, {engine::WaitMode::automatic, std::chrono::microseconds{20}, 1},
                        &word);
  {
    const base::Locked lock(driver.mutex());
    driver.wait({*waited.operation}, base::TimePoint::max());
  }
  CHECK(work.sleeps == QuietWork::most_sleeps);
  CHECK(work.passes <= 10 * QuietWork::most_sleeps);
}

// The link of what has moved may hold a frame that can be taken now, and nobody rings for that.
TEST_CASE("a driver makes a pass before it sleeps if a start has moved something", "[driver]") {
  const bool moves = GENERATE(false, true);
  const Waited waited;
  WorkBesideAStart work(*waited.operation);
  engine::Driver driver(work, {engine::WaitMode::sleep, std::chrono::microseconds{20}, 1});
  work.driver = &driver;
  work.moves = moves;
  {
    const base::Locked lock(driver.mutex());
    driver.wait({*waited.operation}, base::TimePoint::max());
  }
  CHECK(work.passes_before_sleep == (moves ? 3 : 2));
}

// A pass over large frames takes 50 us and more, and a deadline of another operation may be near.
TEST_CASE("a driver that moves something in every pass looks at the time often", "[driver]") {
  const Waited waited;
  BusyWork work(*waited.operation);
  engine::Driver driver(work, {engine::WaitMode::automatic, std::chrono::microseconds{20}, 1});
  {
    const base::Locked lock(driver.mutex());
    driver.wait({*waited.operation}, base::TimePoint::max());
  }
  CHECK(work.looks == 2);
  CHECK(work.passes <= 64);
}

TEST_CASE("the background thread looks ever more rarely where all operations are waited for",
          "[driver]") {
  BackgroundDelay delay;
  CHECK(delay.after_start() == BackgroundDelay::least);
  delay.looked(false);
  CHECK(delay.after_start() == 2 * BackgroundDelay::least);
  for (int i = 0; i < 100; ++i) delay.looked(false);
  CHECK(delay.after_start() == BackgroundDelay::most);
  delay.looked(true);
  CHECK(delay.after_start() == BackgroundDelay::least);
}

TEST_CASE("one timer serves all starts, and a hand-over does not wait for a late one", "[driver]") {
  BackgroundDelay delay;
  CHECK(delay.set(BackgroundDelay::least));
  CHECK_FALSE(delay.set(BackgroundDelay::least));
  CHECK_FALSE(delay.set(nanoseconds{1}));
  delay.looked(false);
  CHECK(delay.set(BackgroundDelay::most));
  CHECK_FALSE(delay.set(BackgroundDelay::most));
  CHECK(delay.set(nanoseconds{1}));
  CHECK_FALSE(delay.set(nanoseconds{1}));
}

// A timer cannot end early. Some starts find the background thread still awake, and a busy machine
// makes others wait, so the test counts.
TEST_CASE("an operation that nobody will wait for is driven at once", "[driver]") {
  WorkOfOnePass work;
  engine::Driver driver(work, {engine::WaitMode::sleep, std::chrono::microseconds{20}, 1});
  driver.start_background();
  int at_once[2] = {};
  for (int i = 0; i < 100; ++i)
    for (const bool unattended : {false, true})
      if (time_to_pass(driver, work, unattended) < BackgroundDelay::least) ++at_once[unattended];
  INFO(at_once[0] << " and " << at_once[1]);
  CHECK(at_once[true] > 2 * at_once[false]);
  {
    const base::Locked lock(driver.mutex());
    driver.stop();
  }
  driver.join();
}

// The background thread sleeps in the middle of an operation when another thread hands over to it.
TEST_CASE("a hand-over to a thread that drives already does not stop later looks", "[driver]") {
  const Waited waited;
  WorkThatLasts work;
  engine::Driver driver(work, {engine::WaitMode::sleep, std::chrono::microseconds{20}, 1});
  driver.start_background();
  const base::TimePoint limit = base::Clock::now() + std::chrono::seconds{20};
  work.start(driver);
  while (work.sleeps == 0 && base::Clock::now() < limit) std::this_thread::yield();
  {
    const base::Locked lock(driver.mutex());
    driver.wait({*waited.operation}, base::Clock::now() + milliseconds{2});
  }
  work.may_end = true;
  CHECK(work.ends_by(driver, limit));
  // The background thread goes to sleep meanwhile. If it did not, the test would see less.
  for (const auto end = base::Clock::now() + milliseconds{20}; base::Clock::now() < end;)
    std::this_thread::yield();
  work.start(driver);
  CHECK(work.ends_by(driver, limit));
  {
    const base::Locked lock(driver.mutex());
    driver.stop();
  }
  driver.join();
}
