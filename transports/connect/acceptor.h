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
#include "base/log.h"
#include "transports/connect/options.h"

namespace rondo::connect {

// A connection that came in and has proved nothing yet: the acceptor's part of the handshake.
// Thread-bound (the set-up thread), without locks. Its owner and the handlers under way share it. A
// connection that fails is dropped with a line in the log, and finished() follows.
class Acceptor final : public std::enable_shared_from_this<Acceptor> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Decides whether this connection may be used. The peer has proved the secret.
    virtual base::Verdict admit(const base::Claim& claim) const = 0;
    virtual void established(const base::Claim& claim, base::FileDescriptor socket,
                             const base::Agreement& agreed) = 0;
    // The connection is over, or its socket has been handed out. The last call, made once.
    virtual void finished(Acceptor& incoming) = 0;
  };

  Acceptor(Owner& owner, boost::asio::io_context& context, base::FileDescriptor socket,
           const Options& options, base::QuotaLog& log);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;
  void start(nanoseconds limit);
  base::TimePoint began() const noexcept { return began_; }
  // Whether it has sent a hello that may come from a rank.
  bool has_greeted() const noexcept { return greeted_; }
  // Ends the connection without a log line and without Owner::finished.
  void cancel();

 private:
  void read_message();
  void message_read();
  void conclude(bool sent);
  // An empty reason is logged at level debug only.
  void drop(std::string_view why);
  // Tells own_descriptors.h, before the socket is closed, that its number is no longer Rondo's.
  void forget_socket();

  Owner& owner_;
  base::QuotaLog& log_;
  const base::TimePoint began_ = base::Clock::now();
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  base::HandshakeDriver handshake_;
  std::string remote_;
  std::array<std::byte, base::longest_handshake_message> message_{};
  bool greeted_ = false, done_ = false;
};

}  // namespace rondo::connect
