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
      acceptor_(static_cast<std::uint32_t>(options.rank), options.secret,
                terms_for(socket.get(), options)) {
  const auto remote = remote_endpoint(socket.get());
  remote_ = to_text(remote);
  socket_.assign(remote.protocol(), socket.get());
  base::add_own_descriptor(socket.release());  // until it has been handed out or closed
}

Acceptor::~Acceptor() {
  forget_socket();
}

void Acceptor::forget_socket() {
  if (socket_.is_open()) base::remove_own_descriptor(socket_.native_handle());
}

template <class Buffer>
void Acceptor::read(Buffer& buffer, void (Acceptor::*then)()) {
  asio::async_read(socket_, asio::buffer(buffer.data(), buffer.size()),
                   [self = shared_from_this(), then](const error_code& failed, std::size_t count) {
                     if (self->done_) return;
                     if (!failed) return (self.get()->*then)();
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
  read(hello_, &Acceptor::hello_read);
}

void Acceptor::cancel() {
  done_ = true;
  error_code ignored;
  timer_.cancel(ignored);
  forget_socket();
  socket_.close(ignored);
}

void Acceptor::hello_read() {
  try {
    if (!send_whole(socket_.native_handle(), acceptor_.challenge(hello_))) return drop("");
  } catch (const Error& error) {
    return drop(error.what());
  }
  read(proof_, &Acceptor::proof_read);
}

void Acceptor::proof_read() {
  if (acceptor_.version() != base::wire_version || !acceptor_.proves(proof_))
    return conclude(acceptor_.refusal());
  conclude(acceptor_.meant_for_this_rank() ? owner_.admit(acceptor_.claim())
                                           : base::Verdict::bad_rank);
}

void Acceptor::conclude(base::Verdict verdict) {
  const bool told = send_whole(socket_.native_handle(), base::Acceptor::write_verdict(verdict));
  if (verdict == base::Verdict::duplicate_link || !told) return drop("");
  if (verdict != base::Verdict::welcome) return drop(base::explain(verdict));
  const auto keep = shared_from_this();
  done_ = true;
  error_code failed;
  timer_.cancel(failed);
  base::FileDescriptor socket(socket_.release(failed));
  if (!failed)
    owner_.established(acceptor_.claim(), std::move(socket), acceptor_.agreement(proof_));
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
