// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace rondo::connect {

// A TCP connection as the kernel reports it (TCP_INFO). Fields that an older kernel lacks are 0.
struct TcpState {
  std::chrono::microseconds round_trip{};
  std::chrono::microseconds least_round_trip{};
  std::chrono::microseconds busy{};  // with something to send
  std::uint64_t acknowledged_bytes = 0;
  std::uint32_t unsent_bytes = 0;
  std::uint32_t segments_in_flight = 0;
  std::uint32_t sent_segments = 0, resent_segments = 0;  // with data
  std::uint32_t received_segments = 0;                   // with or without
  std::uint32_t segment_bytes = 0;                       // of the largest segment that it sends
  unsigned unanswered_probes = 0;
  bool closed = false;  // by a reset, by a timeout, or by both ends
};

// No value: the kernel does not say.
std::optional<TcpState> read_tcp_state(int socket) noexcept;

}  // namespace rondo::connect
