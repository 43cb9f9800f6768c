// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/handshake_driver.h"
#include "transports/connect/options.h"

namespace rondo::connect {

// One rank's attempts to open one connection. It tries the peer's endpoints in turn, again and
// again with growing pauses, and does the connector's part of the handshake. Thread-bound (the
// set-up thread), without locks. Its owner and the handlers under way share it. The failure that
// ends it goes to connect_failed().
class Connector final : public std::enable_shared_from_this<Connector> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // One of the two is called once, and nothing after it. Neither is called after cancel().
    virtual void connected(const base::Claim& claim, std::uint32_t peer,
                           base::FileDescriptor socket, const base::Agreement& agreed) = 0;
    virtual void connect_failed(const base::Claim& claim, std::uint32_t peer, Errc code,
                                const std::string& what) = 0;
  };

  struct Route {
    boost::asio::ip::tcp::endpoint remote;
    std::optional<boost::asio::ip::address> local;  // the address to bind; else routing decides
  };

  // `claim.rank` is this rank; `routes` must not be empty.
  Connector(Owner& owner, boost::asio::io_context& context, const base::Claim& claim,
            std::uint32_t peer, const Options& options, std::vector<Route> routes);
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  void start(nanoseconds limit);
  // Ends all attempts without a call to the owner.
  void cancel();
  // True when the peer may know of this attempt: a hello was sent on a connection that is still
  // open.
  bool committed() const noexcept { return committed_; }

 private:
  using Handler = void (Connector::*)(const boost::system::error_code&);
  // Wraps a member function. It is called only if no other step has begun since.
  auto step(Handler handler);
  void connect_next();
  void connected(const boost::system::error_code& failed);
  void read_message();
  void message_read(const boost::system::error_code& failed);
  void conclude();
  void retry_pause(const boost::system::error_code& failed);
  // Goes on after a failure: to the next endpoint, or after a pause to the first one again. Fails
  // instead when all endpoints refuse for too long, or when one has turned this rank away.
  void try_another(const std::string& why, bool refused);
  // The process that listens at this endpoint has refused this rank. It may be a stranger, so the
  // peer's other endpoints are tried before the first such answer ends the attempts.
  void turned_away(Errc code, const std::string& why);
  void limit_silence(milliseconds limit);
  void fail(Errc code, const std::string& why);
  std::string remedy(const boost::asio::ip::tcp::endpoint& endpoint) const;
  void close_attempt();
  // Tells own_descriptors.h, before the socket is closed, that its number is no longer Rondo's.
  void forget_socket();

  Owner& owner_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer deadline_, pause_;
  const base::Claim claim_;
  const std::uint32_t peer_;
  const Options& options_;
  const std::vector<Route> routes_;
  std::size_t next_ = 0;
  std::uint64_t steps_ = 0;
  std::optional<base::HandshakeDriver> handshake_;
  std::array<std::byte, base::longest_handshake_message> message_{};
  bool committed_ = false, done_ = false, only_refused_ = true;
  milliseconds backoff_{10};
  std::optional<base::TimePoint> refused_since_;
  struct Rejection {
    std::size_t route;
    Errc code;
    std::string why;
  };
  std::optional<Rejection> rejection_;
  // One endpoint belongs to the peer for certain, so refusals at other endpoints do not count.
  bool peer_found_ = false;
  std::string last_problem_ = "no answer";
};

}  // namespace rondo::connect
