// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transports/connect/address.h"
#include "transports/rdma/devices.h"
#include "transports/transport.h"

namespace rondo::rdma {

inline constexpr std::size_t most_ports = 8;

// A port as the other ranks know it.
struct PortAddress {
  GidKind kind = GidKind::ib;
  std::uint8_t gid_index = 0;  // for messages
  Gid gid{};
  std::uint16_t lid = 0;
  std::uint8_t mtu = IBV_MTU_1024;
  std::string device;  // "mlx5_0:1", for messages
};

// A rank's address: its ports, and where it listens for the connections that set links up.
struct Address {
  std::vector<PortAddress> ports;
  connect::Address connections;
};

// The first most_ports ports.
std::vector<PortAddress> addresses_of(std::span<const Port> ports);
transports::Blob encode(const std::vector<PortAddress>& ports);
// No value when the bytes are not valid ports of this version. They may come from anybody.
std::optional<std::vector<PortAddress>> decode_ports(std::span<const std::byte> bytes);
transports::Blob encode(const Address& address);
// No value when the bytes are not a valid address of this version. They may come from anybody.
std::optional<Address> decode_address(std::span<const std::byte> bytes);

// Two ports that can talk to each other.
struct PortPair {
  std::size_t mine = 0, theirs = 0;  // positions in the lists of ports
};
// The pairs of a link, the same on both ends but for the sides: port by port, as far as ports of
// one kind go. Empty: no port of this rank can talk to one of the peer.
std::vector<PortPair> pair_ports(std::span<const PortAddress> mine,
                                 std::span<const PortAddress> theirs);
// "mlx5_0:1 RoCE v2 (IPv4) GID 1 10.0.0.7, MTU 4096"
std::string describe(const PortAddress& port);

}  // namespace rondo::rdma
