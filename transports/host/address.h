// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "transports/transport.h"

namespace rondo::host {

// Where a rank listens, as it tells the other ranks.
struct Address {
  std::string host;  // base::host_identity()
  std::string name;  // its socket in the abstract name space, without the leading zero byte
  std::uint32_t user = 0;
  std::uint32_t process = 0;
};

transports::Blob encode(const Address& address);
// No value when the bytes are not a valid address. They may come from anybody.
std::optional<Address> decode_address(std::span<const std::byte> bytes);

}  // namespace rondo::host
