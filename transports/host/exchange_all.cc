// SPDX-License-Identifier: Apache-2.0
//
// A rank connects to the ranks below it, the next lower one first, a few at a time. So the others
// do not all connect to one rank at once, and few descriptors are in flight. Events drive
// everything. The clock serves retries, connections that prove nothing, and the case that nothing
// happens any more.
#include "transports/host/exchange_all.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "base/interruption.h"
#include "base/log.h"
#include "base/shortage.h"

namespace rondo::host {
namespace {

// Bounds on connections that have proved nothing, in time and in number.
constexpr milliseconds handshake_limit{5000};
constexpr std::size_t strangers = 128;
constexpr int most_accepted_at_once = 64;
// The most exchanges that this rank has begun and not ended.
constexpr std::size_t most_calls = 16;
constexpr milliseconds tick{100}, retry_interval{5};
// After this time without a finished exchange, this rank checks that the ranks above it, which have
// not connected yet, still live: a few of them at a time.
constexpr milliseconds quiet_time{1000};
constexpr std::ptrdiff_t most_looked_for = 8;
constexpr std::uint64_t listener_id = 0, interruption_id = 1, first_id = 2;

class AllExchanges {
 public:
  AllExchanges(const Offer& own, int listener, const std::vector<Neighbour>& neighbours,
               const Interruption& interruption);

  void run(base::TimePoint until);
  void give_up(std::string_view why) const noexcept {
    for (const auto& [id, one] : exchanges_) one.give_up(why);
  }
  std::vector<Peer> take() { return std::move(met_); }

 private:
  // A neighbour with which the exchange is not finished.
  struct Open {
    Neighbour neighbour;
    bool called = false;  // an exchange that was begun here is under way
    base::TimePoint next_try{};
  };
  using Exchanges = std::map<std::uint64_t, Exchange>;

  void watch(int descriptor, std::uint64_t id, std::uint32_t events) const;
  template <class... Peer>
  void begin(base::FileDescriptor socket, base::TimePoint now, Peer... peer);
  base::FileDescriptor connect(const Neighbour& neighbour);
  void call(base::TimePoint now);
  void look_for_absent(base::TimePoint now);
  void accept_all(base::TimePoint now);
  static bool is_unproved(const Exchanges::value_type& entry) { return entry.second.rank() < 0; }
  bool drop_oldest_unproved();
  void pause_listener(bool pause);
  void wait(base::TimePoint now, base::TimePoint until);
  void go_on(Exchanges::iterator one);
  void settle(Exchange& exchange);
  void drop_late(base::TimePoint now);
  void note(int shortage) noexcept { shortage_ = shortage; }
  std::string name_of(int rank) const;
  std::string missing() const;
  std::string hindrance() const;

  const Offer& own_;
  const int listener_;
  const Interruption& interruption_;
  base::FileDescriptor epoll_;
  std::map<int, Open, std::greater<>> open_;
  Exchanges exchanges_;  // by id, so in the order in which they began
  std::uint64_t last_id_ = first_id;
  std::size_t calls_ = 0;
  bool listener_paused_ = false;
  std::vector<Peer> met_;
  std::array<epoll_event, 64> events_;
  base::TimePoint next_try_ = base::TimePoint::max();  // the earliest retry
  base::TimePoint next_tick_{}, last_met_{};
  int looked_for_;    // the last rank that look_for_absent() has looked at
  int shortage_ = 0;  // an errno
  base::QuotaLog log_;
};

AllExchanges::AllExchanges(const Offer& own, int listener, const std::vector<Neighbour>& neighbours,
                           const Interruption& interruption)
    : own_(own),
      listener_(listener),
      interruption_(interruption),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      looked_for_(own.size) {
  if (!epoll_) throw Error(Errc::system, "epoll_create1: " + describe_shortage(errno));
  watch(listener_, listener_id, EPOLLIN);
  watch(interruption_.descriptor(), interruption_id, EPOLLIN);
  for (const Neighbour& one : neighbours) open_.emplace(one.rank, Open{one});
}

void AllExchanges::watch(int descriptor, std::uint64_t id, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Error(Errc::system, "epoll_ctl: " + std::generic_category().message(errno));
}

std::string AllExchanges::name_of(int rank) const {
  const auto found = open_.find(rank);
  return found == open_.end()
             ? fmt::format("rank {}", rank)
             : fmt::format("rank {} (process {})", rank, found->second.neighbour.process);
}

std::string AllExchanges::missing() const {
  std::string text;
  for (auto one = open_.rbegin(); one != open_.rend(); ++one)
    text += (text.empty() ? "" : ", ") + name_of(one->first);
  return text;
}

std::string AllExchanges::hindrance() const {
  int shortage = shortage_;
  for (const auto& [id, one] : exchanges_)
    if (one.shortage() != 0) shortage = one.shortage();
  return shortage == 0 ? std::string() : ": " + describe_shortage(shortage);
}

// Watches edge-triggered, because go_on() takes all that has come. What a shortage leaves in the
// socket waits for next_try().
template <class... Peer>
void AllExchanges::begin(base::FileDescriptor socket, base::TimePoint now, Peer... peer) {
  const int number = socket.get();
  const auto one = exchanges_.try_emplace(++last_id_, own_, std::move(socket), peer..., now).first;
  if (one->second.state() != Exchange::State::ended)
    watch(number, one->first, EPOLLIN | EPOLLRDHUP | EPOLLET);
  go_on(one);
}

// Returns no socket when the caller shall try again. Throws Error when the neighbour cannot be
// reached.
base::FileDescriptor AllExchanges::connect(const Neighbour& neighbour) {
  base::FileDescriptor socket = connect_to_name(neighbour.name);
  const int error = socket ? 0 : errno;
  if (error == ECONNREFUSED)
    throw Error(
        Errc::peer_lost,
        fmt::format("cannot share memory with {}: its process has ended, or it has given up",
                    name_of(neighbour.rank)));
  if (base::is_shortage(error))
    note(error);
  else if (error != 0 && error != EAGAIN)
    throw Error(Errc::system, fmt::format("cannot connect to {}: {}", name_of(neighbour.rank),
                                          std::generic_category().message(error)));
  return socket;
}

// Connects to ranks below this one, from the highest on.
void AllExchanges::call(base::TimePoint now) {
  for (auto one = open_.upper_bound(own_.rank); one != open_.end() && calls_ < most_calls;) {
    const int rank = one->first;
    Open& open = one->second;
    ++one;  // begin() may finish the exchange and erase this neighbour
    if (open.called || open.next_try > now) {
      if (!open.called) next_try_ = std::min(next_try_, open.next_try);
      continue;
    }
    base::FileDescriptor socket = connect(open.neighbour);
    if (!socket) {
      open.next_try = now + retry_interval;
      next_try_ = std::min(next_try_, open.next_try);
      continue;
    }
    open.called = true;
    ++calls_;
    begin(std::move(socket), now, rank);
  }
}

// Connects to ranks above this one, to notice one that has ended before it connected. A connection
// that is closed without a message does it no harm.
void AllExchanges::look_for_absent(base::TimePoint now) {
  if (now - last_met_ < quiet_time) return;
  last_met_ = now;
  auto one = open_.upper_bound(looked_for_);
  const auto above = std::distance(open_.begin(), open_.upper_bound(own_.rank));
  for (auto left = std::min<std::ptrdiff_t>(most_looked_for, above); left > 0; --left, ++one) {
    if (one == open_.end() || one->first < own_.rank) one = open_.begin();
    looked_for_ = one->first;
    const auto calls = [&](const auto& entry) { return entry.second.rank() == looked_for_; };
    // Its exchange is under way. It may need no other rank, and have closed its listener.
    if (std::ranges::any_of(exchanges_, calls)) continue;
    (void)connect(one->second.neighbour);
  }
}

void AllExchanges::accept_all(base::TimePoint now) {
  for (int i = 0; i < most_accepted_at_once; ++i) {
    base::FileDescriptor socket(
        ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket && errno == EAGAIN) return;
    if (!socket && base::is_shortage(errno)) {
      const int shortage = errno;
      if (!base::connection_waits(listener_)) return;
      note(shortage);
      if (drop_oldest_unproved()) continue;
      pause_listener(true);
      return;
    }
    if (!socket)
      throw Error(Errc::system, fmt::format("cannot accept a rank of this host: {}",
                                            std::generic_category().message(errno)));
    const auto most = std::min(strangers + static_cast<std::size_t>(own_.size),
                               base::most_unproved_descriptors());
    if (exchanges_.size() >= most &&
        std::ranges::count_if(exchanges_, is_unproved) >= static_cast<std::ptrdiff_t>(most))
      drop_oldest_unproved();
    begin(std::move(socket), now);
  }
}

// A rank whose connection is dropped here connects again.
bool AllExchanges::drop_oldest_unproved() {
  const auto oldest = std::ranges::find_if(exchanges_, is_unproved);
  if (oldest == exchanges_.end()) return false;
  log_.line(
      base::LogLevel::warning,
      "too many local connections that have not proved the job secret: the oldest is dropped");
  exchanges_.erase(oldest);
  return true;
}

// Connections that cannot be accepted wait in the listening socket until the next tick.
void AllExchanges::pause_listener(bool pause) {
  if (std::exchange(listener_paused_, pause) == pause) return;
  epoll_event event{};
  event.events = pause ? 0u : std::uint32_t{EPOLLIN};
  event.data.u64 = listener_id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_, &event);
}

void AllExchanges::go_on(Exchanges::iterator one) {
  Exchange& exchange = one->second;
  exchange.go_on([this](int rank) { return open_.contains(rank); });
  next_try_ = std::min(next_try_, exchange.next_try());
  if (exchange.state() != Exchange::State::met && exchange.state() != Exchange::State::ended)
    return;
  if (const int rank = exchange.rank(); rank >= 0 && rank < own_.rank) {
    --calls_;
    if (const auto open = open_.find(rank); open != open_.end()) {
      open->second.called = false;
      open->second.next_try = base::Clock::now() + retry_interval;
    }
  }
  settle(exchange);
  exchanges_.erase(one);
}

void AllExchanges::settle(Exchange& exchange) {
  const int rank = exchange.rank();
  if (exchange.state() == Exchange::State::met) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, exchange.socket(), nullptr);
    if (open_.erase(rank) != 0) met_.push_back(exchange.take());
    last_met_ = base::Clock::now();
    return;
  }
  const auto code = exchange.code();
  if (rank < 0) {
    if (code)
      log_.line(base::LogLevel::warning,
                fmt::format("dropped a local connection: {}", exchange.why()));
    return;
  }
  if (code == Errc::aborted) throw Error(Errc::rendezvous, exchange.why());
  if (code)
    throw Error(*code,
                fmt::format("cannot share memory with {}: {}", name_of(rank), exchange.why()));
}

void AllExchanges::drop_late(base::TimePoint now) {
  for (auto one = exchanges_.begin(); one != exchanges_.end();) {
    const bool late = one->second.rank() < 0 && now - one->second.begun() > handshake_limit;
    if (late)
      log_.line(base::LogLevel::warning,
                "dropped a local connection: it did not finish the handshake in time");
    one = late ? exchanges_.erase(one) : std::next(one);
  }
}

// Handles events, and connections that a shortage has stopped. An event may end another connection,
// so each one is looked up by its id.
void AllExchanges::wait(base::TimePoint now, base::TimePoint until) {
  base::Interruption::check();
  const int timeout = base::poll_timeout(now, std::min({until, next_try_, next_tick_}), tick);
  const int count =
      ::epoll_wait(epoll_.get(), events_.data(), static_cast<int>(events_.size()), timeout);
  now = base::Clock::now();
  bool listener = false;
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events_[static_cast<std::size_t>(i)].data.u64;
    if (id == interruption_id) throw Error(Errc::rendezvous, interruption_.why());
    listener |= id == listener_id;
    if (const auto one = exchanges_.find(id); one != exchanges_.end()) go_on(one);
  }
  if (listener) accept_all(now);
  if (now < next_try_) return;
  next_try_ = base::TimePoint::max();
  for (auto one = exchanges_.begin(); one != exchanges_.end();) {
    const auto this_one = one++;
    if (this_one->second.next_try() <= now)
      go_on(this_one);
    else
      next_try_ = std::min(next_try_, this_one->second.next_try());
  }
}

void AllExchanges::run(base::TimePoint until) {
  const base::TimePoint start = base::Clock::now();
  last_met_ = start;
  while (!open_.empty()) {
    const base::TimePoint now = base::Clock::now();
    if (now >= next_tick_) {
      next_tick_ = now + tick;
      pause_listener(false);
      drop_late(now);
      look_for_absent(now);
    }
    call(now);
    if (open_.empty()) break;
    if (now >= until)
      throw Error(
          Errc::deadline_exceeded,
          fmt::format(
              "rank {} waited {} ms, until the deadline for joining, to share memory with {}{}",
              own_.rank, std::chrono::duration_cast<milliseconds>(now - start).count(), missing(),
              hindrance()));
    wait(now, until);
  }
}

}  // namespace

Interruption::Interruption() {
  if (!event_) throw Error(Errc::system, "eventfd: " + describe_shortage(errno));
}

void Interruption::set(std::string_view why) noexcept {
  const std::lock_guard lock(mutex_);
  if (!why_.empty() || !event_) return;
  try {
    why_ = why.empty() ? std::string_view("the communicator has failed") : why;
  } catch (...) {  // no memory for the text: the deadline remains
    return;
  }
  event_.set();
}

void Interruption::end() noexcept {
  const std::lock_guard lock(mutex_);
  event_.close();
}

std::string Interruption::why() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

std::vector<Peer> exchange_all(const Offer& own, int listener,
                               const std::vector<Neighbour>& neighbours, base::TimePoint until,
                               const Interruption& interruption) {
  AllExchanges exchanges(own, listener, neighbours, interruption);
  try {
    exchanges.run(until);
  } catch (const std::exception& error) {
    exchanges.give_up(error.what());
    throw;
  }
  auto met = exchanges.take();
  std::ranges::sort(met, {}, &Peer::rank);
  return met;
}

}  // namespace rondo::host
