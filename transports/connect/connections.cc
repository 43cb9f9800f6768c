// SPDX-License-Identifier: Apache-2.0
//
// Two ranks may open the same connection at once. The one begun by the higher rank is kept: the
// lower rank accepts it and gives up its own. The higher rank refuses the lower rank's connection
// with duplicate_link if it has sent hello on its own already. Otherwise it accepts it and gives up
// its own. Each end decides on one thread, so there is no third case: a rank that has welcomed a
// connection never sends hello for the same one later.
#include "transports/connect/connections.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>

#include "base/log.h"
#include "base/process.h"
#include "base/shortage.h"
#include "base/text.h"
#include "base/thread.h"
#include "transports/connect/reactor.h"
#include "transports/connect/socket.h"

namespace rondo::connect {
namespace {

// Bounds on connections that have proved nothing yet. Each has handshake_limit. At most
// most_unproved may wait, plus one for each connection that the job itself may open, and no more
// than most_unproved_descriptors().
constexpr milliseconds handshake_limit{5000};
// If another connection waits while the process has no descriptor left, connections that are older
// than this are dropped. Ranks that come at once would otherwise drop each other, again and again.
// A rank sends its hello at once, most strangers send nothing.
constexpr milliseconds silent_time{20}, greeted_time{1000};
constexpr std::size_t most_unproved = 128;

base::Event make_event() {
  base::Event event;
  if (!event) throw Error(Errc::system, fmt::format("eventfd: {}", base::describe_errno(errno)));
  return event;
}

// An address may have a label after the name of its interface: "eth0:1".
std::string device_of(const std::string& interface) {
  return interface.substr(0, interface.find(':'));
}

// The address as the other ranks decode it: both ends must plan with the same data.
Address listening_address(const Options& options, const Listener& listener, unsigned connections) {
  Address address{options.host, listener.endpoints(), listener.rails(),
                  std::clamp(connections, 1u, most_connections)};
  for (Rail& rail : address.rails) rail.interface = device_of(rail.interface);
  const auto announced = decode_address(encode(address));
  return announced ? *announced : address;
}

}  // namespace

Connections::Connections(const Options& options, unsigned connections)
    : options_(options),
      wakeup_(make_event()),
      listener_(context_, options),
      keepalive_(options.peer_timeout),
      keepalive_timer_(context_),
      interfaces_(context_),
      address_(listening_address(options, listener_, connections)),
      slots_(static_cast<std::size_t>(options.size) * transports::link_lane_count),
      work_(boost::asio::make_work_guard(context_)) {}

Connections::~Connections() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
  for (const int descriptor : reactor_) base::remove_own_descriptor(descriptor);
}

void Connections::start(std::vector<std::optional<Peer>> peers, std::uint64_t job) {
  peers_ = std::move(peers);
  peers_.resize(static_cast<std::size_t>(options_.size));
  job_ = job;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const auto& peer = peers_[i / transports::link_lane_count];
    // A rank without an address has one connection, so that open() has something that can fail.
    slots_[i].resize(peer ? peer->links[i % transports::link_lane_count].size() : 1);
    slot_count_ += slots_[i].size();
  }
  listener_.start([this](base::FileDescriptor socket) { accepted(std::move(socket)); },
                  [this] { return make_room(); },
                  [this](const std::string& what) { give_up_connecting(what); });
  reactor_ = find_reactor(listener_.descriptor());
  for (const int descriptor : reactor_) base::add_own_descriptor(descriptor);
  interfaces_.start([this](const std::string& interface, const std::string& what) {
    if (std::ranges::none_of(
            own(), [&](const auto& one) { return device_of(one.interface) == interface; }))
      return;
    publish({.kind = Event::Kind::interface_lost, .interface = interface, .what = what});
  });
  thread_ = base::start_thread("rondo-setup", [this] { run(); });
}

// A connection that fails with an exception (no memory, no random bytes) must not end the others.
void Connections::run() {
  for (;;) {
    try {
      context_.run();
      return;
    } catch (const std::exception& problem) {
      base::log_line(base::LogLevel::error,
                     fmt::format("while setting up a connection: {}", problem.what()));
    }
  }
}

void Connections::open(int peer, int lane) {
  boost::asio::post(context_, [this, peer, lane] {
    for (std::size_t i = 0; i < count(peer, lane); ++i) connect_to(peer, lane, i);
  });
}

std::size_t Connections::count(int peer, int lane) const noexcept {
  return slots_[static_cast<std::size_t>(peer) * transports::link_lane_count +
                static_cast<std::size_t>(lane)]
      .size();
}

void Connections::remind(int peer, int lane, milliseconds after) {
  boost::asio::post(context_, [this, peer, lane, after] {
    const auto timer = reminders_.emplace(reminders_.end(), context_, after);
    timer->async_wait([this, peer, lane, timer](const boost::system::error_code&) {
      reminders_.erase(timer);
      publish({.kind = Event::Kind::reminder, .peer = peer, .lane = lane});
    });
  });
}

std::vector<Event> Connections::take() {
  const std::lock_guard lock(mutex_);
  pending_.store(false, std::memory_order_relaxed);
  return std::exchange(events_, {});
}

void Connections::publish(Event event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    pending_.store(true, std::memory_order_release);
  }
  wakeup_.set();
}

Listener::Room Connections::make_room() {
  if (acceptors_.empty()) return Listener::Room::none;
  const base::TimePoint now = base::Clock::now();
  const auto old = std::ranges::find_if(acceptors_, [&](const auto& one) {
    return now - one->began() >= (one->has_greeted() ? greeted_time : silent_time);
  });
  if (old == acceptors_.end()) return Listener::Room::soon;
  unproved_log_.line(base::LogLevel::warning,
                     fmt::format("dropped a connection that has not proved the job secret, because "
                                 "another one waits: {}{}",
                                 base::describe_errno(EMFILE), base::remedy_of_shortage(EMFILE)));
  (*old)->cancel();
  acceptors_.erase(old);
  return Listener::Room::made;
}

void Connections::drop_oldest_unproved() {
  unproved_log_.line(
      base::LogLevel::warning,
      "too many connections that have not proved the job secret: the oldest is dropped");
  acceptors_.front()->cancel();
  acceptors_.pop_front();
}

void Connections::accepted(base::FileDescriptor socket) {
  if (acceptors_.size() >= std::min(most_unproved + slot_count_, base::most_unproved_descriptors()))
    drop_oldest_unproved();
  Acceptor::Owner& owner = *this;
  auto session =
      std::make_shared<Acceptor>(owner, context_, std::move(socket), options_, unproved_log_);
  acceptors_.push_back(session);
  session->start(handshake_limit);
}

// Keeps the connections that are ready and fails all others.
void Connections::give_up_connecting(const std::string& what) {
  const std::string text = fmt::format("rank {} {}", options_.rank, what);
  base::log_line(base::LogLevel::error, text);
  for (int peer = 0; peer < options_.size; ++peer)
    for (int lane = 0; lane < transports::link_lane_count; ++lane)
      for (std::size_t i = 0; i < count(peer, lane); ++i) {
        Slot& mine = slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane), i);
        if (mine.state == Slot::State::ready || peer == options_.rank) continue;
        if (mine.connector) std::exchange(mine.connector, nullptr)->cancel();
        mine.state = Slot::State::ready;
        publish({.kind = Event::Kind::failed,
                 .peer = peer,
                 .lane = lane,
                 .index = static_cast<int>(i),
                 .code = Errc::system,
                 .what = text});
      }
}

void Connections::finished(Acceptor& acceptor) {
  acceptors_.remove_if([&](const auto& one) { return one.get() == &acceptor; });
}

base::Verdict Connections::admit(const base::Claim& claim) const {
  const auto size = static_cast<std::uint32_t>(options_.size),
             rank = static_cast<std::uint32_t>(options_.rank);
  if (claim.size != size) return base::Verdict::bad_size;
  if (claim.job != job_ || claim.purpose != base::Purpose::data) return base::Verdict::wrong_job;
  if (claim.rank >= size || claim.rank == rank) return base::Verdict::bad_rank;
  if (claim.lane >= transports::link_lane_count) return base::Verdict::duplicate_link;
  const auto& slots = slots_[std::size_t{claim.rank} * transports::link_lane_count + claim.lane];
  if (claim.connection >= slots.size()) return base::Verdict::duplicate_link;
  const Slot& mine = slots[claim.connection];
  if (mine.state == Slot::State::ready) return base::Verdict::duplicate_link;
  const bool own_is_kept =
      mine.state == Slot::State::connecting && rank > claim.rank && mine.connector->committed();
  return own_is_kept ? base::Verdict::duplicate_link : base::Verdict::welcome;
}

void Connections::established(const base::Claim& claim, base::FileDescriptor socket,
                              const base::Agreement& agreed) {
  Slot& mine = slot(claim.rank, claim.lane, claim.connection);
  if (mine.connector) std::exchange(mine.connector, nullptr)->cancel();
  hand_over(static_cast<int>(claim.rank), static_cast<int>(claim.lane), claim.connection,
            std::move(socket), agreed);
}

// First the route that the user prefers, then every endpoint of the peer that may be reached from
// here, by the system's routing.
std::vector<Connector::Route> Connections::routes(int peer, int lane, std::size_t index) const {
  const auto& known = peers_[static_cast<std::size_t>(peer)];
  std::vector<Connector::Route> routes;
  if (!known) return routes;
  if (const auto& first = known->links[static_cast<std::size_t>(lane)][index])
    routes.push_back(*first);
  const Address& address = known->address;
  for (const auto& endpoint : candidates(address, address.host == options_.host, chosen(), own()))
    routes.push_back({endpoint, std::nullopt});
  return routes;
}

void Connections::connect_to(int peer, int lane, std::size_t index) {
  Slot& mine = slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane), index);
  if (mine.state != Slot::State::idle) return;
  auto routes = this->routes(peer, lane, index);
  base::Claim claim{.purpose = base::Purpose::data,
                    .rank = static_cast<std::uint32_t>(options_.rank),
                    .size = static_cast<std::uint32_t>(options_.size),
                    .job = job_,
                    .lane = static_cast<std::uint32_t>(lane),
                    .connection = static_cast<std::uint32_t>(index)};
  if (routes.empty())
    return connect_failed(
        claim, static_cast<std::uint32_t>(peer), Errc::unsupported,
        fmt::format(
            "cannot connect to rank {}: it has no TCP address that can be reached from here",
            peer));
  Connector::Owner& owner = *this;
  mine.state = Slot::State::connecting;
  mine.connector = std::make_shared<Connector>(
      owner, context_, claim, static_cast<std::uint32_t>(peer), options_, std::move(routes));
  // A year stands for "no deadline": a count of nanoseconds overflows after three centuries.
  mine.connector->start(
      std::min<milliseconds>(options_.connect_deadline, std::chrono::hours{24 * 365}));
}

void Connections::connected(const base::Claim& claim, std::uint32_t peer,
                            base::FileDescriptor socket, const base::Agreement& agreed) {
  slot(peer, claim.lane, claim.connection).connector.reset();
  hand_over(static_cast<int>(peer), static_cast<int>(claim.lane), claim.connection,
            std::move(socket), agreed);
}

void Connections::connect_failed(const base::Claim& claim, std::uint32_t peer, Errc code,
                                 const std::string& what) {
  Slot& mine = slot(peer, claim.lane, claim.connection);
  mine.state = Slot::State::ready;
  mine.connector.reset();
  publish({.kind = Event::Kind::failed,
           .peer = static_cast<int>(peer),
           .lane = static_cast<int>(claim.lane),
           .index = static_cast<int>(claim.connection),
           .code = code,
           .what = what});
}

void Connections::hand_over(int peer, int lane, std::size_t index, base::FileDescriptor socket,
                            const base::Agreement& agreed) {
  listener_.relieved();
  slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane), index).state =
      Slot::State::ready;
  const auto& known = peers_[static_cast<std::size_t>(peer)];
  const bool same_host = known && known->address.host == options_.host;
  set_keepalive(socket.get(), options_.peer_timeout);
  keepalive_.watch(socket.get(), {peer, lane, static_cast<int>(index)});
  if (!keepalive_running_) keep_alive();
  std::string name = name_of_peer(peer, socket.get());
  warn_of_detour(peer, lane, index, socket.get());
  std::string route = route_of(socket.get());
  std::string interface = interface_of(socket.get());
  const std::uint32_t speed = speed_of(socket.get());
  publish({.peer = peer,
           .lane = lane,
           .index = static_cast<int>(index),
           .socket = std::move(socket),
           .name = std::move(name),
           .route = std::move(route),
           .interface = std::move(interface),
           .speed = speed,
           .same_host = same_host,
           .agreed = agreed});
}

// Warns of a path that was planned over one interface and leads over another: the planned one is
// dead, and the other carries its traffic too. The lower of both ranks warns, once for each
// interface.
void Connections::warn_of_detour(int peer, int lane, std::size_t index, int socket) {
  const auto& known = peers_[static_cast<std::size_t>(peer)];
  if (!known || peer < options_.rank) return;
  const auto& planned = known->links[static_cast<std::size_t>(lane)][index];
  if (!planned || !planned->local || local_endpoint(socket).address() == *planned->local) return;
  const auto mine = std::ranges::find(own(), *planned->local, &LocalAddress::address);
  if (mine == own().end() || interface_of(socket) == device_of(mine->interface) ||
      !detours_told_.insert(mine->interface).second)
    return;
  base::log_line(
      base::LogLevel::warning,
      fmt::format("rank {} on host {} cannot reach rank {} over interface {} ({} -> {}), and uses "
                  "{} instead: bandwidth is less. Check cable, switch, VLAN and firewall there, or "
                  "leave it out (RONDO_INTERFACE=^{}, docs/several-hosts.md)",
                  options_.rank, base::host_name(), peer, mine->interface,
                  planned->local->to_string(), planned->remote.address().to_string(),
                  route_of(socket), device_of(mine->interface)));
}

void Connections::keep_alive() {
  keepalive_running_ = true;
  keepalive_timer_.expires_after(keepalive_.interval());
  keepalive_timer_.async_wait([this](const boost::system::error_code& failed) {
    const auto black_hole = [this](const Keepalive::Place& place, int socket,
                                   const std::string& what) {
      publish({.kind = Event::Kind::failed,
               .peer = place.peer,
               .lane = place.lane,
               .index = place.index,
               .what = fmt::format("{}: {}", route_of(socket), what)});
    };
    keepalive_running_ = !failed && keepalive_.look(base::Clock::now(), black_hole);
    if (keepalive_running_) keep_alive();
  });
}

// Names the port at which the peer listens, because its own log shows that one too, and not the
// port from which it connected.
std::string Connections::name_of_peer(int peer, int socket) const {
  const auto remote = remote_endpoint(socket);
  if (const auto& known = peers_[static_cast<std::size_t>(peer)]; known) {
    for (const auto& endpoint : known->address.endpoints)
      if (endpoint.address() == remote.address()) return to_text(endpoint);
    return to_text(known->address.endpoints.front());
  }
  return to_text(remote);
}

std::string Connections::route_of(int socket) const {
  const auto from = local_endpoint(socket).address();
  const auto mine = std::ranges::find(own(), from, &LocalAddress::address);
  return fmt::format("{} -> {} ({})", from.to_string(),
                     remote_endpoint(socket).address().to_string(),
                     mine != own().end() ? mine->interface : "interface not known");
}

std::string Connections::interface_of(int socket) const {
  const auto find = [&](const boost::asio::ip::tcp::endpoint& endpoint) {
    return std::ranges::find(own(), endpoint.address(), &LocalAddress::address);
  };
  const auto mine = find(local_endpoint(socket));
  const bool stays = find(remote_endpoint(socket)) != own().end();
  return stays || mine == own().end() ? std::string() : device_of(mine->interface);
}

std::uint32_t Connections::speed_of(int socket) const {
  const auto from = local_endpoint(socket).address();
  for (std::size_t i = 0; i < address_.rails.size(); ++i)
    if (address_.endpoints[i].address() == from) return address_.rails[i].speed;
  return 0;
}

}  // namespace rondo::connect
