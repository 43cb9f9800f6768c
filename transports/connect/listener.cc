// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/listener.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <rondo/error.h>

#include "base/log.h"
#include "base/shortage.h"
#include "base/text.h"
#include "transports/connect/address.h"
#include "transports/connect/socket.h"

namespace rondo::connect {
namespace {

using boost::asio::ip::tcp;

// A shortage that lasts for longest_shortage is reported. Failures further apart than shortage_gap
// belong to different shortages: a peer that waits tries again at least twice a second.
constexpr milliseconds longest_shortage{5'000}, shortage_gap{2'000};

// Before connections that come are looked for again: soon in a shortage that a handshake may end.
constexpr milliseconds short_pause{10}, long_pause{100};

// Sorted so that the first is the one to show to people: loopback last, IPv4 before IPv6.
std::vector<LocalAddress> choose(const Options& options,
                                 const std::vector<LocalAddress>& existing) {
  const InterfaceFilter filter(options.interfaces, existing);
  std::vector<LocalAddress> chosen;
  for (const LocalAddress& one : existing)
    if (filter.refusal(one).empty()) chosen.push_back(one);
  if (existing.empty())
    throw Error(Errc::invalid_argument, "no network interface is up" + describe_interfaces_down());
  if (chosen.empty())
    throw Error(Errc::invalid_argument,
                "the interface filters leave no interface at all; `rondo info` shows what exists");
  if (options.secret.empty() || options.this_host_only) {
    const std::string others = chosen.front().interface;
    std::erase_if(chosen, [](const LocalAddress& one) { return !one.loopback; });
    if (chosen.empty())
      throw Error(Errc::invalid_argument,
                  fmt::format("the chosen interfaces ({}) leave out loopback, and without a job "
                              "secret Rondo listens "
                              "nowhere else: set RONDO_SECRET to the same value on all ranks, or "
                              "choose lo as well{}",
                              others, describe_interfaces_down()));
  }
  std::ranges::stable_sort(chosen, {}, [](const LocalAddress& one) {
    return (one.loopback ? 2 : 0) + (one.address.is_v6() ? 1 : 0);
  });
  return chosen;
}

Rail rail_of(const LocalAddress& one, const InterfaceFilter& filter) {
  return {one.interface, speed_of(one.interface), static_cast<std::uint8_t>(one.prefix_bits),
          may_pair(one, filter)};
}

}  // namespace

Listener::Listener(boost::asio::io_context& context, const Options& options)
    : existing_(local_addresses()), pause_(context) {
  const InterfaceFilter filter(options.interfaces, existing_);
  std::string problem;
  for (const LocalAddress& one : choose(options, existing_)) {
    try {
      base::FileDescriptor socket =
          listen_at(one.address, options.port_first, options.port_last,
                    static_cast<unsigned>(options.rank), std::max(128, 4 * options.size));
      endpoints_.push_back(local_endpoint(socket.get()));
      acceptors_.emplace_back(context, one.address.is_v4() ? tcp::v4() : tcp::v6(), socket.get());
      base::add_own_descriptor(socket.release());  // Asio's acceptor owns it now
      paused_.push_back(false);
      chosen_.push_back(one);
      rails_.push_back(rail_of(one, filter));
    } catch (const Error& error) {
      problem = error.what();
      base::log_line(base::LogLevel::info, problem);
    }
  }
  if (acceptors_.empty()) throw Error(Errc::system, problem);
}

Listener::~Listener() {
  for (auto& acceptor : acceptors_) base::remove_own_descriptor(acceptor.native_handle());
}

void Listener::start(Accepted accepted, MakeRoom make_room, Starved starved) {
  accepted_ = std::move(accepted);
  make_room_ = std::move(make_room);
  starved_ = std::move(starved);
  for (std::size_t i = 0; i < acceptors_.size(); ++i) wait(i);
}

void Listener::wait(std::size_t which) {
  acceptors_[which].async_wait(tcp::acceptor::wait_read,
                               [this, which](const boost::system::error_code& failed) {
                                 if (!failed) accept_all(which);
                               });
}

// A connection that cannot be taken must not keep the others from being accepted.
void Listener::hand_on(base::FileDescriptor socket, std::size_t which) {
  try {
    accepted_(std::move(socket));
  } catch (const std::exception& problem) {
    log_.line(base::LogLevel::warning, fmt::format("dropped a connection that came in at {}: {}",
                                                   to_text(endpoints_[which]), problem.what()));
  }
}

// A short shortage does no harm. A long one is reported, because peers would only see a rank that
// does not answer.
void Listener::note_shortage(int error, std::size_t which) {
  const base::TimePoint now = base::Clock::now();
  if (!short_since_ || now - short_last_ > shortage_gap) short_since_ = now;
  short_last_ = now;
  if (now - *short_since_ < longest_shortage) return;
  short_since_.reset();
  starved_(fmt::format("cannot accept connections at {}: {}{}", to_text(endpoints_[which]),
                       base::describe_errno(error), base::remedy_of_shortage(error)));
}

// Uses accept4 and not Asio's accept: a program that the user starts meanwhile must not inherit the
// socket.
void Listener::accept_all(std::size_t which) {
  for (;;) {
    base::FileDescriptor socket(::accept4(acceptors_[which].native_handle(), nullptr, nullptr,
                                          SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      hand_on(std::move(socket), which);
      continue;
    }
    const int error = errno;
    if (error == EINTR || error == ECONNABORTED) continue;
    if (error == EAGAIN) return wait(which);
    if (error == EMFILE && !base::connection_waits(acceptors_[which].native_handle()))
      return wait(which);
    // The oldest stranger makes room. Strangers alone must not cause a shortage that ends the job.
    const Room room = error == EMFILE ? make_room_() : Room::none;
    if (room == Room::made) continue;
    if (room == Room::soon) return pause(which, short_pause);
    if (base::is_shortage(error)) note_shortage(error, which);
    log_.line(base::LogLevel::warning,
              fmt::format("cannot accept a connection at {}: {}; trying again",
                          to_text(endpoints_[which]), base::describe_errno(error)));
    return pause(which, long_pause);
  }
}

void Listener::pause(std::size_t which, std::chrono::milliseconds time) {
  paused_[which] = true;
  if (std::exchange(pausing_, true)) return;
  pause_.expires_after(time);
  pause_.async_wait([this](const boost::system::error_code& failed) {
    if (!failed) go_on();
  });
}

// The addresses take turns at being first, so that none takes every descriptor that becomes free.
void Listener::go_on() {
  pausing_ = false;
  const std::vector<bool> paused = std::exchange(paused_, std::vector<bool>(paused_.size(), false));
  const std::size_t first = turn_++;
  for (std::size_t i = 0; i < paused.size(); ++i)
    if (const std::size_t which = (first + i) % paused.size(); paused[which]) accept_all(which);
}

}  // namespace rondo::connect
