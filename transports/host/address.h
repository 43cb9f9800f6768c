// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "transports/transport.h"

namespace rondo::host {

// Where a rank listens, as the other ranks are told.
struct Address {
  std::string host;  // base::host_identity()
  std::string name;  // of the socket in the abstract name space, without the leading zero byte
  std::uint32_t user = 0;
  std::uint32_t process = 0;
};

transports::Blob encode(const Address& address);
// Nothing when the bytes are not exactly what encode() writes.
std::optional<Address> decode_address(std::span<const std::byte> bytes);

}  // namespace rondo::host
