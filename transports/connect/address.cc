// SPDX-License-Identifier: Apache-2.0
//
// The grammar of an address. Little endian, at most 16 + 256 + 32 * 44 bytes:
//   address  = magic:u32 ("RTCP") version:u16 (2) count:u16 (1 to 32) connections:u32 (1 to 16)
//              host:string endpoint*count
//   string   = length:u32 (at most 256) byte*length
//   endpoint = family:u8 (4 or 6) port:u16 (not 0) byte*16 (IPv4: the first four, the others 0)
//              prefix:u8 (at most 32 or 128) pairs:u8 (0 or 1) speed:u32 (Mbit/s, 0: not known)
//              interface:string (at most 15)
// Nothing follows. Wildcard and multicast addresses are refused.
#include "transports/connect/address.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "transports/connect/options.h"

namespace rondo::connect {
namespace {

namespace ip = boost::asio::ip;
using Endpoint = ip::tcp::endpoint;

constexpr std::uint32_t address_magic = 0x50435452;  // "RTCP"
constexpr std::uint16_t address_version = 2;
constexpr std::size_t max_endpoints = 32, max_host = 256, max_interface = 15;

std::optional<Endpoint> read_endpoint(base::Reader& reader) {
  const auto family = reader.get<std::uint8_t>();
  const auto port = reader.get<std::uint16_t>();
  const auto raw = reader.get_bytes(16);
  if (!reader.ok() || port == 0 || (family != 4 && family != 6)) return std::nullopt;
  ip::address_v6::bytes_type bytes;
  std::transform(raw.begin(), raw.end(), bytes.begin(),
                 [](std::byte b) { return std::to_integer<unsigned char>(b); });
  ip::address address = ip::address_v6(bytes);
  if (family == 4) {
    if (std::any_of(bytes.begin() + 4, bytes.end(), [](unsigned char b) { return b != 0; }))
      return std::nullopt;
    address = ip::address_v4({bytes[0], bytes[1], bytes[2], bytes[3]});
  }
  if (address.is_unspecified() || address.is_multicast()) return std::nullopt;
  return Endpoint(address, port);
}

std::optional<Rail> read_rail(base::Reader& reader, bool v4) {
  Rail rail;
  rail.prefix_bits = reader.get<std::uint8_t>();
  const auto pairs = reader.get<std::uint8_t>();
  rail.speed = reader.get<std::uint32_t>();
  rail.interface = reader.get_string(max_interface);
  if (!reader.ok() || pairs > 1 || rail.prefix_bits > (v4 ? 32 : 128)) return std::nullopt;
  if (std::ranges::any_of(rail.interface, [](char c) { return c <= ' ' || c > '~'; }))
    return std::nullopt;
  rail.pairs = pairs == 1;
  return rail;
}

void write_rail(base::Writer& writer, const Rail& rail) {
  writer.put(rail.prefix_bits);
  writer.put(static_cast<std::uint8_t>(rail.pairs ? 1 : 0));
  writer.put(rail.speed);
  writer.put_string(std::string_view(rail.interface).substr(0, max_interface));
}

}  // namespace

transports::Blob encode(const Address& address) {
  const std::size_t count = std::min(address.endpoints.size(), max_endpoints);
  base::Writer writer;
  writer.put(address_magic);
  writer.put(address_version);
  writer.put(static_cast<std::uint16_t>(count));
  writer.put(static_cast<std::uint32_t>(address.connections));
  writer.put_string(std::string_view(address.host).substr(0, max_host));
  for (std::size_t i = 0; i < count; ++i) {
    const Endpoint& endpoint = address.endpoints[i];
    std::array<unsigned char, 16> bytes{};
    if (endpoint.address().is_v4())
      std::ranges::copy(endpoint.address().to_v4().to_bytes(), bytes.begin());
    else
      std::ranges::copy(endpoint.address().to_v6().to_bytes(), bytes.begin());
    writer.put(static_cast<std::uint8_t>(endpoint.address().is_v4() ? 4 : 6));
    writer.put(static_cast<std::uint16_t>(endpoint.port()));
    writer.put_bytes(std::as_bytes(std::span(bytes)));
    write_rail(writer, i < address.rails.size() ? address.rails[i] : Rail{});
  }
  return writer.take();
}

std::optional<Address> decode_address(std::span<const std::byte> bytes) {
  base::Reader reader(bytes);
  if (reader.get<std::uint32_t>() != address_magic ||
      reader.get<std::uint16_t>() != address_version)
    return std::nullopt;
  const std::size_t count = reader.get<std::uint16_t>();
  if (count == 0 || count > max_endpoints) return std::nullopt;
  Address address;
  address.connections = reader.get<std::uint32_t>();
  if (address.connections == 0 || address.connections > most_connections) return std::nullopt;
  address.host = reader.get_string(max_host);
  for (std::size_t i = 0; i < count && reader.ok(); ++i) {
    const auto endpoint = read_endpoint(reader);
    if (!endpoint) return std::nullopt;
    const auto rail = read_rail(reader, endpoint->address().is_v4());
    if (!rail) return std::nullopt;
    address.endpoints.push_back(*endpoint);
    address.rails.push_back(*rail);
  }
  if (!reader.ok() || reader.left() != 0) return std::nullopt;
  return address;
}

std::string to_text(const Endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  if (endpoint.address().is_v6()) return fmt::format("[{}]:{}", address, endpoint.port());
  return fmt::format("{}:{}", address, endpoint.port());
}

std::vector<Endpoint> candidates(const Address& peer, bool same_host,
                                 std::span<const LocalAddress> chosen,
                                 std::span<const LocalAddress> own) {
  const bool loopback_chosen =
      std::any_of(chosen.begin(), chosen.end(), [](const auto& one) { return one.loopback; });
  const auto cost = [&](const Endpoint& endpoint) {
    const ip::address address = endpoint.address();
    if (address.is_loopback()) return loopback_chosen ? 0 : 9;
    int best = 4;
    for (const LocalAddress& mine : chosen) {
      if (mine.loopback || mine.address.is_v4() != address.is_v4()) continue;
      best = std::min(best, same_network(mine.address, address, mine.prefix_bits) ? 1 : 2);
    }
    return best;
  };
  std::vector<Endpoint> result;
  const auto is_own = [&](const Endpoint& endpoint) {
    return std::ranges::any_of(own,
                               [&](const auto& one) { return one.address == endpoint.address(); });
  };
  for (const Endpoint& endpoint : peer.endpoints)
    if (same_host || (!endpoint.address().is_loopback() && !is_own(endpoint)))
      result.push_back(endpoint);
  std::stable_sort(result.begin(), result.end(),
                   [&](const Endpoint& a, const Endpoint& b) { return cost(a) < cost(b); });
  return result;
}

}  // namespace rondo::connect
