// SPDX-License-Identifier: Apache-2.0
//
// The grammar of an address. Little endian, at most 24 + 256 + 96 bytes:
//   address = magic:u32 ("RSHM") version:u16 (2) reserved:u16 (0) user:u32 process:u32
//             host:string name:string
//   string  = length:u32 byte*length          ; host at most 256, name 1 to 96
// Nothing follows. name: a Unix socket in the abstract name space, without the leading zero byte.
#include "transports/host/address.h"

#include "base/bytes.h"

namespace rondo::host {
namespace {

constexpr std::uint32_t address_magic = 0x4d485352;  // "RSHM"
constexpr std::uint16_t address_version = 2;
constexpr std::size_t max_host = 256, max_name = 96;

}  // namespace

transports::Blob encode(const Address& address) {
  base::Writer writer;
  writer.put(address_magic);
  writer.put(address_version);
  writer.put(std::uint16_t{0});
  writer.put(address.user);
  writer.put(address.process);
  writer.put_string(std::string_view(address.host).substr(0, max_host));
  writer.put_string(std::string_view(address.name).substr(0, max_name));
  return writer.take();
}

std::optional<Address> decode_address(std::span<const std::byte> bytes) {
  base::Reader reader(bytes);
  if (reader.get<std::uint32_t>() != address_magic ||
      reader.get<std::uint16_t>() != address_version || reader.get<std::uint16_t>() != 0)
    return std::nullopt;
  Address address;
  address.user = reader.get<std::uint32_t>();
  address.process = reader.get<std::uint32_t>();
  address.host = reader.get_string(max_host);
  address.name = reader.get_string(max_name);
  if (!reader.ok() || reader.left() != 0 || address.name.empty()) return std::nullopt;
  return address;
}

}  // namespace rondo::host
