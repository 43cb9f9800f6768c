// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/interface_watch.h"

#include <fmt/format.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/file_descriptor.h"

namespace rondo::connect {
namespace {

constexpr std::size_t longest_datagram = 32 << 10;
// Datagrams read at a time, so that a flood of them does not hold up the thread.
constexpr int most_at_once = 64;

// Netlink aligns messages and attributes to four bytes.
constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + 3) & ~std::size_t{3};
}

// Copies, because the bytes may not be aligned for T.
template <class T>
std::optional<T> load(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(T)) return std::nullopt;
  T value{};
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::span<const std::byte> behind(std::span<const std::byte> bytes, std::size_t count) {
  return bytes.subspan(std::min(bytes.size(), count));
}

std::string find_name(std::span<const std::byte> attributes) {
  while (const auto attribute = load<rtattr>(attributes)) {
    const std::size_t bytes = attribute->rta_len;
    if (bytes < sizeof(rtattr) || bytes > attributes.size()) break;
    if (attribute->rta_type == IFLA_IFNAME) {
      const auto value = attributes.first(bytes).subspan(sizeof(rtattr));
      const auto end = std::ranges::find(value, std::byte{0});
      if (end == value.end() || end - value.begin() >= IFNAMSIZ) break;
      return {reinterpret_cast<const char*>(value.data()),
              static_cast<std::size_t>(end - value.begin())};
    }
    attributes = behind(attributes, aligned(bytes));
  }
  return {};
}

InterfaceState state_of(std::uint16_t type, unsigned flags) {
  if (type == RTM_DELLINK) return InterfaceState::gone;
  if ((flags & IFF_UP) == 0) return InterfaceState::down;
  return (flags & IFF_RUNNING) != 0 ? InterfaceState::up : InterfaceState::no_carrier;
}

std::string_view words(InterfaceState state) {
  switch (state) {
    case InterfaceState::up:
      return "up";
    case InterfaceState::no_carrier:
      return "down (no carrier)";
    case InterfaceState::down:
      return "down";
    case InterfaceState::gone:
      return "gone";
  }
  return {};
}

// Empty when this system has no such socket.
base::FileDescriptor listen_to_kernel() {
  base::FileDescriptor socket(
      ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  if (!socket) return socket;
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = RTMGRP_LINK;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    socket.reset();
  return socket;
}

}  // namespace

std::vector<InterfaceNews> decode_interface_news(std::span<const std::byte> datagram) {
  std::vector<InterfaceNews> news;
  while (const auto header = load<nlmsghdr>(datagram)) {
    const std::size_t bytes = header->nlmsg_len;
    if (bytes < sizeof(nlmsghdr) || bytes > datagram.size()) break;
    const auto body = behind(datagram.first(bytes), aligned(sizeof(nlmsghdr)));
    const auto interface = load<ifinfomsg>(body);
    const bool concerns = header->nlmsg_type == RTM_NEWLINK || header->nlmsg_type == RTM_DELLINK;
    // Messages of other families are about the interface's part in something else: AF_BRIDGE says
    // RTM_DELLINK when a port leaves its bridge, and the interface still exists.
    if (concerns && interface && interface->ifi_family == AF_UNSPEC) {
      std::string name = find_name(behind(body, aligned(sizeof(ifinfomsg))));
      if (!name.empty())
        news.push_back({std::move(name), state_of(header->nlmsg_type, interface->ifi_flags)});
    }
    datagram = behind(datagram, aligned(bytes));
  }
  return news;
}

InterfaceWatch::~InterfaceWatch() {
  if (socket_.is_open()) base::remove_own_descriptor(socket_.native_handle());
}

void InterfaceWatch::start(Lost lost) {
  lost_ = std::move(lost);
  base::FileDescriptor socket = listen_to_kernel();
  if (!socket) return;
  socket_.assign(socket.get());
  base::add_own_descriptor(socket.release());  // Asio owns it now
  wait();
}

void InterfaceWatch::wait() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this](const boost::system::error_code& failed) {
                       if (failed) return;
                       read();
                       wait();
                     });
}

// Reads the datagrams that wait, up to most_at_once. If more wait, the thread is woken again.
void InterfaceWatch::read() {
  for (int i = 0; i < most_at_once && read_one(); ++i) {
  }
}

// Reads one datagram. Returns false when none waits.
bool InterfaceWatch::read_one() {
  std::array<std::byte, longest_datagram> buffer;
  sockaddr_nl from{};
  socklen_t length = sizeof from;
  const ssize_t result = ::recvfrom(socket_.native_handle(), buffer.data(), buffer.size(), 0,
                                    reinterpret_cast<sockaddr*>(&from), &length);
  if (result <= 0) return false;
  // nl_pid 0 is the kernel. Other processes may send to this socket too.
  if (length != sizeof from || from.nl_pid != 0) return true;
  for (const auto& news :
       decode_interface_news(std::span(buffer).first(static_cast<std::size_t>(result))))
    heard(news);
  return true;
}

void InterfaceWatch::heard(const InterfaceNews& news) {
  const auto known = without_carrier_.find(news.name);
  if (news.state != InterfaceState::no_carrier) {
    if (known != without_carrier_.end()) without_carrier_.erase(known);
    if (news.state != InterfaceState::up)
      lost_(news.name, fmt::format("interface {} is {}", news.name, words(news.state)));
    return;
  }
  if (known != without_carrier_.end()) return;
  auto& timer = without_carrier_.try_emplace(news.name, context_, carrier_grace).first->second;
  timer.async_wait([this, name = news.name](const boost::system::error_code& failed) {
    if (!failed) expired(name);
  });
}

// When the thread runs late, the end of the grace and news of the carrier are due together, in
// either order. News that still waits is read here first. News that was read before has erased the
// timer, but could not cancel this handler, because the timer had expired. If the carrier was lost
// again, a new timer runs.
void InterfaceWatch::expired(const std::string& name) {
  read();
  const auto known = without_carrier_.find(name);
  if (known == without_carrier_.end() || known->second.expiry() > base::Clock::now()) return;
  lost_(name, fmt::format("interface {} is {}", name, words(InterfaceState::no_carrier)));
}

}  // namespace rondo::connect
