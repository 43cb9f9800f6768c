// SPDX-License-Identifier: Apache-2.0
//
// Alone in its library: the C library's <netinet/tcp.h>, which others include, lacks fields that
// <linux/tcp.h> has, and one source cannot include both.
#include "transports/connect/tcp_state.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace rondo::connect {
namespace {

constexpr std::uint8_t state_closed = 7;  // TCP_CLOSE of <netinet/tcp.h>

}  // namespace

std::optional<TcpState> read_tcp_state(int socket) noexcept {
  using std::chrono::microseconds;
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return std::nullopt;
  return TcpState{microseconds(info.tcpi_rtt),
                  microseconds(info.tcpi_min_rtt),
                  microseconds(info.tcpi_busy_time),
                  info.tcpi_bytes_acked,
                  info.tcpi_notsent_bytes,
                  info.tcpi_unacked,
                  info.tcpi_data_segs_out,
                  info.tcpi_total_retrans,
                  info.tcpi_segs_in,
                  info.tcpi_snd_mss,
                  info.tcpi_probes,
                  info.tcpi_state == state_closed};
}

}  // namespace rondo::connect
