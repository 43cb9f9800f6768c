// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace rondo::connect {

enum class InterfaceState { up, no_carrier, down, gone };

// The state of one interface, as the kernel reports it.
struct InterfaceNews {
  std::string name;
  InterfaceState state = InterfaceState::up;
  bool operator==(const InterfaceNews&) const = default;
};

// Takes the states of interfaces from a datagram of NETLINK_ROUTE and skips other messages. Stops
// at the first message with an impossible length.
std::vector<InterfaceNews> decode_interface_news(std::span<const std::byte> datagram);

// Reports interfaces that go down: at once, or after carrier_grace when only the carrier is lost.
// Reports nothing where the system has no netlink socket. Thread-bound (the thread that runs the
// context), without locks.
class InterfaceWatch {
 public:
  // The interface, and words for a message: "interface eth1 is down".
  using Lost = std::function<void(const std::string& interface, const std::string& what)>;
  static constexpr milliseconds carrier_grace{1000};

  explicit InterfaceWatch(boost::asio::io_context& context) : context_(context), socket_(context) {}
  ~InterfaceWatch();
  InterfaceWatch(const InterfaceWatch&) = delete;
  InterfaceWatch& operator=(const InterfaceWatch&) = delete;
  // Reports what the kernel announces from now on. It does not ask for the present states.
  void start(Lost lost);

 private:
  void wait();
  void read();
  bool read_one();
  void heard(const InterfaceNews& news);
  void expired(const std::string& name);

  boost::asio::io_context& context_;
  boost::asio::posix::stream_descriptor socket_;
  std::map<std::string, boost::asio::steady_timer> without_carrier_;
  Lost lost_;
};

}  // namespace rondo::connect
