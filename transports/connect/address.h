// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transports/connect/interfaces.h"
#include "transports/transport.h"

namespace rondo::connect {

// The interface behind an endpoint.
struct Rail {
  std::string interface;
  std::uint32_t speed = 0;  // Mbit/s; 0: not known
  std::uint8_t prefix_bits = 0;
  bool pairs = false;  // may_pair()
  bool operator==(const Rail&) const = default;
};

// Where a rank listens, as it tells the other ranks.
struct Address {
  std::string host;  // base::host_identity()
  std::vector<boost::asio::ip::tcp::endpoint> endpoints;
  // One for each endpoint, in the same order. If there are fewer, the rest are not known.
  std::vector<Rail> rails{};
  unsigned connections = 1;  // how many the rank wants between two interfaces
};

transports::Blob encode(const Address& address);
// No value when the bytes are not a valid address. They may come from anybody.
std::optional<Address> decode_address(std::span<const std::byte> bytes);

// "10.0.0.7:41022", "[fd00::2]:41022"
std::string to_text(const boost::asio::ip::tcp::endpoint& endpoint);

// The endpoints of a peer in the order in which this rank should try them. For a peer of this host
// loopback comes first, or last if the interfaces chosen here leave it out. For another host
// loopback is left out. So is every address that this machine (`own`) has too: bridges for
// containers have the same address on many hosts. Endpoints in a network of a chosen interface come
// before the others.
std::vector<boost::asio::ip::tcp::endpoint> candidates(const Address& peer, bool same_host,
                                                       std::span<const LocalAddress> chosen,
                                                       std::span<const LocalAddress> own);

}  // namespace rondo::connect
