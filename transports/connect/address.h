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

// Where a rank listens, as the other ranks are told.
struct Address {
  std::string host;  // base::host_identity()
  std::vector<boost::asio::ip::tcp::endpoint> endpoints;
  // Of the endpoints; where there are fewer, nothing is known of the rest.
  std::vector<Rail> rails{};
  unsigned connections = 1;  // that the rank wants between two interfaces
};

transports::Blob encode(const Address& address);
// Nothing when the bytes are not exactly what encode() writes.
std::optional<Address> decode_address(std::span<const std::byte> bytes);

// "10.0.0.7:41022", "[fd00::2]:41022"
std::string to_text(const boost::asio::ip::tcp::endpoint& endpoint);

// The endpoints of a peer in the order in which they are worth trying from here. same_host:
// loopback first unless the interfaces chosen here leave it out; another host: never loopback,
// never an address that this machine (`own`) has too, as the bridges of containers do; those in a
// network of ours first.
std::vector<boost::asio::ip::tcp::endpoint> candidates(const Address& peer, bool same_host,
                                                       std::span<const LocalAddress> chosen,
                                                       std::span<const LocalAddress> own);

}  // namespace rondo::connect
