// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace rondo::settings {

struct RendezvousUrl {
  enum class Kind { tcp, file };
  Kind kind = Kind::tcp;
  std::string host;  // tcp: a name or a number, without brackets
  std::uint16_t port = 0;
  std::string path;  // file: absolute
};

// Reads tcp://host:port, tcp://[IPv6]:port or file:///path. Throws Error(invalid_argument), which
// says what is possible. `where` is who gave the URL: "RONDO_RENDEZVOUS", "Options::rendezvous".
// Thread-safe.
RendezvousUrl parse_rendezvous(std::string_view url, std::string_view where);

}  // namespace rondo::settings
