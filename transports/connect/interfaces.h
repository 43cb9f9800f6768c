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
std::vector<LocalAddress> local_addresses();
// For a message: "; not up: lo (ip link set lo up)", or nothing when all interfaces are up. Does
// not throw.
std::string describe_interfaces_down();

// Made by container and virtual machine software: it joins processes of one host, or runs over
// another interface.
bool is_for_containers(std::string_view interface);
// Mbit/s as the driver says it; 0 when it does not.
std::uint32_t speed_of(const std::string& interface);

// True when the first `bits` bits are equal and the families too.
bool same_network(const boost::asio::ip::address& a, const boost::asio::ip::address& b,
                  unsigned bits);

// The user's choice of interfaces. Each filter is a comma separated list of names ("eth0", or
// "eth*" for all that begin so) and networks ("10.0.0.0/8", "fd00::2"); a list that begins with ^
// excludes all that it names, otherwise ^ before an item excludes that item. Nothing given:
// everything is chosen. Only exclusions: everything else is. What is excluded stays so even when
// something else includes it.
class InterfaceFilter {
 public:
  // Throws Error(invalid_argument), with a list of what exists, when something to include does not
  // exist.
  InterfaceFilter(const std::vector<std::string>& filters, std::span<const LocalAddress> existing);
  // Empty when the address is chosen, else why it is not.
  std::string refusal(const LocalAddress& address) const;
  bool given() const noexcept { return !included_.empty() || !excluded_.empty(); }
  // True when something to include matches: somebody wants exactly this.
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

// Connections of their own may run over this address: it is neither loopback nor an interface for
// containers that no filter names.
bool may_pair(const LocalAddress& address, const InterfaceFilter& filter);

}  // namespace rondo::connect
