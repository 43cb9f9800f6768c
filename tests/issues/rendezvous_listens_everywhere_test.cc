// SPDX-License-Identifier: Apache-2.0
//
// With a job secret rank 0 listened on every address of its host, whatever the URL and the
// interface filters said.
#include <algorithm>
#include <filesystem>

#include "catch.h"
#include "lib/ranks.h"
#include "lib/rendezvous/listen.h"
#include "lib/settings/reachability.h"

namespace rondo::tests {
namespace {

std::vector<std::string> hosts_of(const rendezvous::Listening& listening) {
  std::vector<std::string> hosts;
  for (const base::FileDescriptor& listener : listening.listeners)
    hosts.push_back(wire::own_endpoint(listener.get()).host());
  return hosts;
}

// An IPv4 address of this host other than loopback, if it has one.
std::string other_address() {
  for (const InterfaceInfo& one : settings::describe_interfaces({}))
    if (!one.loopback && one.chosen && one.address.find(':') == std::string::npos)
      return one.address;
  return {};
}

bool all_loopback(const rendezvous::Listening& listening) {
  return std::ranges::all_of(listening.listeners, [](const base::FileDescriptor& listener) {
    return wire::own_endpoint(listener.get()).is_loopback();
  });
}

// A file name that no other process uses.
std::string free_file() {
  return "file://" +
         (std::filesystem::temp_directory_path() / ("rondo-listens-" + std::to_string(::getpid())))
             .string();
}

}  // namespace

TEST_CASE("rank 0 listens at the address in the URL and nowhere else") {
  const std::string address = other_address();
  if (address.empty()) {
    WARN("skipped: this host has no IPv4 address other than loopback");
    return;
  }
  const std::string url = "tcp://" + address + ":" + std::to_string(free_port());
  const Options options;
  const rendezvous::Listening listening =
      rendezvous::start_listening(place_of(0, 2, url, "secret"), options, 1);
  CHECK(hosts_of(listening) == std::vector<std::string>{address});
}

TEST_CASE("an announced rank 0 listens on the chosen interfaces alone") {
  Options options;
  options.interfaces = {"lo"};
  const rendezvous::Listening listening =
      rendezvous::start_listening(place_of(0, 2, free_file(), "secret"), options, 1);
  REQUIRE(!listening.listeners.empty());
  CHECK(all_loopback(listening));
}

TEST_CASE("a URL that names every address leaves the choice to the interface filters") {
  Options options;
  options.interfaces = {"lo"};
  const std::string url = "tcp://0.0.0.0:" + std::to_string(free_port());
  const rendezvous::Listening listening =
      rendezvous::start_listening(place_of(0, 2, url, "secret"), options, 1);
  REQUIRE(!listening.listeners.empty());
  CHECK(all_loopback(listening));
}

TEST_CASE("ranks meet where an announced rank 0 listens") {
  const std::string url = free_file();
  Options options = with_deadline(milliseconds{20'000});
  options.interfaces = {"lo"};
  CHECK(what_is_wrong(join_all(all_places(3, url, "secret"), options)).empty());
  options.interfaces.clear();
  CHECK(what_is_wrong(join_all(all_places(3, url, "secret"), options)).empty());
}

}  // namespace rondo::tests
