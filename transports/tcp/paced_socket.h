// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "transports/tcp/bulk_pace.h"

namespace rondo::tcp {

// Holds a connection to the rate of BulkPace while urgent frames may use the same network. The
// kernel does the pacing. Thread-bound (the driver of the transport). If the kernel gives no
// information or refuses a rate, the former rate stays.
class PacedSocket {
 public:
  void attach(int socket) noexcept { socket_ = socket; }
  // Call it every few milliseconds. restrained: urgent frames have been in use lately; without that
  // the connection has no limit.
  void pace(base::TimePoint now, bool restrained) noexcept;

 private:
  int socket_ = -1;
  std::uint64_t rate_ = BulkPace::unlimited;  // the rate that the kernel has
  BulkPace pace_;
};

}  // namespace rondo::tcp
