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

// What the kernel says of one interface.
struct InterfaceNews {
  std::string name;
  InterfaceState state = InterfaceState::up;
  bool operator==(const InterfaceNews&) const = default;
};

// Of a datagram of NETLINK_ROUTE, what concerns the state of interfaces; the rest is left out, and
// so is all behind the first message whose length cannot be.
std::vector<InterfaceNews> decode_interface_news(std::span<const std::byte> datagram);

// Tells of interfaces that go down, at once or, when only the carrier is lost, after carrier_grace
// without one. Where the kernel does not tell, nothing is ever told. Lives on the thread that runs
// the context.
class InterfaceWatch {
 public:
  // The interface, and what to say of it: "interface eth1 is down".
  using Lost = std::function<void(const std::string& interface, const std::string& what)>;
  static constexpr milliseconds carrier_grace{1000};

  explicit InterfaceWatch(boost::asio::io_context& context) : context_(context), socket_(context) {}
  // Begins with the interfaces as they are now.
  void start(Lost lost);

 private:
  void wait();
  void read();
  void heard(const InterfaceNews& news);

  boost::asio::io_context& context_;
  boost::asio::posix::stream_descriptor socket_;
  std::map<std::string, boost::asio::steady_timer> without_carrier_;
  Lost lost_;
};

}  // namespace rondo::connect
