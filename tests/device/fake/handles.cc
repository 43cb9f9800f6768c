// SPDX-License-Identifier: Apache-2.0
#include "handles.h"

#include <unistd.h>

#include <array>
#include <atomic>

#include "call.h"
#include "quiet.h"
#include "settings.h"

namespace fake {
namespace {

constexpr std::array names{
    "contexts",     "streams",  "events", "pieces of pinned memory", "device memory", "allocations",
    "reservations", "mappings", "modules"};
static_assert(names.size() == rondo_fake_kinds);

std::array<std::atomic<long>, rondo_fake_kinds> alive;

// Runs after the destructors of the program and after its functions of atexit().
__attribute__((destructor)) void report_leaks() {
  bool any = false;
  {
    const Quiet quiet;
    if (!settings().leaks_fail || in_forked_child()) return;
    for (std::size_t kind = 0; kind < names.size(); ++kind)
      if (const long count = alive[kind].load(); count != 0) {
        std::fprintf(stderr, "fake CUDA: the process ends with %ld %s alive\n", count, names[kind]);
        any = true;
      }
  }
  if (any) ::_exit(97);
}

}  // namespace

void count_handle(RondoFakeKind kind, long change) {
  alive[kind].fetch_add(change);
}
long handles_alive(RondoFakeKind kind) {
  return alive[kind].load();
}

}  // namespace fake
