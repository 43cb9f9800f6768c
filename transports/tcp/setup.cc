// SPDX-License-Identifier: Apache-2.0
//
// Two ranks may open the same connection at once. The one begun by the higher rank is kept: the
// lower rank accepts it and gives up its own; the higher rank refuses the lower's with
// duplicate_link once it has said hello on its own, and before that accepts it and gives up its
// own. Both ends decide on one thread each, so there is no third case: a rank that has welcomed a
// connection never says hello for the same one later.
#include "transports/tcp/setup.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>

#include "base/descriptor_share.h"
#include "base/log.h"
#include "base/thread.h"
#include "transports/connect/socket.h"

namespace rondo::tcp {
namespace {

// Bounds on connections that have proved nothing: in time and, beyond what the job's own ranks can
// cause, in number. They never hold more than their share of this process's descriptors.
constexpr milliseconds handshake_limit{5000};
constexpr std::size_t strangers = 128;

base::FileDescriptor make_eventfd() {
  base::FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw Error(Errc::system, fmt::format("eventfd: {}", connect::reason(errno)));
  return event;
}

// An address may have a label behind the name of its interface: "eth0:1".
std::string device_of(const std::string& interface) {
  return interface.substr(0, interface.find(':'));
}

// As the others will read it: both ends must plan with the same.
connect::Address listening_address(const Options& options, const connect::Listener& listener) {
  connect::Address address{options.host, listener.endpoints(), listener.rails(),
                           std::clamp(options.connections, 1u, connect::most_connections)};
  for (connect::Rail& rail : address.rails) rail.interface = device_of(rail.interface);
  const auto announced = connect::decode_address(connect::encode(address));
  return announced ? *announced : address;
}

}  // namespace

Setup::Setup(const Options& options)
    : options_(options),
      wakeup_(make_eventfd()),
      listener_(context_, options),
      vigil_(options.peer_timeout),
      vigil_timer_(context_),
      interfaces_(context_),
      address_(listening_address(options, listener_)),
      plans_(static_cast<std::size_t>(options.size)),
      slots_(static_cast<std::size_t>(options.size) * transports::link_lane_count),
      work_(boost::asio::make_work_guard(context_)) {}

Setup::~Setup() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

void Setup::start(std::vector<std::optional<connect::Address>> peers, std::uint64_t job) {
  peers_ = std::move(peers);
  peers_.resize(static_cast<std::size_t>(options_.size));
  job_ = job;
  for (int peer = 0; peer < options_.size; ++peer) {
    const auto rank = static_cast<std::size_t>(peer);
    if (peer == options_.rank || !peers_[rank]) continue;
    plans_[rank] = peer > options_.rank ? plan_paths(address_, *peers_[rank])
                                        : plan_paths(*peers_[rank], address_);
  }
  for (int peer = 0; peer < options_.size; ++peer)
    for (int lane = 0; lane < transports::link_lane_count; ++lane) {
      const int link = peer * transports::link_lane_count + lane;
      auto& slots = slots_[static_cast<std::size_t>(link)];
      slots.resize(paths(peer, lane));
      slot_count_ += slots.size();
    }
  listener_.start([this](base::FileDescriptor socket) { came_in(std::move(socket)); },
                  [this] { return drop_oldest_stranger(); },
                  [this](const std::string& what) { give_up_connecting(what); });
  interfaces_.start([this](const std::string& interface, const std::string& what) {
    if (std::ranges::none_of(
            own(), [&](const auto& one) { return device_of(one.interface) == interface; }))
      return;
    publish({.kind = SetupEvent::Kind::interface_lost, .interface = interface, .what = what});
  });
  thread_ = base::start_thread("rondo-setup", [this] { run(); });
}

// One connection that fails in an unforeseen way (no memory, no random bytes) must not take the
// others with it.
void Setup::run() {
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

void Setup::open(int peer, int lane) {
  boost::asio::post(context_, [this, peer, lane] {
    for (std::size_t path = 0; path < paths(peer, lane); ++path) dial(peer, lane, path);
  });
}

// Small frames only: one connection is enough, and the fewest steps count.
std::size_t Setup::paths(int peer, int lane) const noexcept {
  if (static_cast<transports::Lane>(lane) == transports::Lane::urgent) return 1;
  return plans_[static_cast<std::size_t>(peer)].paths;
}

void Setup::remind(int peer, int lane, milliseconds after) {
  boost::asio::post(context_, [this, peer, lane, after] {
    const auto timer = reminders_.emplace(reminders_.end(), context_, after);
    timer->async_wait([this, peer, lane, timer](const boost::system::error_code&) {
      reminders_.erase(timer);
      publish({.kind = SetupEvent::Kind::reminder, .peer = peer, .lane = lane});
    });
  });
}

std::vector<SetupEvent> Setup::take() {
  const std::lock_guard lock(mutex_);
  pending_.store(false, std::memory_order_relaxed);
  return std::exchange(events_, {});
}

void Setup::publish(SetupEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    pending_.store(true, std::memory_order_release);
  }
  const std::uint64_t one = 1;
  // Can only fail when the counter is full, and then it is readable anyway.
  [[maybe_unused]] const auto written = ::write(wakeup_.get(), &one, sizeof one);
}

bool Setup::drop_oldest_stranger() {
  if (incoming_.empty()) return false;
  strangers_log_.line(
      base::LogLevel::warning,
      "too many connections that have not proved the job secret: the oldest is dropped");
  incoming_.front()->cancel();
  incoming_.pop_front();
  return true;
}

void Setup::came_in(base::FileDescriptor socket) {
  if (incoming_.size() >= std::min(strangers + slot_count_, base::most_unproved_descriptors()))
    drop_oldest_stranger();
  connect::Acceptor::Owner& owner = *this;
  auto session = std::make_shared<connect::Acceptor>(owner, context_, std::move(socket), options_,
                                                     strangers_log_);
  incoming_.push_back(session);
  session->start(handshake_limit);
}

// Open connections go on; those that are missing will not come.
void Setup::give_up_connecting(const std::string& what) {
  const std::string text = fmt::format("rank {} {}", options_.rank, what);
  base::log_line(base::LogLevel::error, text);
  for (int peer = 0; peer < options_.size; ++peer)
    for (int lane = 0; lane < transports::link_lane_count; ++lane)
      for (std::size_t path = 0; path < paths(peer, lane); ++path) {
        Slot& mine = slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane), path);
        if (mine.state == Slot::State::ready || peer == options_.rank) continue;
        if (mine.dial) std::exchange(mine.dial, nullptr)->cancel();
        mine.state = Slot::State::ready;
        publish({.kind = SetupEvent::Kind::failed,
                 .peer = peer,
                 .lane = lane,
                 .path = static_cast<int>(path),
                 .code = Errc::system,
                 .what = text});
      }
}

void Setup::finished(connect::Acceptor& incoming) {
  incoming_.remove_if([&](const auto& one) { return one.get() == &incoming; });
}

base::Verdict Setup::admit(const base::Claim& claim) const {
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
      mine.state == Slot::State::dialing && rank > claim.rank && mine.dial->committed();
  return own_is_kept ? base::Verdict::duplicate_link : base::Verdict::welcome;
}

void Setup::established(const base::Claim& claim, base::FileDescriptor socket,
                        const base::Agreement& agreed) {
  Slot& mine = slot(claim.rank, claim.lane, claim.connection);
  if (mine.dial) std::exchange(mine.dial, nullptr)->cancel();
  hand_over(static_cast<int>(claim.rank), static_cast<int>(claim.lane), claim.connection,
            std::move(socket), agreed);
}

// First the pair of interfaces that the path is meant for, then whatever routing finds.
std::vector<connect::Connector::Route> Setup::routes(int peer, std::size_t path) const {
  const auto& address = peers_[static_cast<std::size_t>(peer)];
  std::vector<connect::Connector::Route> routes;
  if (!address) return routes;
  if (const auto& pairs = plans_[static_cast<std::size_t>(peer)].pairs; !pairs.empty()) {
    const auto& pair = pairs[path % pairs.size()];
    const bool lower = options_.rank < peer;
    routes.push_back({address->endpoints[lower ? pair.higher : pair.lower],
                      address_.endpoints[lower ? pair.lower : pair.higher].address()});
  }
  for (const auto& endpoint :
       connect::candidates(*address, address->host == options_.host, chosen(), own()))
    routes.push_back({endpoint, std::nullopt});
  return routes;
}

void Setup::dial(int peer, int lane, std::size_t path) {
  Slot& mine = slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane), path);
  if (mine.state != Slot::State::idle) return;
  auto routes = this->routes(peer, path);
  base::Claim claim{.purpose = base::Purpose::data,
                    .rank = static_cast<std::uint32_t>(options_.rank),
                    .size = static_cast<std::uint32_t>(options_.size),
                    .job = job_,
                    .lane = static_cast<std::uint32_t>(lane),
                    .connection = static_cast<std::uint32_t>(path)};
  if (routes.empty())
    return connect_failed(
        claim, static_cast<std::uint32_t>(peer), Errc::unsupported,
        fmt::format(
            "cannot connect to rank {}: it has no TCP address that can be reached from here",
            peer));
  connect::Connector::Owner& owner = *this;
  mine.state = Slot::State::dialing;
  mine.dial = std::make_shared<connect::Connector>(
      owner, context_, claim, static_cast<std::uint32_t>(peer), options_, std::move(routes));
  // More than a year means "for ever": nanoseconds hold three centuries at most.
  mine.dial->start(std::min<milliseconds>(options_.connect_deadline, std::chrono::hours{24 * 365}));
}

void Setup::connected(const base::Claim& claim, std::uint32_t peer, base::FileDescriptor socket,
                      const base::Agreement& agreed) {
  slot(peer, claim.lane, claim.connection).dial.reset();
  hand_over(static_cast<int>(peer), static_cast<int>(claim.lane), claim.connection,
            std::move(socket), agreed);
}

void Setup::connect_failed(const base::Claim& claim, std::uint32_t peer, Errc code,
                           const std::string& what) {
  Slot& mine = slot(peer, claim.lane, claim.connection);
  mine.state = Slot::State::ready;
  mine.dial.reset();
  publish({.kind = SetupEvent::Kind::failed,
           .peer = static_cast<int>(peer),
           .lane = static_cast<int>(claim.lane),
           .path = static_cast<int>(claim.connection),
           .code = code,
           .what = what});
}

void Setup::hand_over(int peer, int lane, std::size_t path, base::FileDescriptor socket,
                      const base::Agreement& agreed) {
  listener_.relieved();
  slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane), path).state =
      Slot::State::ready;
  const auto& address = peers_[static_cast<std::size_t>(peer)];
  const bool same_host = address && address->host == options_.host;
  connect::set_connection_options(socket.get(), options_.peer_timeout, same_host);
  if (paths(peer, lane) > 1) connect::set_short_queue(socket.get());
  if (static_cast<transports::Lane>(lane) == transports::Lane::urgent)
    connect::set_urgent(socket.get());
  vigil_.watch(socket.get());
  if (!vigil_kept_) keep_vigil();
  std::string name = name_of_peer(peer, socket.get());
  std::string route = route_of(socket.get());
  std::string interface = interface_of(socket.get());
  const std::uint32_t speed = speed_of_path(socket.get());
  publish({.peer = peer,
           .lane = lane,
           .path = static_cast<int>(path),
           .socket = std::move(socket),
           .name = std::move(name),
           .route = std::move(route),
           .interface = std::move(interface),
           .speed = speed,
           .same_host = same_host,
           .agreed = agreed});
}

void Setup::keep_vigil() {
  vigil_kept_ = true;
  vigil_timer_.expires_after(vigil_.interval());
  vigil_timer_.async_wait([this](const boost::system::error_code& failed) {
    vigil_kept_ = !failed && vigil_.look(base::Clock::now());
    if (vigil_kept_) keep_vigil();
  });
}

// Where the peer listens rather than the port that it happened to connect from: that is what its
// own log says.
std::string Setup::name_of_peer(int peer, int socket) const {
  const auto remote = connect::remote_endpoint(socket);
  if (const auto& known = peers_[static_cast<std::size_t>(peer)]; known) {
    for (const auto& endpoint : known->endpoints)
      if (endpoint.address() == remote.address()) return connect::to_text(endpoint);
    return connect::to_text(known->endpoints.front());
  }
  return connect::to_text(remote);
}

std::string Setup::route_of(int socket) const {
  const auto from = connect::local_endpoint(socket).address();
  const auto mine = std::ranges::find(own(), from, &connect::LocalAddress::address);
  return fmt::format("{} -> {} ({})", from.to_string(),
                     connect::remote_endpoint(socket).address().to_string(),
                     mine != own().end() ? mine->interface : "interface not known");
}

std::string Setup::interface_of(int socket) const {
  const auto find = [&](const boost::asio::ip::tcp::endpoint& endpoint) {
    return std::ranges::find(own(), endpoint.address(), &connect::LocalAddress::address);
  };
  const auto mine = find(connect::local_endpoint(socket));
  const bool stays = find(connect::remote_endpoint(socket)) != own().end();
  return stays || mine == own().end() ? std::string() : device_of(mine->interface);
}

std::uint32_t Setup::speed_of_path(int socket) const {
  const auto from = connect::local_endpoint(socket).address();
  for (std::size_t i = 0; i < address_.rails.size(); ++i)
    if (address_.endpoints[i].address() == from) return address_.rails[i].speed;
  return 0;
}

std::string Setup::describe_paths(int peer) const {
  const auto& address = peers_[static_cast<std::size_t>(peer)];
  if (!address) return "no address";
  const PathPlan& plan = plans_[static_cast<std::size_t>(peer)];
  const bool lower = options_.rank < peer;
  std::string text = fmt::format("{} path{}", plan.paths, plan.paths == 1 ? "" : "s");
  for (std::size_t i = 0; i < plan.pairs.size() && i < plan.paths; ++i) {
    const std::size_t mine = lower ? plan.pairs[i].lower : plan.pairs[i].higher;
    const std::size_t theirs = lower ? plan.pairs[i].higher : plan.pairs[i].lower;
    text += fmt::format(
        "{} {} -> {} ({})", i == 0 ? ":" : ",", address_.endpoints[mine].address().to_string(),
        address->endpoints[theirs].address().to_string(), address_.rails[mine].interface);
  }
  if (plan.pairs.empty())
    text += fmt::format(" to {}",
                        connect::to_text(routes(peer, 0).empty() ? address->endpoints.front()
                                                                 : routes(peer, 0).front().remote));
  if (address->host == options_.host) return text;
  const auto& unused = lower ? plan.lower_unused : plan.higher_unused;
  for (std::size_t i = 0; i < unused.size(); ++i)
    if (!unused[i].empty() && !address_.endpoints[i].address().is_loopback())
      text += fmt::format("; not {} ({}): {}", address_.endpoints[i].address().to_string(),
                          address_.rails[i].interface, unused[i]);
  return text;
}

}  // namespace rondo::tcp
