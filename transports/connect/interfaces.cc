// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/interfaces.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

#include <rondo/error.h>

#include "base/text.h"
#include "transports/connect/options.h"

namespace rondo::connect {
namespace {

namespace ip = boost::asio::ip;

std::vector<unsigned char> raw_bytes(const ip::address& address) {
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    return {bytes.begin(), bytes.end()};
  }
  const auto bytes = address.to_v6().to_bytes();
  return {bytes.begin(), bytes.end()};
}

unsigned prefix_of(const sockaddr* mask) {
  unsigned bits = 0;
  if (mask == nullptr) return 0;
  if (mask->sa_family == AF_INET)
    return static_cast<unsigned>(
        std::popcount(reinterpret_cast<const sockaddr_in*>(mask)->sin_addr.s_addr));
  for (const unsigned char byte : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr)
    bits += static_cast<unsigned>(std::popcount(byte));
  return bits;
}

ip::address address_of(const sockaddr* from) {
  if (from->sa_family == AF_INET)
    return ip::address_v4(ntohl(reinterpret_cast<const sockaddr_in*>(from)->sin_addr.s_addr));
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(from);
  ip::address_v6::bytes_type bytes;
  std::memcpy(bytes.data(), v6->sin6_addr.s6_addr, bytes.size());
  return ip::address_v6(bytes);
}

std::string names_of(std::span<const LocalAddress> existing) {
  std::string text;
  for (const LocalAddress& one : existing)
    text +=
        fmt::format("{}{} ({})", text.empty() ? "" : ", ", one.interface, one.address.to_string());
  return text.empty() ? "none" : text;
}

using InterfaceList = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

}  // namespace

std::string describe_interfaces_down() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const InterfaceList owner(first, &freeifaddrs);
  std::vector<std::string_view> names;
  // An interface that is down has no addresses, but an entry of its own.
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next)
    if ((one->ifa_flags & IFF_UP) == 0 && std::ranges::find(names, one->ifa_name) == names.end())
      names.emplace_back(one->ifa_name);
  if (names.empty()) return {};
  std::string text;
  for (const std::string_view name : names)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  return fmt::format("; not up: {} (ip link set {} up)", text, names.front());
}

std::vector<LocalAddress> local_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0)
    throw Error(Errc::system, fmt::format("cannot list the network interfaces: getifaddrs: {}",
                                          std::strerror(errno)));
  const InterfaceList owner(first, &freeifaddrs);
  std::vector<LocalAddress> found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    found.push_back({one->ifa_name, address_of(one->ifa_addr), prefix_of(one->ifa_netmask),
                     (one->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return found;
}

bool is_for_containers(std::string_view interface) {
  constexpr std::array prefixes{"docker", "br-", "virbr",   "lxcbr", "lxdbr",
                                "podman", "cni", "flannel", "cali"};
  return std::ranges::any_of(
      prefixes, [&](std::string_view prefix) { return interface.starts_with(prefix); });
}

std::uint32_t speed_of(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/speed");
  std::int64_t speed = 0;
  return file >> speed && speed > 0 && speed <= 0x7fffffff ? static_cast<std::uint32_t>(speed) : 0;
}

bool same_network(const ip::address& a, const ip::address& b, unsigned bits) {
  if (a.is_v4() != b.is_v4()) return false;
  const auto left = raw_bytes(a), right = raw_bytes(b);
  for (std::size_t i = 0; i < left.size() && i * 8 < bits; ++i) {
    const unsigned wanted = std::min<unsigned>(8, bits - static_cast<unsigned>(i) * 8);
    if ((left[i] ^ right[i]) >> (8 - wanted) != 0) return false;
  }
  return true;
}

InterfaceFilter::Pattern InterfaceFilter::parse(std::string_view text) {
  Pattern pattern;
  pattern.text = text;
  const std::size_t slash = text.find('/');
  boost::system::error_code failed;
  pattern.network = ip::make_address(std::string(text.substr(0, slash)), failed);
  if (failed) {
    if (slash != std::string_view::npos)
      throw Error(
          Errc::invalid_argument,
          fmt::format("interface filter '{}' is no network: write it like 10.0.0.0/8 or fd00::/64",
                      text));
    pattern.prefix = text.back() == '*';
    pattern.name = pattern.prefix ? text.substr(0, text.size() - 1) : text;
    return pattern;
  }
  pattern.is_network = true;
  const unsigned all = pattern.network.is_v4() ? 32 : 128;
  pattern.bits = all;
  if (slash == std::string_view::npos) return pattern;
  const std::string_view digits = text.substr(slash + 1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), pattern.bits);
  if (error != std::errc{} || end != digits.data() + digits.size() || pattern.bits > all)
    throw Error(
        Errc::invalid_argument,
        fmt::format("interface filter '{}': the part behind / must be a number from 0 to {}", text,
                    all));
  return pattern;
}

bool InterfaceFilter::Pattern::matches(const LocalAddress& one) const {
  if (is_network) return same_network(one.address, network, bits);
  return prefix ? one.interface.starts_with(name) : one.interface == name;
}

InterfaceFilter::InterfaceFilter(const std::vector<std::string>& filters,
                                 std::span<const LocalAddress> existing) {
  for (const std::string& filter : filters) {
    const bool exclude_all = base::trim(filter).starts_with('^');
    for (std::string_view rest = base::trim(filter); !rest.empty();) {
      const std::size_t comma = std::min(rest.find(','), rest.size());
      std::string_view item = base::trim(rest.substr(0, comma));
      const bool exclude = item.starts_with('^');
      if (exclude) item = base::trim(item.substr(1));
      if (item.empty())
        throw Error(
            Errc::invalid_argument,
            fmt::format("interface filter '{}' has a part that names nothing: write it like "
                        "eth0,10.0.0.0/8 or ^docker0,lo",
                        filter));
      (exclude || exclude_all ? excluded_ : included_).push_back(parse(item));
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  for (const Pattern& pattern : included_)
    if (std::none_of(existing.begin(), existing.end(),
                     [&](const LocalAddress& one) { return pattern.matches(one); }))
      throw Error(Errc::invalid_argument,
                  fmt::format("no network interface matches '{}'; there are: {}{}", pattern.text,
                              names_of(existing), describe_interfaces_down()));
}

std::string InterfaceFilter::refusal(const LocalAddress& one) const {
  for (const Pattern& pattern : excluded_)
    if (pattern.matches(one)) return fmt::format("excluded by ^{}", pattern.text);
  if (!one.loopback && one.address.is_v6() && one.address.to_v6().is_link_local())
    return "link-local addresses mean something else on every host";
  if (included_.empty()) return {};
  for (const Pattern& pattern : included_)
    if (pattern.matches(one)) return {};
  return "not among the chosen interfaces";
}

bool InterfaceFilter::wants(const LocalAddress& one) const {
  return std::ranges::any_of(included_,
                             [&](const Pattern& pattern) { return pattern.matches(one); });
}

bool may_pair(const LocalAddress& one, const InterfaceFilter& filter) {
  return !one.loopback && (filter.wants(one) || !is_for_containers(one.interface));
}

namespace {

// Describes the use of a chosen address, for `rondo info`.
std::string use_of(const LocalAddress& one, const InterfaceFilter& filter) {
  if (!may_pair(one, filter))
    return "only where routing leads over it: it is for containers, unless a filter names it";
  const std::uint32_t speed = speed_of(one.interface);
  return fmt::format("a path of its own to hosts with an address in its network, /{}{}",
                     one.prefix_bits, speed == 0 ? "" : fmt::format(", at {} Mbit/s", speed));
}

}  // namespace

std::vector<InterfaceInfo> list_interfaces(const std::vector<std::string>& filters) {
  const auto existing = local_addresses();
  const InterfaceFilter filter(filters, existing);
  std::vector<InterfaceInfo> result;
  for (const LocalAddress& one : existing) {
    std::string why = filter.refusal(one);
    const bool chosen = why.empty();
    if (chosen && !one.loopback) why = use_of(one, filter);
    result.push_back(
        {one.interface, one.address.to_string(), one.loopback, chosen, std::move(why)});
  }
  return result;
}

}  // namespace rondo::connect
