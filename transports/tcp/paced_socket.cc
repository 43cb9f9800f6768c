// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/paced_socket.h"

#include <sys/socket.h>

#include "transports/connect/tcp_state.h"

namespace rondo::tcp {

void PacedSocket::pace(base::TimePoint now, bool restrained) noexcept {
  std::uint64_t rate = BulkPace::unlimited;
  if (restrained) {
    const auto state = connect::read_tcp_state(socket_);
    if (!state || state->least_round_trip == microseconds{0}) return;
    rate = pace_.look({now, state->round_trip, state->least_round_trip, state->acknowledged_bytes,
                       state->busy, state->unsent_bytes > 0});
  }
  if (rate == rate_) return;
  // A kernel that knows 32-bit rates only reads the low half: enough for up to 34 Gbit/s.
  if (::setsockopt(socket_, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0) rate_ = rate;
}

}  // namespace rondo::tcp
