// SPDX-License-Identifier: Apache-2.0
#include "transports/host/listener.h"

#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include <rondo/error.h>

#include "base/shared_memory.h"
#include "transports/host/packet.h"

namespace rondo::host {

Listener open_listener(int size, std::size_t bytes) {
  Listener listener;
  std::array<std::uint64_t, 2> random{};
  try {
    // Checks for as many ranks as this host can have: their number is not known yet, and both ends
    // of a link must choose the same transport.
    if (!base::fits_file_limit(bytes))
      throw Error(
          Errc::system,
          fmt::format("{} ranks need {} bytes of shared memory each, more than the limit of file "
                      "sizes allows: raise it (ulimit -f)",
                      size, bytes));
    (void)base::make_shared_memory(4096);
    if (::getrandom(random.data(), sizeof random, 0) != static_cast<ssize_t>(sizeof random))
      throw Error(Errc::system,
                  fmt::format("getrandom: {}", std::generic_category().message(errno)));
    listener.name =
        fmt::format("rondo-{}-{}-{:016x}{:016x}", ::geteuid(), ::getpid(), random[0], random[1]);
    listener.socket = listen_at_name(listener.name, std::max(128, 2 * size));
  } catch (const Error& error) {
    listener.obstacle = error.what();
  }
  return listener;
}

}  // namespace rondo::host
