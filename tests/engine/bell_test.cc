// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/bell.h"

#include <thread>

#include "catch.h"
#include "collectives/engine/alarm.h"

namespace rondo::operation {

TEST_CASE("an alarm rings once, at the time that was set last", "[driver]") {
  engine::Alarm alarm;
  alarm.set(std::chrono::hours{1});
  const base::TimePoint begin = base::Clock::now();
  alarm.set(milliseconds{3});
  alarm.wait();
  CHECK(base::Clock::now() - begin >= milliseconds{3});
  alarm.set(nanoseconds{});
  alarm.wait();
  // Nothing is set any more: the next wait lasts until a thread sets something.
  std::thread other([&] { alarm.set(milliseconds{2}); });
  const base::TimePoint again = base::Clock::now();
  alarm.wait();
  CHECK(base::Clock::now() - again >= nanoseconds{});
  other.join();
}

TEST_CASE("a thread that waits for a late alarm takes an earlier one", "[driver]") {
  engine::Alarm alarm;
  alarm.set(std::chrono::hours{1});
  std::thread waiting([&] { alarm.wait(); });
  alarm.set(nanoseconds{1});
  waiting.join();
}

TEST_CASE("a bell that rings after a driver has looked at it ends its sleep", "[driver]") {
  base::WakeWord word{0};
  base::WakeWord* const place = GENERATE(true, false) ? &word : nullptr;
  Bell bell(place);
  WakeDescriptors descriptors;
  const std::uint32_t seen = bell.seen();
  bell.add_to(descriptors);
  bell.ring();
  CHECK(bell.sleep(descriptors, seen, -1) == (place == nullptr));
  bell.clear();
  CHECK_FALSE(bell.sleep(descriptors, bell.seen(), 1));
}

TEST_CASE("drivers that sleep on one bell all wake", "[driver]") {
  base::WakeWord word{0};
  base::WakeWord* const place = GENERATE(true, false) ? &word : nullptr;
  Bell bell(place);
  std::atomic<bool> rung{false};
  const auto drive = [&] {
    while (!rung) {
      WakeDescriptors descriptors;
      const std::uint32_t seen = bell.seen();
      bell.add_to(descriptors);
      if (!rung) bell.sleep(descriptors, seen, 1000);
    }
  };
  std::thread one(drive), other(drive);
  rung = true;
  bell.ring();
  one.join();
  other.join();
}

}  // namespace rondo::operation
