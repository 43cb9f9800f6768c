// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/log.h"
#include "transports/connect/address.h"
#include "transports/connect/interfaces.h"
#include "transports/connect/options.h"

namespace rondo::connect {

// The listening sockets of a rank, one for each chosen address. Listens from its construction on;
// connections wait in the kernel until start(). From start() on it is thread-bound (the thread that
// runs the context), without locks. An address at which it cannot listen is left out.
class Listener {
 public:
  using Accepted = std::function<void(base::FileDescriptor)>;
  // Does what can be done for a connection that waits while this process has no descriptor left.
  // made: an older one that has proved nothing was closed. soon: all such are still young. none:
  // there are no such connections.
  enum class Room { made, soon, none };
  using MakeRoom = std::function<Room()>;
  // Called when connections wait and a shortage of this process or system has lasted for 5 seconds,
  // with the cause and the remedy.
  using Starved = std::function<void(const std::string& what)>;
  // Throws Error(invalid_argument) when the filters leave no usable interface, and Error(system)
  // when it can listen at no address.
  Listener(boost::asio::io_context& context, const Options& options);
  ~Listener();
  // From now on `accepted` is called with every connection that comes, on the thread that runs the
  // context. If it throws, only that connection is lost.
  void start(Accepted accepted, MakeRoom make_room, Starved starved);
  // Call it when a handshake has succeeded: the shortage is over.
  void relieved() noexcept { short_since_.reset(); }
  const std::vector<boost::asio::ip::tcp::endpoint>& endpoints() const noexcept {
    return endpoints_;
  }
  // A socket that the context watches.
  int descriptor() { return acceptors_.front().native_handle(); }
  // The interface of each endpoint, in the same order.
  const std::vector<Rail>& rails() const noexcept { return rails_; }
  // All addresses of this machine, chosen or not.
  const std::vector<LocalAddress>& existing() const noexcept { return existing_; }
  const std::vector<LocalAddress>& chosen() const noexcept { return chosen_; }

 private:
  void wait(std::size_t which);
  void accept_all(std::size_t which);
  void pause(std::size_t which, std::chrono::milliseconds time);
  void go_on();
  void hand_on(base::FileDescriptor socket, std::size_t which);
  void note_shortage(int error, std::size_t which);

  std::vector<LocalAddress> existing_, chosen_;
  std::vector<boost::asio::ip::tcp::endpoint> endpoints_;
  std::vector<Rail> rails_;
  std::vector<boost::asio::ip::tcp::acceptor> acceptors_;
  boost::asio::steady_timer pause_;
  std::vector<bool> paused_;  // by address
  bool pausing_ = false;
  std::size_t turn_ = 0;  // the address that is served first after the next pause
  base::QuotaLog log_;
  Accepted accepted_;
  MakeRoom make_room_;
  Starved starved_;
  std::optional<base::TimePoint> short_since_;
  base::TimePoint short_last_;
};

}  // namespace rondo::connect
