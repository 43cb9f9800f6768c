// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/read.hpp>
#include "base/text.h"

#include "transports/connect/address.h"
#include "transports/connect/socket.h"

namespace rondo::connect {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// A peer listens before it tells its address. So a refused connection means that the peer is dead,
// or that something between the two restarts.
constexpr milliseconds refused_limit{500};
// With several endpoints, one that stays silent before or after it accepts must not use up the
// whole deadline.
constexpr milliseconds connect_limit{1000}, challenge_limit{5000};
constexpr milliseconds longest_pause{500};

}  // namespace

Connector::Connector(Owner& owner, asio::io_context& context, const base::Claim& claim,
                     std::uint32_t peer, const Options& options, std::vector<Route> routes)
    : owner_(owner),
      socket_(context),
      deadline_(context),
      pause_(context),
      claim_(claim),
      peer_(peer),
      options_(options),
      routes_(std::move(routes)) {}

auto Connector::step(Handler handler) {
  return
      [self = shared_from_this(), handler, mine = ++steps_](const error_code& failed, auto&&...) {
        if (!self->done_ && self->steps_ == mine) (self.get()->*handler)(failed);
      };
}

void Connector::start(nanoseconds limit) {
  deadline_.expires_at(base::after(base::Clock::now(), limit));
  deadline_.async_wait([self = shared_from_this(), limit](const error_code& failed) {
    if (failed || self->done_) return;
    self->fail(Errc::deadline_exceeded,
               fmt::format("{} within {} ms", self->last_problem_,
                           std::chrono::duration_cast<milliseconds>(limit).count()));
  });
  connect_next();
}

void Connector::close_attempt() {
  ++steps_;
  committed_ = false;
  error_code ignored;
  pause_.cancel(ignored);
  forget_socket();
  socket_.close(ignored);
}

Connector::~Connector() {
  forget_socket();
}

void Connector::forget_socket() {
  if (socket_.is_open()) base::remove_own_descriptor(socket_.native_handle());
}

void Connector::cancel() {
  done_ = true;
  error_code ignored;
  deadline_.cancel(ignored);
  close_attempt();
}

void Connector::connect_next() {
  const auto& [endpoint, local] = routes_[next_];
  try {
    base::FileDescriptor socket = make_socket(endpoint.address());
    if (local) bind_to(socket.get(), *local);
    socket_.assign(endpoint.protocol(), socket.get());
    base::add_own_descriptor(socket.release());  // until the socket is handed out or closed
  } catch (const std::exception& problem) {
    return try_another(problem.what(), false);
  }
  // The connect and the timer may both fire. The second one finds that the step is over.
  auto arrived = step(&Connector::connected);
  limit_silence(connect_limit);
  socket_.async_connect(endpoint, std::move(arrived));
}

// Bounds the current step, if there is another route to try.
void Connector::limit_silence(milliseconds limit) {
  if (routes_.size() < 2) return;
  pause_.expires_after(limit);
  pause_.async_wait([self = shared_from_this(), mine = steps_](const error_code& failed) {
    if (!self->done_ && self->steps_ == mine && !failed) self->try_another("no answer", false);
  });
}

void Connector::connected(const error_code& failed) {
  if (failed)
    return try_another(base::describe_errno(failed.value()),
                       failed == asio::error::connection_refused);
  // The kernel may give this socket the very port at which nobody listens any more. It is then
  // connected to itself.
  if (local_endpoint(socket_.native_handle()) == remote_endpoint(socket_.native_handle()))
    return try_another("connection refused", true);
  error_code ignored;
  pause_.cancel(ignored);
  refused_since_.reset();
  handshake_ = base::HandshakeDriver::connector(claim_, peer_, options_.secret,
                                                terms_for(socket_.native_handle(), options_));
  committed_ = true;
  if (!send_whole(socket_.native_handle(), handshake_->output()))
    return try_another("it closed the connection", false);
  read_message();
  limit_silence(challenge_limit);
}

void Connector::read_message() {
  asio::async_read(socket_, asio::buffer(message_.data(), handshake_->awaits()),
                   step(&Connector::message_read));
}

void Connector::message_read(const error_code& failed) {
  if (failed) return try_another("it closed the connection during the handshake", false);
  handshake_->take(std::span(message_).first(handshake_->awaits()));
  const bool sent = send_whole(socket_.native_handle(), handshake_->output());
  if (handshake_->awaits() == 0) return conclude();
  if (!sent) return try_another("it closed the connection during the handshake", false);
  read_message();
}

void Connector::conclude() {
  if (handshake_->accepted()) {
    const auto keep = shared_from_this();
    error_code problem;
    base::FileDescriptor socket(socket_.release(problem));
    if (problem) return fail(Errc::system, base::describe_errno(problem.value()));
    cancel();
    return owner_.connected(claim_, peer_, std::move(socket), handshake_->agreement());
  }
  // The peer's own connection is being opened. This one is needed only if that fails.
  if (handshake_->verdict() == base::Verdict::duplicate_link) {
    peer_found_ = true;
    return try_another("it prefers a connection of its own", false);
  }
  const bool secrets = handshake_->code() == Errc::authentication;
  turned_away(secrets ? Errc::authentication : Errc::rendezvous, handshake_->why());
}

void Connector::turned_away(Errc code, const std::string& why) {
  if (!rejection_) rejection_ = Rejection{next_, code, why};
  try_another(why, false);
}

void Connector::try_another(const std::string& why, bool refused) {
  close_attempt();
  last_problem_ = why;
  only_refused_ = only_refused_ && refused;
  if (++next_ < routes_.size()) return connect_next();
  if (rejection_ && !peer_found_) {
    next_ = rejection_->route;
    return fail(rejection_->code, rejection_->why);
  }
  const base::TimePoint now = base::Clock::now();
  next_ = 0;
  if (!only_refused_)
    refused_since_.reset();
  else if (!refused_since_)
    refused_since_ = now;
  else if (now - *refused_since_ >= refused_limit)
    return fail(Errc::peer_lost, why);
  only_refused_ = true;
  pause_.expires_after(backoff_);
  backoff_ = std::min(backoff_ * 2, longest_pause);
  pause_.async_wait(step(&Connector::retry_pause));
}

void Connector::retry_pause(const error_code&) {
  connect_next();
}

void Connector::fail(Errc code, const std::string& why) {
  const auto keep = shared_from_this();
  const auto& endpoint = routes_[next_].remote;
  cancel();
  owner_.connect_failed(claim_, peer_, code,
                        fmt::format("cannot connect to rank {} at {}: {}{}", peer_,
                                    to_text(endpoint), why, remedy(endpoint)));
}

// If no connection was made at all, a firewall is the usual cause.
std::string Connector::remedy(const asio::ip::tcp::endpoint& endpoint) const {
  if (handshake_ || endpoint.address().is_loopback()) return {};
  const std::string range =
      options_.port_first == 0
          ? "RONDO_PORT_RANGE is not set, so ranks listen at any port"
          : fmt::format("RONDO_PORT_RANGE is {}-{}", options_.port_first, options_.port_last);
  return fmt::format(
      ". If rank {} runs, a firewall may block port {}: {} (docs/several-hosts.md#firewalls)",
      peer_, endpoint.port(), range);
}

}  // namespace rondo::connect
