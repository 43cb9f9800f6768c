// SPDX-License-Identifier: Apache-2.0
//
// The C API: what a communicator says about itself, abort and abandon.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "lib/c/communicator.h"
#include "lib/c/status.h"
#include "lib/c/structs.h"

namespace rondo::c {
namespace {

static_assert(static_cast<int>(Collective::all_reduce) == RONDO_ALL_REDUCE &&
              static_cast<int>(Collective::barrier) == RONDO_BARRIER &&
              static_cast<int>(Collective::all_to_all) == RONDO_ALL_TO_ALL &&
              static_cast<int>(Collective::receive) == RONDO_RECEIVE);

// A value outside the enum must not become a valid one when it is cut to a byte.
template <class Enum>
Enum narrow(unsigned value) {
  return static_cast<Enum>(std::min<unsigned>(value, std::numeric_limits<std::uint8_t>::max()));
}

template <class Describe>
rondo_status put_text(rondo_communicator* communicator, char* text, std::size_t capacity,
                      const Describe& describe) noexcept {
  return guarded([&] {
    require(communicator, "communicator");
    write_text({}, text, capacity);
    write_text(describe(communicator->value), text, capacity);
  });
}

rondo_link_costs to_c(const PlanLinkCosts& costs) {
  return {costs.latency_s, costs.seconds_per_byte, costs.frame_s};
}

}  // namespace
}  // namespace rondo::c

using namespace rondo;
using namespace rondo::c;

extern "C" {

void rondo_abort(rondo_communicator* communicator, rondo_status why) {
  rondo_abort_text(communicator, why, nullptr);
}

void rondo_abort_text(rondo_communicator* communicator, rondo_status why, const char* text) {
  if (communicator == nullptr) return;
  communicator->value.abort(make_error_code(static_cast<Errc>(why)),
                            text != nullptr ? std::string_view(text) : std::string_view());
}

void rondo_abandon(rondo_communicator* communicator) {
  if (communicator != nullptr) communicator->value.abandon();
}

rondo_status rondo_describe(rondo_communicator* communicator, rondo_collective operation,
                            size_t count, rondo_dtype type, char* text, size_t capacity) {
  return put_text(communicator, text, capacity, [&](const Communicator& c) {
    return c.describe(narrow<Collective>(operation), count, narrow<DType>(type));
  });
}

rondo_status rondo_algorithm(rondo_communicator* communicator, rondo_collective operation,
                             size_t count, rondo_dtype type, char* text, size_t capacity) {
  return put_text(communicator, text, capacity, [&](const Communicator& c) {
    return c.algorithm(narrow<Collective>(operation), count, narrow<DType>(type));
  });
}

rondo_status rondo_describe_peer(rondo_communicator* communicator, int peer, char* text,
                                 size_t capacity) {
  return put_text(communicator, text, capacity,
                  [&](const Communicator& c) { return c.describe_peer(peer); });
}

rondo_status rondo_dump(rondo_communicator* communicator, const char* path, char* text,
                        size_t capacity) {
  return put_text(communicator, text, capacity, [&](const Communicator& c) {
    return c.dump(path == nullptr ? std::string_view() : std::string_view(path));
  });
}

rondo_status rondo_address(rondo_communicator* communicator, char* text, size_t capacity) {
  return put_text(communicator, text, capacity, [](const Communicator& c) { return c.address(); });
}

rondo_status rondo_get_statistics(rondo_communicator* communicator, rondo_statistics* statistics) {
  return guarded([&] {
    require(communicator, "communicator");
    const Statistics s = communicator->value.statistics();
    const auto waited = [&](WaitCause cause) {
      return static_cast<std::uint64_t>(s.waited[static_cast<std::size_t>(cause)].count());
    };
    const rondo_statistics result{sizeof(rondo_statistics),
                                  s.operations,
                                  s.frames_sent,
                                  s.frames_received,
                                  s.bytes_sent,
                                  s.bytes_received,
                                  s.staging_bytes,
                                  s.failures,
                                  s.segments_sent,
                                  s.segments_resent,
                                  waited(WaitCause::ranks),
                                  waited(WaitCause::transfer),
                                  waited(WaitCause::gpu),
                                  waited(WaitCause::messages)};
    write_struct(result, statistics, "statistics", set_bytes<rondo_statistics>("rondo_statistics"));
  });
}

rondo_status rondo_get_late_ranks(rondo_communicator* communicator, rondo_late_rank* late,
                                  size_t capacity) {
  return guarded([&] {
    require(communicator, "communicator");
    if (capacity != 0) require(late, "late");
    const Statistics s = communicator->value.statistics();
    for (std::size_t rank = 0; rank < std::min(capacity, s.late_ranks.size()); ++rank)
      late[rank] = {s.late_ranks[rank].calls,
                    static_cast<std::uint64_t>(s.late_ranks[rank].waited.count())};
  });
}

rondo_status rondo_get_constants(rondo_communicator* communicator, rondo_constants* constants) {
  return guarded([&] {
    require(communicator, "communicator");
    const PlanConstants c = communicator->value.constants();
    const rondo_constants result{sizeof(rondo_constants), to_c(c.host), to_c(c.network),
                                 c.reduce_seconds_per_byte};
    write_struct(result, constants, "constants", set_bytes<rondo_constants>("rondo_constants"));
  });
}
}
