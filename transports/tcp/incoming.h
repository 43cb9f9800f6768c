// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/handshake.h"
#include "base/quota_log.h"
#include "transports/tcp/tcp.h"

namespace rondo::tcp {

// A connection that came in and has proved nothing yet: the acceptor's part of the handshake. Owned
// by its owner and by the handler that is under way; lives on the set-up thread.
class Incoming final : public std::enable_shared_from_this<Incoming> {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // The peer has proved the secret: may this connection be used? Changes nothing.
    virtual base::Verdict admit(const base::Claim& claim) const = 0;
    virtual void established(const base::Claim& claim, base::FileDescriptor socket,
                             const base::Agreement& agreed) = 0;
    // The connection is over, or its socket has been handed out. Called once, last.
    virtual void finished(Incoming& incoming) = 0;
  };

  Incoming(Owner& owner, boost::asio::io_context& context, base::FileDescriptor socket,
           const TcpOptions& options, base::QuotaLog& log);
  ~Incoming();
  Incoming(const Incoming&) = delete;
  Incoming& operator=(const Incoming&) = delete;
  void start(nanoseconds limit);
  // Silent end, without Owner::finished.
  void cancel();

 private:
  void hello_read();
  void proof_read();
  void conclude(base::Verdict verdict);
  // An empty reason: nothing worth a line in the log.
  void drop(std::string_view why);
  // Before it is closed: its number is no longer one that a forked child closes.
  void forget_socket();
  // Reads exactly this many bytes into `buffer`, then calls the member.
  template <class Buffer>
  void read(Buffer& buffer, void (Incoming::*then)());

  Owner& owner_;
  base::QuotaLog& log_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  base::Acceptor acceptor_;
  std::string remote_;
  base::HelloBytes hello_{};
  base::ProofBytes proof_{};
  bool done_ = false;
};

}  // namespace rondo::tcp
