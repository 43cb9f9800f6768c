// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous_listen.h"

#include <algorithm>

#include <rondo/error.h>

#include "base/log.h"
#include "lib/reachability.h"
#include "lib/rendezvous_socket.h"
#include "lib/rendezvous_url.h"

namespace rondo {
namespace {

constexpr std::size_t most_announced = 32;

// Without a secret: the addresses of the host in the URL, which must be this one. With one: every address of this machine, since
// the name may mean another of them to other hosts; loopback alone where the URL says loopback.
std::vector<Endpoint> tcp_endpoints(const Place& place, const RendezvousUrl& url) {
  std::string why;
  std::vector<Endpoint> named = resolve(url.host, url.port, why);
  const bool loopback_only = !named.empty() && std::ranges::all_of(named, &Endpoint::is_loopback);
  const bool says_loopback = loopback_only && (url.host == "localhost" || url.host == named.front().host());
  if (!place.secret.empty() && !says_loopback) {
    if (std::ranges::none_of(named, &Endpoint::is_local))
      log_line(LogLevel::warning,
               "rank 0 listens on all addresses of this host, but " + place.url + " names none of them");
    return any_address(url.port);
  }
  if (named.empty()) throw Error(Errc::rendezvous, "rank 0 cannot listen at " + place.url + ": " + why);
  std::erase_if(named, [](const Endpoint& endpoint) { return !endpoint.is_local(); });
  if (named.empty()) demand_secret(place.url + " is not an address of this host");
  return named;
}

// Loopback first: ranks of the same host try them in this order.
std::vector<std::string> reachable_addresses(const Options& options, std::uint16_t port,
                                             bool this_host_only) {
  std::vector<std::string> addresses{"127.0.0.1:" + std::to_string(port)};
  if (this_host_only) return addresses;
  for (const InterfaceInfo& interface : describe_interfaces(options.interfaces)) {
    if (interface.loopback || !interface.chosen || addresses.size() == most_announced) continue;
    const bool v6 = interface.address.find(':') != std::string::npos;
    const std::string text =
        (v6 ? "[" + interface.address + "]:" : interface.address + ":") + std::to_string(port);
    // Link-local addresses mean nothing on another host.
    if (!interface.address.starts_with("fe80:") && !parse_endpoint(text).empty()) addresses.push_back(text);
  }
  return addresses;
}

Reception announce_reception(const Place& place, const Options& options, std::uint64_t job) {
  Reception reception;
  reception.this_host_only = place.secret.empty() || place.this_host_only;
  reception.listeners = listen_on(reception.this_host_only ? loopback_address(0) : any_address(0),
                                  options.port_first, options.port_last);
  reception.board = board_of(place, options);
  const std::uint16_t port = own_endpoint(reception.listeners.front().get()).port();
  reception.board->announce({job, host_identity(), process_identity(),
                             reachable_addresses(options, port, reception.this_host_only)});
  return reception;
}

}  // namespace

std::unique_ptr<Board> board_of(const Place& place, const Options& options) {
  if (options.store != nullptr) return store_board(*options.store);
  const RendezvousUrl url = parse_rendezvous(place.url, "the rendezvous");
  return url.kind == RendezvousUrl::Kind::file ? file_board(url.path) : nullptr;
}

std::string meeting_place(const Place& place, const Options& options) {
  return options.store != nullptr ? "the program's store" : place.url;
}

void demand_secret(const std::string& what) {
  throw Error(Errc::authentication,
              what +
                  ", and without a job secret only ranks of one host can meet: set RONDO_SECRET to the "
                  "same text on all ranks");
}

Reception open_reception(const Place& place, const Options& options, std::uint64_t job) {
  try {
    if (board_of(place, options)) return announce_reception(place, options, job);
    Reception reception;
    reception.this_host_only = place.secret.empty();
    const RendezvousUrl url = parse_rendezvous(place.url, "the rendezvous");
    reception.listeners = listen_on(tcp_endpoints(place, url), 0, 0);
    return reception;
  } catch (const Error& error) {
    if (error.code() != Errc::system || options.store != nullptr) throw;
    throw Error(
        Errc::system,
        "rank 0 cannot listen at " + place.url + ": " + error.what() +
            "; if the address is in use, another rank 0 or another program has it: take another port");
  }
}

}  // namespace rondo
