// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/listen.h"
#include "base/process.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include <rondo/error.h>

#include "base/log.h"
#include "base/shortage.h"
#include "base/text.h"
#include "lib/rendezvous/meeting.h"
#include "lib/settings/reachability.h"
#include "lib/settings/url.h"
#include "lib/wire/name_lookup.h"
#include "lib/wire/socket.h"

namespace rondo::rendezvous {
namespace {

constexpr std::size_t most_announced = 32;

// Returns the addresses of this host that the interface filters choose. Loopback comes last,
// because a list that is cut loses its end. Link-local addresses are left out: they mean nothing on
// another host.
std::vector<wire::Endpoint> chosen_addresses(const Options& options, std::uint16_t port) {
  std::vector<wire::Endpoint> chosen, loopback;
  for (const InterfaceInfo& interface : settings::describe_interfaces(options.interfaces)) {
    if (!interface.chosen || interface.address.starts_with("fe80:")) continue;
    const bool v6 = interface.address.find(':') != std::string::npos;
    for (wire::Endpoint endpoint :
         wire::parse_endpoint(v6 ? "[" + interface.address + "]:1" : interface.address + ":1")) {
      endpoint.set_port(port);
      (interface.loopback ? loopback : chosen).push_back(endpoint);
    }
  }
  chosen.insert(chosen.end(), loopback.begin(), loopback.end());
  return chosen;
}

// Keeps the endpoints that the filters choose. If they choose none, keeps all: an address in the
// URL counts more.
std::vector<wire::Endpoint> prefer_chosen(std::vector<wire::Endpoint> named,
                                          const std::vector<wire::Endpoint>& chosen) {
  const auto left_out = [&](const wire::Endpoint& endpoint) {
    return std::ranges::none_of(chosen,
                                [&](const auto& one) { return one.host() == endpoint.host(); });
  };
  if (!std::ranges::all_of(named, left_out)) std::erase_if(named, left_out);
  return named;
}

// Returns the endpoints that the URL names. For other hosts its name may mean another address of
// this host (Debian maps a host's own name to 127.0.1.1), or a machine in front of it. Then the
// addresses that the interface filters choose are used.
std::vector<wire::Endpoint> tcp_endpoints(const Place& place, const Options& options,
                                          const settings::RendezvousUrl& url) {
  std::string why;
  std::vector<wire::Endpoint> named = wire::resolve(url.host, url.port, place.deadline, why);
  if (named.empty() && place.stays_here())
    throw Error(Errc::rendezvous, "rank 0 cannot listen at " + place.url + ": " + why);
  std::erase_if(named, [](const wire::Endpoint& endpoint) { return !endpoint.is_local(); });
  if (named.empty() && place.stays_here())
    demand_secret(place.url + " is not an address of this host");
  const bool loopback_only = std::ranges::all_of(named, &wire::Endpoint::is_loopback);
  const bool says_loopback = loopback_only && !named.empty() &&
                             (url.host == "localhost" || url.host == named.front().host());
  if (place.stays_here() || (says_loopback && !place.from_several_hosts)) return named;
  std::vector<wire::Endpoint> chosen = chosen_addresses(options, url.port);
  const bool any = std::ranges::any_of(named, &wire::Endpoint::is_any);
  if (!loopback_only && !any) return prefer_chosen(std::move(named), chosen);
  if (any && options.interfaces.empty()) return named;
  if (named.empty())
    base::log_line(base::LogLevel::warning,
                   "rank 0 listens on the chosen interfaces of this host, but " + place.url +
                       " names none of its addresses");
  // Ranks of this host may find its name to be 127.0.1.1, which no interface has.
  for (const wire::Endpoint& endpoint : named)
    if (endpoint.is_loopback() && std::ranges::none_of(chosen, [&](const wire::Endpoint& one) {
          return one.text() == endpoint.text();
        }))
      chosen.push_back(endpoint);
  return chosen;
}

Listening listen_and_announce(const Place& place, const Options& options, std::uint64_t job) {
  Listening listening;
  if (place.stays_here())
    listening.listeners =
        wire::listen_on(wire::loopback_address(0), options.port_first, options.port_last);
  else
    listening = listen_everywhere(options);
  listening.this_host_only = place.stays_here();
  listening.board = board_of(place, options);
  listening.board->announce(
      {job, base::host_identity(), process_identity(), addresses_of(listening.listeners)});
  return listening;
}

Listening listen_again(const Meeting& meeting) {
  Listening listening;
  for (const base::FileDescriptor& listener : meeting.listeners) {
    listening.listeners.emplace_back(::fcntl(listener.get(), F_DUPFD_CLOEXEC, 0));
    if (!listening.listeners.back())
      throw Error(Errc::system, "rank 0 cannot listen: " + base::describe_errno(errno) +
                                    base::remedy_of_shortage(errno));
  }
  return listening;
}

}  // namespace

Listening listen_everywhere(const Options& options) {
  Listening listening;
  listening.listeners =
      wire::listen_on(chosen_addresses(options, 0), options.port_first, options.port_last);
  return listening;
}

std::vector<std::string> addresses_of(const std::vector<base::FileDescriptor>& listeners) {
  std::vector<wire::Endpoint> endpoints;
  endpoints.reserve(listeners.size());
  for (const base::FileDescriptor& listener : listeners)
    endpoints.push_back(wire::own_endpoint(listener.get()));
  std::stable_partition(endpoints.begin(), endpoints.end(),
                        [](const wire::Endpoint& endpoint) { return endpoint.is_loopback(); });
  std::vector<std::string> addresses;
  for (const wire::Endpoint& endpoint : endpoints)
    if (addresses.size() < most_announced) addresses.push_back(endpoint.text());
  return addresses;
}

std::unique_ptr<Board> board_of(const Place& place, const Options& options) {
  if (options.store != nullptr) return store_board(*options.store);
  if (place.meeting) return nullptr;
  const settings::RendezvousUrl url = settings::parse_rendezvous(place.url, "the rendezvous");
  return url.kind == settings::RendezvousUrl::Kind::file ? file_board(url.path) : nullptr;
}

std::string name_of_rendezvous(const Place& place, const Options& options) {
  return options.store != nullptr ? "the program's store" : place.url;
}

void demand_secret(const std::string& what) {
  throw Error(
      Errc::authentication,
      what +
          ", and without a job secret only ranks of one host can meet: set RONDO_SECRET to the "
          "same text on all ranks");
}

Listening start_listening(const Place& place, const Options& options, std::uint64_t job) {
  if (place.meeting) return listen_again(*place.meeting);
  try {
    if (board_of(place, options)) return listen_and_announce(place, options, job);
    Listening listening;
    listening.this_host_only = place.stays_here();
    const settings::RendezvousUrl url = settings::parse_rendezvous(place.url, "the rendezvous");
    listening.listeners = wire::listen_on(tcp_endpoints(place, options, url), 0, 0);
    return listening;
  } catch (const Error& error) {
    if (error.code() != Errc::system || options.store != nullptr) throw;
    throw Error(Errc::system, "rank 0 cannot listen at " + place.url + ": " + error.what());
  }
}

}  // namespace rondo::rendezvous
