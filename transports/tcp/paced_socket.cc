// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/paced_socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace rondo::tcp {

void PacedSocket::pace(base::TimePoint now, bool restrained) noexcept {
  std::uint64_t rate = BulkPace::unlimited;
  if (restrained) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (::getsockopt(socket_, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
        length < offsetof(tcp_info, tcpi_min_rtt) + sizeof info.tcpi_min_rtt)
      return;
    rate = pace_.look({now, microseconds(info.tcpi_rtt), microseconds(info.tcpi_min_rtt),
                       info.tcpi_bytes_acked, microseconds(info.tcpi_busy_time),
                       info.tcpi_notsent_bytes > 0});
  }
  if (rate == rate_) return;
  // A kernel that knows 32-bit rates only reads the low half: enough for up to 34 Gbit/s.
  if (::setsockopt(socket_, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) == 0) rate_ = rate;
}

}  // namespace rondo::tcp
