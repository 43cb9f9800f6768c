// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/handshake_driver.h"
#include "base/quota_log.h"
#include "transports/connect/options.h"

namespace rondo::connect {

// A connection that came in and has proved nothing yet: the acceptor's part of the handshake. Owned
// by its owner and by the handler that is under way; lives on the set-up thread.
class Acceptor final : public std::enable_shared_from_this<Acceptor> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The peer has proved the secret: may this connection be used? Changes nothing.
    virtual base::Verdict admit(const base::Claim& claim) const = 0;
    virtual void established(const base::Claim& claim, base::FileDescriptor socket,
                             const base::Agreement& agreed) = 0;
    // The connection is over, or its socket has been handed out. Called once, last.
    virtual void finished(Acceptor& incoming) = 0;
  };

  Acceptor(Owner& owner, boost::asio::io_context& context, base::FileDescriptor socket,
           const Options& options, base::QuotaLog& log);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  void start(nanoseconds limit);
  // Silent end, without Owner::finished.
  void cancel();

 private:
  void read_message();
  void message_read();
  void conclude(bool sent);
  // An empty reason: nothing worth a line in the log.
  void drop(std::string_view why);
  // Before it is closed: its number is no longer one that a forked child closes.
  void forget_socket();

  Owner& owner_;
  base::QuotaLog& log_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  base::HandshakeDriver handshake_;
  std::string remote_;
  std::array<std::byte, base::longest_handshake_message> message_{};
  bool done_ = false;
};

}  // namespace rondo::connect
