// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "transports/tcp/bulk_pace.h"

namespace rondo::tcp {

// Keeps a connection to the pace of BulkPace while urgent frames may want the same network. The
// kernel spaces the bytes.
class PacedSocket {
 public:
  void attach(int socket) noexcept { socket_ = socket; }
  // To be called every few milliseconds. restrained: urgent frames have been about lately; else it
  // sends as fast as it can.
  void pace(base::TimePoint now, bool restrained) noexcept;

 private:
  int socket_ = -1;
  std::uint64_t rate_ = BulkPace::unlimited;  // that the kernel has been told
  BulkPace pace_;
};

}  // namespace rondo::tcp
