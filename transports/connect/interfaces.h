// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::connect {

// An address of an interface of this machine that is up.
struct LocalAddress {
  std::string interface;
  boost::asio::ip::address address;
  unsigned prefix_bits = 0;
  bool loopback = false;
};
// Throws Error(system) when the system does not list them. IPv4 and IPv6 only.
std::vector<LocalAddress> local_addresses();
// For a message: "; not up: lo (ip link set lo up)", or nothing when all interfaces are up.
std::string describe_interfaces_down();

// True when the name is one that container or virtual machine software gives. Such an interface
// joins processes of one host, or runs over another interface.
bool is_for_containers(std::string_view interface);
// In Mbit/s, as the driver reports it; 0 when it does not.
std::uint32_t speed_of(const std::string& interface);

// True when the families and the first `bits` bits are equal.
bool same_network(const boost::asio::ip::address& a, const boost::asio::ip::address& b,
                  unsigned bits);

// The user's choice of interfaces. Each filter is a list, separated by commas, of names ("eth0", or
// "eth*" for all that begin with eth) and networks ("10.0.0.0/8", "fd00::2"). A list that begins
// with ^ excludes all that it names; elsewhere ^ before an item excludes that item. Without items
// to include, all that is not excluded is chosen. An exclusion wins over an inclusion. IPv6
// link-local addresses are never chosen. Immutable, so thread-safe.
class InterfaceFilter {
 public:
  // Throws Error(invalid_argument) when an item is malformed, or when nothing matches an item to
  // include; then the text lists the existing interfaces.
  InterfaceFilter(const std::vector<std::string>& filters, std::span<const LocalAddress> existing);
  // Why the address is not chosen; empty when it is.
  std::string refusal(const LocalAddress& address) const;
  bool given() const noexcept { return !included_.empty() || !excluded_.empty(); }
  // True when an item to include matches: the user names this address or interface.
  bool wants(const LocalAddress& address) const;

 private:
  struct Pattern {
    std::string text, name;
    bool is_network = false, prefix = false;
    boost::asio::ip::address network;
    unsigned bits = 0;
    bool matches(const LocalAddress& address) const;
  };
  static Pattern parse(std::string_view text);
  std::vector<Pattern> included_, excluded_;
};

// True when a link may have a connection of its own over this address: it is not loopback, and not
// on an interface for containers, unless a filter names that.
bool may_pair(const LocalAddress& address, const InterfaceFilter& filter);

}  // namespace rondo::connect
