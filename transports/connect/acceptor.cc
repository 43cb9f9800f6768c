// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/acceptor.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>

#include <rondo/error.h>

#include "base/log.h"
#include "transports/connect/address.h"
#include "transports/connect/socket.h"

namespace rondo::connect {

using boost::system::error_code;
namespace asio = boost::asio;

Acceptor::Acceptor(Owner& owner, asio::io_context& context, base::FileDescriptor socket,
                   const Options& options, base::QuotaLog& log)
    : owner_(owner),
      log_(log),
      socket_(context),
      timer_(context),
      handshake_(base::HandshakeDriver::acceptor(static_cast<std::uint32_t>(options.rank),
                                                 options.secret,
                                                 terms_for(socket.get(), options))) {
  const auto remote = remote_endpoint(socket.get());
  remote_ = to_text(remote);
  socket_.assign(remote.protocol(), socket.get());
  base::add_own_descriptor(socket.release());  // until the socket is handed out or closed
}

Acceptor::~Acceptor() {
  forget_socket();
}

void Acceptor::forget_socket() {
  if (socket_.is_open()) base::remove_own_descriptor(socket_.native_handle());
}

void Acceptor::read_message() {
  asio::async_read(socket_, asio::buffer(message_.data(), handshake_.awaits()),
                   [self = shared_from_this()](const error_code& failed, std::size_t count) {
                     if (self->done_) return;
                     if (!failed) return self->message_read();
                     self->drop(count == 0 ? "" : "it closed in the middle of a handshake message");
                   });
}

void Acceptor::start(nanoseconds limit) {
  timer_.expires_after(limit);
  timer_.async_wait([self = shared_from_this(), limit](const error_code& failed) {
    if (failed || self->done_) return;
    self->drop(fmt::format("it did not finish the handshake within {} ms",
                           std::chrono::duration_cast<milliseconds>(limit).count()));
  });
  read_message();
}

void Acceptor::cancel() {
  done_ = true;
  error_code ignored;
  timer_.cancel(ignored);
  forget_socket();
  socket_.close(ignored);
}

void Acceptor::message_read() {
  const auto admit = [this](const base::Acceptor& claimed) {
    return claimed.meant_for_this_rank() ? owner_.admit(claimed.claim()) : base::Verdict::bad_rank;
  };
  handshake_.take(std::span(message_).first(handshake_.awaits()), admit);
  greeted_ = handshake_.awaits() != 0;
  const bool sent = send_whole(socket_.native_handle(), handshake_.output());
  if (handshake_.awaits() == 0) return conclude(sent);
  if (!sent) return drop("");
  read_message();
}

void Acceptor::conclude(bool sent) {
  if (handshake_.verdict() == base::Verdict::duplicate_link || !sent) return drop("");
  if (!handshake_.accepted()) return drop(handshake_.why());
  const auto keep = shared_from_this();
  done_ = true;
  error_code failed;
  timer_.cancel(failed);
  base::FileDescriptor socket(socket_.release(failed));
  if (!failed) owner_.established(handshake_.claim(), std::move(socket), handshake_.agreement());
  owner_.finished(*this);
}

void Acceptor::drop(std::string_view why) {
  const auto keep = shared_from_this();
  if (!why.empty())
    log_.line(base::LogLevel::warning,
              fmt::format("dropped a connection from {}: {}", remote_, why));
  else if (base::log_enabled(base::LogLevel::debug))
    base::log_line(base::LogLevel::debug,
                   fmt::format("dropped a connection from {}: it went away", remote_));
  cancel();
  owner_.finished(*this);
}

}  // namespace rondo::connect
