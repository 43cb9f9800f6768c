// SPDX-License-Identifier: Apache-2.0
#include "lib/settings/url.h"

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::settings {
namespace {

constexpr std::string_view tcp_scheme = "tcp://", file_scheme = "file://";
constexpr std::size_t most_url_bytes = 2048;

[[noreturn]] void refuse(std::string_view url, std::string_view where, std::string_view why) {
  throw Error(Errc::invalid_argument,
              std::string(where) + " is '" + std::string(url.substr(0, 200)) +
                  "': " + std::string(why) +
                  "; possible are tcp://HOST:PORT (rank 0 listens there), file:///PATH (a file "
                  "that all ranks share) and env:// (the launcher's variables)");
}

}  // namespace

RendezvousUrl parse_rendezvous(std::string_view url, std::string_view where) {
  RendezvousUrl parsed;
  if (url.size() > most_url_bytes || url.find('\0') != std::string_view::npos)
    refuse(url, where, "it is longer than 2048 bytes or holds a zero byte");
  if (url.starts_with(file_scheme)) {
    parsed.kind = RendezvousUrl::Kind::file;
    parsed.path = url.substr(file_scheme.size());
    if (!parsed.path.starts_with('/'))
      refuse(url, where, "the path of a file:// URL begins with a slash");
    if (parsed.path.ends_with('/')) refuse(url, where, "the path names a directory, not a file");
    return parsed;
  }
  if (!url.starts_with(tcp_scheme)) refuse(url, where, "the scheme is not known");
  const std::string_view rest = url.substr(tcp_scheme.size());
  const auto colon = rest.rfind(':');
  if (colon == std::string_view::npos) refuse(url, where, "there is no port");
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') != host.ends_with(']')) refuse(url, where, "the brackets do not match");
  if (host.starts_with('[')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    refuse(url, where, "an IPv6 address stands in brackets, tcp://[fd00::1]:29500");
  }
  if (host.empty()) refuse(url, where, "there is no host");
  if (host.find_first_of("/@?# ") != std::string_view::npos)
    refuse(url, where, "the host is not a name or an address");
  parsed.port = base::parse_whole<std::uint16_t>(rest.substr(colon + 1)).value_or(0);
  if (parsed.port == 0) refuse(url, where, "the port is not a number from 1 to 65535");
  parsed.host = host;
  return parsed;
}

}  // namespace rondo::settings
