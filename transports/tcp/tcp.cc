// SPDX-License-Identifier: Apache-2.0
//
// The data plane: everything that happens once a connection is open. Frames go over it one after
// the other, in both directions:
//   connection = hello challenge proof verdict frame*          (the handshake: base/handshake.cc)
//   frame      = header:64 bytes [tag] payload [tag]      (opaque here; see docs/reference/wire.md)
// Links of several connections send pieces instead (piece.h). No length is on the wire: the
// receiver's sink says how long the next payload is.
//
// Once the connections are open, frames take no lock and no allocation. One atomic load tells
// whether the set-up thread has news.
#include "transports/tcp/tcp.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <string_view>

#include <rondo/error.h>

#include "base/text.h"
#include "transports/connect/connections.h"
#include "transports/connect/socket.h"
#include "transports/tcp/paths.h"
#include "transports/tcp/tcp_link.h"

namespace rondo::tcp {
namespace {

// If at most this many links expect something, each is read directly. If there are more, epoll says
// which of them have something.
constexpr unsigned direct_links = 4;
// Links that expect nothing are looked at once in this many calls of progress(). Only a peer that
// does what it should not has to wait for that.
constexpr unsigned refresh_interval = 64;

// How often connections that leave room for urgent frames are looked at, and for how long after the
// last urgent frame.
constexpr milliseconds pace_interval{5};
constexpr milliseconds urgent_memory{2000};

// The longest pause between two looks at the connections of a rank that leaves.
constexpr milliseconds longest_pause{10};

// The congestion control of connections within a host. There is no network to share, and reno sends
// at once. BBR, the default of some hosts, spreads data over time by its estimate of a rate. With
// it operations of 256 KiB to 4 MiB took up to 1.7 times as long in some jobs, and not in others.
// Every Linux has reno and allows it to every user. If the kernel refuses, the connection keeps the
// default.
constexpr std::string_view same_host_congestion_control = "reno";

// For each of several connections of a link: the bound on data that the network has not taken yet.
// So the connection that has room is the fast one.
constexpr int unsent_bytes = 128 << 10;

// AF21, the class for "low-latency data" (RFC 4594). Setting it changes the priority too, so the
// priority is set after it.
constexpr int service_class = 18 << 2;
constexpr int interactive = 6;  // TC_PRIO_INTERACTIVE, the highest that needs no privilege

// Fits a new connection to the frames of its lane. It asks the network to let urgent frames pass
// others: by the priority, for queueing disciplines of this host, and by the DSCP, for switches.
void prepare(int socket, transports::Lane lane, bool one_of_several, bool same_host) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  if (same_host)
    ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, same_host_congestion_control.data(),
                 same_host_congestion_control.size());
  if (one_of_several) set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_bytes);
  if (lane != transports::Lane::urgent) return;
  const bool v6 = connect::local_endpoint(socket).address().is_v6();
  set(v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_TCLASS : IP_TOS, service_class);
  set(SOL_SOCKET, SO_PRIORITY, interactive);
}

class Tcp final : public transports::Transport {
 public:
  explicit Tcp(const Options& options);

  transports::Identity identity() const override {
    const connect::Address& own = connections_.address();
    return {"tcp", connect::encode(own), connect::to_text(own.endpoints.front())};
  }
  std::string describe_peer(int peer) const override;
  transports::Reach reach(int peer, std::span<const std::byte> address) const override;
  void start(std::vector<transports::Blob> addresses, std::uint64_t job) override;
  TcpLink& link(int peer, transports::Lane lane) override;
  void halt() noexcept override {
    halted_ = true;
    for (const auto& link : links_)
      if (link) link->halt();
  }
  std::vector<int> linger(base::TimePoint until) override;
  connect::Segments segments() { return connections_.segments(); }
  bool progress() override;
  transports::WakeSource wake_source() const noexcept override { return {epoll_.get()}; }
  bool prepare_sleep() override;

 private:
  std::size_t paths(int peer, transports::Lane lane) const noexcept;
  std::optional<connect::Peer> plan(int peer);
  void adopt();
  void adopt(TcpLink& link, connect::Event& event);
  void lose(const connect::Event& interface);
  void watch(int descriptor, std::uint32_t events, void* data);
  void refresh_flags();
  bool refresh_due() noexcept;
  void pace(bool urgent) noexcept;

  const Options options_;
  base::FileDescriptor epoll_;
  BorrowSlot slot_;
  connect::Connections connections_;
  std::vector<std::string> names_;                                       // by peer
  std::vector<std::optional<connect::Address>> peers_;                   // by peer
  std::vector<PathPlan> plans_;                                          // by peer
  std::vector<std::unique_ptr<TcpLink>> links_;                          // by peer and lane
  std::array<std::vector<TcpLink*>, transports::link_lane_count> open_;  // by lane
  std::vector<TcpLink*> paced_;
  bool halted_ = false;
  std::optional<base::TimePoint> urgent_at_;
  base::TimePoint paced_at_{};
  // calls_: of progress() since epoll was last asked. The others count links, at the last
  // progress().
  unsigned calls_ = 0, expecting_ = 0, waiting_ = 0;
};

Tcp::Tcp(const Options& options)
    : options_(options),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      connections_(options, options.connections),
      names_(static_cast<std::size_t>(options.size)),
      peers_(static_cast<std::size_t>(options.size)),
      plans_(static_cast<std::size_t>(options.size)),
      links_(static_cast<std::size_t>(options.size) * transports::link_lane_count) {
  if (!epoll_)
    throw Error(Errc::system, fmt::format("epoll_create1: {}", base::describe_errno(errno)));
  watch(connections_.descriptor(), EPOLLIN | EPOLLET, nullptr);
  for (auto& lane : open_) lane.reserve(static_cast<std::size_t>(options.size));
}

transports::Reach Tcp::reach(int peer, std::span<const std::byte> bytes) const {
  const auto address = connect::decode_address(bytes);
  if (!address) return {{}, fmt::format("the tcp address of rank {} cannot be read", peer)};
  const bool same_host = !options_.host.empty() && address->host == options_.host;
  if (same_host) return {transports::distance_host + 5, {}};
  const std::string where = connect::to_text(address->endpoints.front());
  if (options_.secret.empty() || options_.this_host_only)
    return {{},
            fmt::format("rank {} at {} runs on another host, and without a job secret only ranks "
                        "of this host are "
                        "accepted: set RONDO_SECRET to the same value on all ranks",
                        peer, where)};
  if (connect::candidates(*address, false, connections_.chosen(), connections_.own()).empty()) {
    const bool alone = std::ranges::all_of(
        address->endpoints, [](const auto& one) { return one.address().is_loopback(); });
    return {{},
            alone ? fmt::format("rank {} runs on another host and listens only on loopback ({}): "
                                "its other interfaces are down, left out by RONDO_INTERFACE, or "
                                "have only link-local addresses (fe80::), which mean something "
                                "else on every host. Give one an address that other hosts can "
                                "reach; `rondo info` on its host lists them",
                                peer, where)
                  : fmt::format("rank {} runs on another host and listens only on addresses that "
                                "this host has too ({})",
                                peer, where)};
  }
  return {transports::distance_network, {}};
}

void Tcp::start(std::vector<transports::Blob> addresses, std::uint64_t job) {
  std::vector<std::optional<connect::Peer>> peers;
  addresses.resize(names_.size());
  for (std::size_t i = 0; i < names_.size(); ++i) {
    peers_[i] = connect::decode_address(addresses[i]);
    names_[i] = peers_[i] ? connect::to_text(peers_[i]->endpoints.front()) : "no address";
    peers.push_back(plan(static_cast<int>(i)));
  }
  connections_.start(std::move(peers), job);
}

// No value for this rank itself and for a rank without an address.
std::optional<connect::Peer> Tcp::plan(int peer) {
  const auto rank = static_cast<std::size_t>(peer);
  if (peer == options_.rank || !peers_[rank]) return std::nullopt;
  const connect::Address &mine = connections_.address(), &theirs = *peers_[rank];
  const bool lower = options_.rank < peer;
  PathPlan& plan = plans_[rank] = lower ? plan_paths(mine, theirs) : plan_paths(theirs, mine);
  connect::Peer result{.address = theirs, .links = {}};
  for (const transports::Lane lane : transports::link_lanes) {
    auto& routes = result.links[static_cast<std::size_t>(lane)];
    routes.resize(paths(peer, lane));
    for (std::size_t i = 0; i < routes.size() && !plan.pairs.empty(); ++i) {
      const auto& pair = plan.pairs[i % plan.pairs.size()];
      routes[i] = {theirs.endpoints[lower ? pair.higher : pair.lower],
                   mine.endpoints[lower ? pair.lower : pair.higher].address()};
    }
  }
  return result;
}

// Urgent frames are small: one connection is enough for them, and takes the fewest steps.
std::size_t Tcp::paths(int peer, transports::Lane lane) const noexcept {
  return lane == transports::Lane::urgent ? 1 : plans_[static_cast<std::size_t>(peer)].paths;
}

std::string Tcp::describe_peer(int peer) const {
  const auto rank = static_cast<std::size_t>(peer);
  if (!peers_[rank]) return "no address";
  const connect::Address &mine = connections_.address(), &theirs = *peers_[rank];
  const auto routed = connect::candidates(theirs, theirs.host == mine.host, connections_.chosen(),
                                          connections_.own());
  return tcp::describe(plans_[rank], mine, theirs, options_.rank < peer,
                       routed.empty() ? theirs.endpoints.front() : routed.front());
}

TcpLink& Tcp::link(int peer, transports::Lane lane) {
  const auto rank = static_cast<std::size_t>(peer);
  auto& place = links_.at(rank * transports::link_lane_count + static_cast<std::size_t>(lane));
  if (place) return *place;
  place = std::make_unique<TcpLink>(peer, lane, sinks_, names_[rank], paths(peer, lane),
                                    connections_, slot_);
  return *place;
}

void Tcp::watch(int descriptor, std::uint32_t events, void* data) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = data;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Error(Errc::system, fmt::format("epoll_ctl: {}", base::describe_errno(errno)));
}

void Tcp::adopt() {
  for (connect::Event& event : connections_.take()) {
    if (event.kind == connect::Event::Kind::interface_lost) {
      lose(event);
      continue;
    }
    const auto lane = static_cast<transports::Lane>(event.lane);
    TcpLink& link = this->link(event.peer, lane);
    switch (event.kind) {
      case connect::Event::Kind::reminder:
        link.reminded();
        calls_ = refresh_interval;  // so the link sees all that has come meanwhile
        break;
      case connect::Event::Kind::failed:
        link.break_off(event.code, event.what, false);
        break;
      case connect::Event::Kind::ready:
        adopt(link, event);
        break;
      case connect::Event::Kind::interface_lost:
        break;
    }
  }
}

void Tcp::adopt(TcpLink& link, connect::Event& event) {
  const int socket = event.socket.get();
  prepare(socket, link.lane(), paths(link.peer(), link.lane()) > 1, event.same_host);
  const bool known = link.open();
  // A broken link takes no connection; the event then closes the socket.
  TcpLink::Path* const path = link.attach(event);
  if (path == nullptr) return connections_.forget(socket);
  watch(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, path);
  if (known) return;
  open_[static_cast<std::size_t>(link.lane())].push_back(&link);
  if (link.lane() != transports::Lane::urgent && !event.same_host) paced_.push_back(&link);
}

void Tcp::lose(const connect::Event& interface) {
  for (const auto& link : links_)
    if (link) link->interface_lost(interface.interface, interface.what);
  for (auto& open : open_) std::erase_if(open, [](const TcpLink* link) { return !link->open(); });
}

void Tcp::refresh_flags() {
  std::array<epoll_event, 64> events;
  int count = 0;
  do {
    count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i)
      if (auto* path = static_cast<TcpLink::Path*>(events[static_cast<std::size_t>(i)].data.ptr))
        path->flag(events[static_cast<std::size_t>(i)].events);
  } while (count == static_cast<int>(events.size()));
}

// Without an open link epoll has no news: connections that are being made report through
// connections_.pending().
bool Tcp::refresh_due() noexcept {
  if (std::ranges::all_of(open_, [](const auto& links) { return links.empty(); })) return false;
  if (++calls_ < refresh_interval && expecting_ <= direct_links && waiting_ == 0) return false;
  calls_ = 0;
  return true;
}

// Paces the links of the other lanes, but only while urgent frames are in use.
void Tcp::pace(bool urgent) noexcept {
  if (paced_.empty()) return;
  const base::TimePoint now = base::Clock::now();
  if (urgent) urgent_at_ = now;
  if (!urgent_at_ || now - paced_at_ < pace_interval) return;
  paced_at_ = now;
  const bool restrained = now - *urgent_at_ < urgent_memory;
  for (TcpLink* link : paced_)
    if (link->open()) link->pace(now, restrained);
  if (!restrained) urgent_at_.reset();
}

bool Tcp::progress() {
  if (halted_) return false;
  bool moved = connections_.pending();
  if (moved) adopt();
  const bool direct = expecting_ <= direct_links;
  if (refresh_due()) refresh_flags();
  expecting_ = waiting_ = 0;
  for (const transports::Lane lane : transports::link_lanes) {
    auto& open = open_[static_cast<std::size_t>(lane)];
    bool broken = false, arrived = false;
    for (TcpLink* link : open) {
      if (link->progress(direct)) arrived = true;
      expecting_ += link->expecting();
      waiting_ += link->waits_for_room();
      broken = broken || !link->open();
    }
    if (broken) std::erase_if(open, [](const TcpLink* link) { return !link->open(); });
    if (lane == transports::Lane::urgent) pace(arrived);
    moved = moved || arrived;
  }
  return moved;
}

// Nothing tells when a peer's host has taken the last bytes, so this looks again after a pause,
// which ends early when a peer sends or closes.
std::vector<int> Tcp::linger(base::TimePoint until) {
  std::vector<TcpLink*> left;
  for (const auto& link : links_)
    if (link) left.push_back(link.get());
  std::array<epoll_event, 64> events;
  for (milliseconds pause{1};; pause = std::min(2 * pause, longest_pause)) {
    const base::TimePoint now = base::Clock::now();
    std::erase_if(left, [](TcpLink* link) { return link->leave(false); });
    if (left.empty() || now >= until) break;
    ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                 base::poll_timeout(now, until, pause));
  }
  std::set<int> late;
  for (TcpLink* link : left) {
    link->leave(true);
    late.insert(link->peer());
  }
  return {late.begin(), late.end()};
}

bool Tcp::prepare_sleep() {
  if (halted_) return true;
  refresh_flags();
  if (connections_.pending()) return false;
  for (const auto& lane : open_)
    for (const TcpLink* link : lane)
      if (link->has_work()) return false;
  return true;
}

}  // namespace

std::unique_ptr<transports::Transport> make_tcp(const Options& options) {
  return std::make_unique<Tcp>(options);
}

connect::Segments segments_of(transports::Transport& transport) {
  auto* const tcp = dynamic_cast<Tcp*>(&transport);
  return tcp != nullptr ? tcp->segments() : connect::Segments{};
}

}  // namespace rondo::tcp
