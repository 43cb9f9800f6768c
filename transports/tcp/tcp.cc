// SPDX-License-Identifier: Apache-2.0
//
// The data plane: everything that happens once a connection is open. Frames go over it one after
// the other, in both directions:
//   connection = hello challenge proof verdict frame*          (the handshake: base/handshake.cc)
//   frame      = header:64 bytes  payload                      (both opaque here; see docs/wire.md)
// No length is on the wire: the receiver's sink says how long the next payload is.
//
// No lock and no allocation once the connections are open: what comes from the set-up thread is
// seen by one atomic load.
#include "transports/tcp/tcp.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <array>
#include <cerrno>

#include <rondo/error.h>

#include "transports/connect/socket.h"
#include "transports/tcp/setup.h"
#include "transports/tcp/sole_link.h"
#include "transports/tcp/striped_link.h"
#include "transports/tcp/tcp_link.h"

namespace rondo::tcp {
namespace {

// So many links that expect something are asked directly; when there are more, epoll is asked which
// of them have something.
constexpr unsigned direct_links = 4;
// Links that expect nothing are looked at this often: only a peer that does what it should not
// would be kept waiting.
constexpr unsigned refresh_interval = 64;

// How often connections are looked at that are to leave room for urgent frames, and for how long
// after the last of these.
constexpr milliseconds pace_interval{5};
constexpr milliseconds urgent_memory{2000};

class Tcp final : public transports::Transport {
 public:
  explicit Tcp(const Options& options);

  std::string_view name() const noexcept override { return "tcp"; }
  transports::Blob address() const override { return connect::encode(setup_.address()); }
  std::string describe() const override {
    return connect::to_text(setup_.address().endpoints.front());
  }
  std::string describe_peer(int peer) const override { return setup_.describe_paths(peer); }
  transports::Reach reach(int peer, std::span<const std::byte> address) const override;
  void start(std::vector<transports::Blob> addresses, std::uint64_t job) override;
  TcpLink& link(int peer, transports::Lane lane) override;
  std::unique_ptr<transports::Region> register_memory(std::span<std::byte>) override {
    return std::make_unique<transports::Region>();
  }
  bool progress(transports::Sink& sink) override;
  int wait_descriptor() const noexcept override { return epoll_.get(); }
  bool prepare_sleep() override;

 private:
  void adopt(transports::Sink& sink);
  void adopt(TcpLink& link, SetupEvent& event);
  void lose(const SetupEvent& interface, transports::Sink& sink);
  void watch(int descriptor, std::uint32_t events, void* data);
  void refresh_flags();
  bool refresh_due() noexcept;
  void pace(bool urgent) noexcept;

  const Options options_;
  base::FileDescriptor epoll_;
  BorrowSlot slot_;
  Setup setup_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<TcpLink>> links_;                          // by peer and lane
  std::array<std::vector<TcpLink*>, transports::link_lane_count> open_;  // by lane
  std::vector<TcpLink*> paced_;
  std::optional<base::TimePoint> urgent_at_;
  base::TimePoint paced_at_{};
  unsigned calls_ = 0, expecting_ = 0, waiting_ = 0;  // of the last progress
};

Tcp::Tcp(const Options& options)
    : options_(options),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      setup_(options),
      names_(static_cast<std::size_t>(options.size)),
      links_(static_cast<std::size_t>(options.size) * transports::link_lane_count) {
  if (!epoll_) throw Error(Errc::system, fmt::format("epoll_create1: {}", connect::reason(errno)));
  watch(setup_.descriptor(), EPOLLIN | EPOLLET, nullptr);
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
  if (connect::candidates(*address, false, setup_.chosen(), setup_.own()).empty())
    return {{},
            fmt::format("rank {} runs on another host and listens only on loopback or on addresses "
                        "that this host "
                        "has too ({})",
                        peer, where)};
  return {transports::distance_network, {}};
}

void Tcp::start(std::vector<transports::Blob> addresses, std::uint64_t job) {
  std::vector<std::optional<connect::Address>> peers;
  peers.reserve(names_.size());
  for (const transports::Blob& bytes : addresses) peers.push_back(connect::decode_address(bytes));
  peers.resize(names_.size());
  for (std::size_t i = 0; i < names_.size(); ++i)
    names_[i] = peers[i] ? connect::to_text(peers[i]->endpoints.front()) : "no address";
  setup_.start(std::move(peers), job);
}

TcpLink& Tcp::link(int peer, transports::Lane lane) {
  const auto rank = static_cast<std::size_t>(peer);
  auto& place = links_.at(rank * transports::link_lane_count + static_cast<std::size_t>(lane));
  if (place) return *place;
  const std::size_t paths = setup_.paths(peer, static_cast<int>(lane));
  if (paths == 1)
    place = std::make_unique<SoleLink>(peer, lane, names_[rank], setup_, slot_);
  else
    place = std::make_unique<StripedLink>(peer, lane, names_[rank], paths, setup_, slot_);
  return *place;
}

void Tcp::watch(int descriptor, std::uint32_t events, void* data) {
  epoll_event event{};
  event.events = events;
  event.data.ptr = data;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Error(Errc::system, fmt::format("epoll_ctl: {}", connect::reason(errno)));
}

void Tcp::adopt(transports::Sink& sink) {
  for (SetupEvent& event : setup_.take()) {
    if (event.kind == SetupEvent::Kind::interface_lost) {
      lose(event, sink);
      continue;
    }
    const auto lane = static_cast<transports::Lane>(event.lane);
    TcpLink& link = this->link(event.peer, lane);
    switch (event.kind) {
      case SetupEvent::Kind::reminder:
        link.reminded(sink);
        break;
      case SetupEvent::Kind::failed:
        link.break_off(sink, event.code, event.what, false);
        break;
      case SetupEvent::Kind::ready:
        adopt(link, event);
        break;
      case SetupEvent::Kind::interface_lost:
        break;
    }
  }
}

void Tcp::adopt(TcpLink& link, SetupEvent& event) {
  const int socket = event.socket.get();
  const bool known = link.open();
  // Of a link that is broken nothing is wanted any more.
  Watched* const watched = link.attach(event);
  if (watched == nullptr) return setup_.forget(socket);
  watch(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, watched);
  if (known) return;
  open_[static_cast<std::size_t>(link.lane())].push_back(&link);
  if (link.lane() != transports::Lane::urgent && !event.same_host) paced_.push_back(&link);
}

void Tcp::lose(const SetupEvent& interface, transports::Sink& sink) {
  for (const auto& link : links_)
    if (link) link->interface_lost(sink, interface.interface, interface.what);
  for (auto& open : open_) std::erase_if(open, [](const TcpLink* link) { return !link->open(); });
}

void Tcp::refresh_flags() {
  std::array<epoll_event, 64> events;
  int count = 0;
  do {
    count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i)
      if (auto* watched = static_cast<Watched*>(events[static_cast<std::size_t>(i)].data.ptr))
        watched->flag(events[static_cast<std::size_t>(i)].events);
  } while (count == static_cast<int>(events.size()));
}

bool Tcp::refresh_due() noexcept {
  if (++calls_ < refresh_interval && expecting_ <= direct_links && waiting_ == 0) return false;
  calls_ = 0;
  return true;
}

// Only what is used together with urgent frames gives way to them.
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

bool Tcp::progress(transports::Sink& sink) {
  bool moved = setup_.pending();
  if (moved) adopt(sink);
  const bool direct = expecting_ <= direct_links;
  if (refresh_due()) refresh_flags();
  expecting_ = waiting_ = 0;
  for (const transports::Lane lane : transports::link_lanes) {
    auto& open = open_[static_cast<std::size_t>(lane)];
    bool broken = false, arrived = false;
    for (TcpLink* link : open) {
      if (link->progress(sink, direct)) arrived = true;
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

bool Tcp::prepare_sleep() {
  refresh_flags();
  if (setup_.pending()) return false;
  for (const auto& lane : open_)
    for (const TcpLink* link : lane)
      if (link->has_work()) return false;
  return true;
}

}  // namespace

std::unique_ptr<transports::Transport> make_tcp(const Options& options) {
  return std::make_unique<Tcp>(options);
}

}  // namespace rondo::tcp
