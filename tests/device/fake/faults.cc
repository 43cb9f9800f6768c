// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "settings.h"

namespace fake {
namespace {

struct Failure {
  std::string function;
  unsigned calls_before;
  int times, status;
};

struct Faults {
  std::mutex mutex;
  std::vector<Failure> failures;
  std::map<std::string, unsigned long, std::less<>> calls;
  std::set<std::string, std::less<>> stalled;
  std::condition_variable news;
};
Faults& faults() {
  static Faults& all = *[] {
    auto* const made = new Faults;
    for (const Settings::Failure& each : settings().failures)
      made->failures.push_back({each.function, each.nth - 1, 1, each.status});
    return made;
  }();
  return all;
}

std::atomic<unsigned long> all_calls{0};
thread_local bool blocking_is_forbidden = false;
thread_local unsigned long blocking_count = 0;

}  // namespace

void fail_calls(const std::string& function, unsigned nth, int times, int status) {
  if (nth == 0) stop_test("the first call has the number 1");
  const std::lock_guard lock(faults().mutex);
  faults().failures.push_back({function, nth - 1, times, status});
}

void forget_failures() {
  const std::lock_guard lock(faults().mutex);
  faults().failures.clear();
}

int next_failure(const char* function) {
  const std::lock_guard lock(faults().mutex);
  ++faults().calls[function];
  int status = 0;
  for (Failure& each : faults().failures) {
    if (each.function != function && each.function != "any") continue;
    if (each.calls_before != 0) {
      --each.calls_before;
    } else if (each.times != 0 && status == 0) {
      status = each.status;
      if (each.times > 0) --each.times;
    }
  }
  return status;
}

unsigned long calls_of(const std::string& function) {
  if (function == "any") return all_calls.load();
  const std::lock_guard lock(faults().mutex);
  const auto found = faults().calls.find(function);
  return found == faults().calls.end() ? 0 : found->second;
}

void count_call() {
  all_calls.fetch_add(1);
}

void stall_calls(const std::string& function, bool on) {
  const std::lock_guard lock(faults().mutex);
  if (on)
    faults().stalled.insert(function);
  else
    faults().stalled.erase(function);
  faults().news.notify_all();
}

void may_block(const char* function) {
  ++blocking_count;
  if (blocking_is_forbidden)
    stop_test(std::string(function) + " may block, and this thread must not block here");
  std::unique_lock lock(faults().mutex);
  faults().news.wait(lock, [&] { return !faults().stalled.contains(function); });
}

void forbid_blocking(bool on) {
  blocking_is_forbidden = on;
}
unsigned long blocking_calls() {
  return blocking_count;
}

}  // namespace fake
