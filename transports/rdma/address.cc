// SPDX-License-Identifier: Apache-2.0
//
//   address = version:u32 ports:u32 port* connections:string
//   port    = kind:u8 gid_index:u8 lid:u16 mtu:u8 gid:16 bytes device:string
// `version ports port*` also travels alone (transports/stream.h). A string is a u32 length and its
// bytes; connections is the address of transports/connect.
#include "transports/rdma/address.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"

namespace rondo::rdma {
namespace {

constexpr std::uint32_t address_version = 2;
constexpr std::size_t longest_name = 80, longest_connections = 64 << 10;

// Whether packets can go from one to the other, as far as the addresses tell. InfiniBand ports of
// different subnets would need a router.
bool can_talk(const PortAddress& a, const PortAddress& b) noexcept {
  if (a.kind != b.kind) return false;
  return a.kind != GidKind::ib || std::memcmp(a.gid.data(), b.gid.data(), 8) == 0;
}

void put_ports(base::Writer& writer, const std::vector<PortAddress>& ports) {
  writer.put(address_version);
  writer.put(static_cast<std::uint32_t>(ports.size()));
  for (const PortAddress& port : ports) {
    writer.put(static_cast<std::uint8_t>(port.kind));
    writer.put(port.gid_index);
    writer.put(port.lid);
    writer.put(port.mtu);
    writer.put_bytes(port.gid);
    writer.put_string(port.device);
  }
}

std::optional<std::vector<PortAddress>> get_ports(base::Reader& reader) {
  if (reader.get<std::uint32_t>() != address_version) return std::nullopt;
  const auto count = reader.get<std::uint32_t>();
  if (count == 0 || count > most_ports) return std::nullopt;
  std::vector<PortAddress> ports;
  for (std::uint32_t i = 0; i < count; ++i) {
    PortAddress port;
    const auto kind = reader.get<std::uint8_t>();
    if (kind > static_cast<std::uint8_t>(GidKind::ib)) return std::nullopt;
    port.kind = static_cast<GidKind>(kind);
    port.gid_index = reader.get<std::uint8_t>();
    port.lid = reader.get<std::uint16_t>();
    port.mtu = reader.get<std::uint8_t>();
    if (port.mtu < IBV_MTU_256 || port.mtu > IBV_MTU_4096) return std::nullopt;
    const auto gid = reader.get_bytes(port.gid.size());
    if (!reader.ok()) return std::nullopt;
    std::memcpy(port.gid.data(), gid.data(), gid.size());
    port.device = reader.get_string(longest_name);
    if (std::ranges::any_of(port.device, [](char c) { return c <= ' ' || c > '~'; }))
      return std::nullopt;
    ports.push_back(std::move(port));
  }
  return ports;
}

}  // namespace

std::vector<PortAddress> addresses_of(std::span<const Port> ports) {
  std::vector<PortAddress> addresses;
  for (const Port& port : ports.first(std::min(ports.size(), most_ports)))
    addresses.push_back({port.kind, port.gid_index, port.gid, port.lid,
                         static_cast<std::uint8_t>(port.mtu), name_of(port)});
  return addresses;
}

transports::Blob encode(const std::vector<PortAddress>& ports) {
  base::Writer writer;
  put_ports(writer, ports);
  return writer.take();
}

std::optional<std::vector<PortAddress>> decode_ports(std::span<const std::byte> bytes) {
  base::Reader reader(bytes);
  auto ports = get_ports(reader);
  if (!reader.ok() || reader.left() != 0) return std::nullopt;
  return ports;
}

transports::Blob encode(const Address& address) {
  base::Writer writer;
  put_ports(writer, address.ports);
  const transports::Blob connections = connect::encode(address.connections);
  writer.put_string({reinterpret_cast<const char*>(connections.data()), connections.size()});
  return writer.take();
}

std::optional<Address> decode_address(std::span<const std::byte> bytes) {
  base::Reader reader(bytes);
  auto ports = get_ports(reader);
  const std::string connections = reader.get_string(longest_connections);
  if (!ports || !reader.ok() || reader.left() != 0) return std::nullopt;
  auto decoded = connect::decode_address(std::as_bytes(std::span(connections)));
  if (!decoded) return std::nullopt;
  return Address{std::move(*ports), std::move(*decoded)};
}

std::vector<PortPair> pair_ports(std::span<const PortAddress> mine,
                                 std::span<const PortAddress> theirs) {
  std::vector<PortPair> pairs;
  std::array<bool, most_ports> taken{};
  for (std::size_t i = 0; i < mine.size(); ++i)
    for (std::size_t j = 0; j < theirs.size(); ++j) {
      if (taken[j] || !can_talk(mine[i], theirs[j])) continue;
      taken[j] = true;
      pairs.push_back({i, j});
      break;
    }
  return pairs;
}

std::string describe(const PortAddress& port) {
  return fmt::format("{} {} GID {} {}, MTU {}", port.device, name_of(port.kind), port.gid_index,
                     to_text(port.gid), 128u << port.mtu);
}

}  // namespace rondo::rdma
