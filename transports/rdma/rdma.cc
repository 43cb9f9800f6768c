// SPDX-License-Identifier: Apache-2.0
//
// The transport: devices, completions and links. Frames take no lock, no allocation and no system
// call but the device's own. Sockets and device events are looked at before a sleep and, while the
// driver is busy, 50 times a second.
#include "transports/rdma/rdma.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <utility>

#include <rondo/error.h>

#include "base/log.h"
#include "base/occasional.h"
#include "base/text.h"
#include "transports/connect/connections.h"
#include "transports/rdma/absent.h"
#include "transports/rdma/address.h"
#include "transports/rdma/completions.h"
#include "transports/rdma/context.h"
#include "transports/rdma/device_events.h"
#include "transports/rdma/devices.h"
#include "transports/rdma/link.h"
#include "transports/rdma/regions.h"
#include "transports/rdma/send_pool.h"
#include "transports/rdma/sizes.h"

namespace rondo::rdma {
namespace {

// A busy driver looks at sockets and device events once in look_interval, and reads the clock for
// that once in so many calls.
constexpr unsigned calls_between_clocks = 64;
constexpr milliseconds look_interval{20};
// How long the end of the transport waits until the device has sent everything.
constexpr milliseconds flush_limit{2000};
constexpr milliseconds flush_look{10};

// A refusal to register memory is logged once in a process.
std::atomic<bool> refusal_told{false};

// Memory of the program.
class RegisteredMemory final : public transports::Registration {
 public:
  RegisteredMemory(std::shared_ptr<Context> context, std::span<std::byte> memory)
      : context_(std::move(context)),
        region_(context_->devices, memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE) {
    context_->regions.add(region_);
  }
  ~RegisteredMemory() override {
    if (generation_ == base::process_generation()) context_->regions.remove(region_);
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

 private:
  const std::shared_ptr<Context> context_;
  const MemoryRegion region_;
  const unsigned generation_ = base::process_generation();
};

class Rdma final : public transports::Transport, private RdmaLink::Owner {
 public:
  Rdma(const Options& options, std::shared_ptr<Context> context);
  ~Rdma() override;

  transports::Identity identity() const override {
    return {"rdma", encode(own_), connect::to_text(connections_.address().endpoints.front())};
  }
  std::string describe_peer(int peer) const override;
  transports::Reach reach(int peer, std::span<const std::byte> address) const override;
  void start(std::vector<transports::Blob> addresses, std::uint64_t job) override;
  RdmaLink& link(int peer, transports::Lane lane) override;
  std::unique_ptr<transports::Registration> register_memory(std::span<std::byte> memory) override;
  void halt() noexcept override;
  void finish_sending(base::TimePoint until) override { flush_links(until); }
  bool progress() override;
  transports::WakeSource wake_source() const noexcept override { return {epoll_.get()}; }
  bool prepare_sleep() override;

 private:
  const std::shared_ptr<Devices>& devices() const noexcept override { return context_->devices; }
  connect::Connections& connections() noexcept override { return connections_; }
  std::vector<std::unique_ptr<Path>> make_paths(RdmaLink& link) override;
  void connect_path(RdmaLink& link, std::size_t index, Path& path,
                    const PathSetup& theirs) override;
  void watch(RdmaLink& link, int socket) override;
  std::uint64_t drains() const noexcept override { return drains_; }

  std::vector<PortPair> pairs(int peer) const;
  std::size_t paths_between(const Address& peer, std::size_t pair_count) const noexcept;
  void watch(int descriptor, std::uint32_t events, std::uint64_t which);
  void adopt();
  bool poll_completions();
  void look();
  void hear_of_devices();
  void flush_links(base::TimePoint until);

  const Options options_;
  const std::shared_ptr<Context> context_;
  const unsigned generation_ = base::process_generation();
  base::FileDescriptor epoll_;
  // Stands before the pool: where memory may not be locked, this error names the whole need, and
  // the pool's only its own.
  const std::uint32_t slot_bytes_;
  SendPool pool_;
  RegionCache regions_;
  DeviceEvents::Listener events_;
  std::vector<std::unique_ptr<Completions>> completions_;  // by device
  connect::Connections connections_;
  Address own_;
  std::vector<std::optional<Address>> peers_;  // by rank
  // A path's number is its place here. Its link owns it, and keeps it until the transport ends.
  struct PathPlace {
    Path* path = nullptr;
    RdmaLink* link = nullptr;
  };
  std::vector<PathPlace> paths_;
  std::vector<std::unique_ptr<RdmaLink>> links_;  // by lane (link_lanes), then by peer
  std::vector<RdmaLink*> active_;                 // in the order of link_lanes
  bool halted_ = false, looked_ = false;
  std::uint64_t drains_ = 0;
  base::Occasional occasional_look_{look_interval, calls_between_clocks};
};

// In the epoll set: a link's place in links_, or one of these and the number of a device.
constexpr std::uint64_t channel_descriptor = std::uint64_t{1} << 61,
                        other_descriptor = std::uint64_t{1} << 62,
                        events_descriptor = other_descriptor | 1,
                        device_descriptor = std::uint64_t{1} << 63;

base::FileDescriptor make_epoll() {
  base::FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll)
    throw Error(Errc::system, fmt::format("epoll_create1: {}", base::describe_errno(errno)));
  return epoll;
}

Rdma::Rdma(const Options& options, std::shared_ptr<Context> context)
    : options_(options),
      context_(std::move(context)),
      epoll_(make_epoll()),
      slot_bytes_(fitting_slot_bytes(options.size, context_->devices->all().size())),
      pool_(context_->devices),
      regions_(context_->regions),
      events_(context_->events),
      connections_(options, options.connections),
      peers_(static_cast<std::size_t>(options.size)),
      links_(static_cast<std::size_t>(options.size) * transports::link_lane_count) {
  const auto& all = context_->devices->all();
  for (std::size_t i = 0; i < all.size(); ++i) {
    completions_.push_back(std::make_unique<Completions>(
        *all[i], completion_entries(*context_->devices, i, options.size, options.connections)));
    watch(context_->events.descriptor_of(i), EPOLLIN, device_descriptor | i);
    watch(completions_[i]->descriptor(), EPOLLIN, channel_descriptor | i);
  }
  watch(events_.descriptor(), EPOLLIN, events_descriptor);
  watch(connections_.descriptor(), EPOLLIN | EPOLLET, other_descriptor);
  own_.ports = addresses_of(context_->devices->ports());
  own_.connections = connections_.address();
}

Rdma::~Rdma() {
  if (generation_ != base::process_generation()) return;
  if (!halted_) flush_links(base::Clock::now() + flush_limit);
  for (const auto& link : links_)
    if (link) link->halt();
}

void Rdma::watch(int descriptor, std::uint32_t events, std::uint64_t which) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = which;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Error(Errc::system, fmt::format("epoll_ctl: {}", base::describe_errno(errno)));
}

void Rdma::watch(RdmaLink& link, int socket) {
  const auto place = std::ranges::find(links_, &link, &std::unique_ptr<RdmaLink>::get);
  watch(socket, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
        static_cast<std::uint64_t>(place - links_.begin()));
}

transports::Reach Rdma::reach(int peer, std::span<const std::byte> bytes) const {
  if (bytes.empty()) return {{}, fmt::format("rank {} has no RDMA device that it can use", peer)};
  const auto address = decode_address(bytes);
  if (!address)
    return {{},
            fmt::format(
                "the rdma address of rank {} cannot be read: give all ranks one version of Rondo",
                peer)};
  if (options_.between_hosts == base::Protection::payload)
    return {{}, "RDMA cannot protect payloads, and RONDO_INTEGRITY=payload asks for that"};
  const bool same_host = !options_.host.empty() && address->connections.host == options_.host;
  if (!same_host && (options_.secret.empty() || options_.this_host_only))
    return {{},
            fmt::format("rank {} runs on another host, and without a job secret only ranks of this "
                        "host are accepted: set RONDO_SECRET to the same value on all ranks",
                        peer)};
  if (pair_ports(own_.ports, address->ports).empty())
    return {
        {},
        fmt::format("no port of rank {} can talk to one of this rank: {} here, {} there", peer,
                    rdma::describe(own_.ports.front()), rdma::describe(address->ports.front()))};
  return {same_host ? transports::distance_host + 10 : transports::distance_network / 2, {}};
}

void Rdma::start(std::vector<transports::Blob> addresses, std::uint64_t job) {
  std::vector<std::optional<connect::Peer>> peers(peers_.size());
  addresses.resize(peers_.size());
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i] = decode_address(addresses[i]);
    if (!peers_[i] || static_cast<int>(i) == options_.rank) continue;
    peers[i] = connect::Peer{.address = peers_[i]->connections, .links = {}};
    for (auto& lane : peers[i]->links) lane.resize(1);
  }
  connections_.start(std::move(peers), job);
}

// Both ends do the same: the lower rank's ports give the order.
std::vector<PortPair> Rdma::pairs(int peer) const {
  const auto& theirs = peers_.at(static_cast<std::size_t>(peer));
  if (!theirs) return {};
  if (options_.rank < peer) return pair_ports(own_.ports, theirs->ports);
  auto pairs = pair_ports(theirs->ports, own_.ports);
  for (PortPair& pair : pairs) std::swap(pair.mine, pair.theirs);
  return pairs;
}

std::size_t Rdma::paths_between(const Address& peer, std::size_t pair_count) const noexcept {
  const std::size_t each = std::min(options_.connections, peer.connections.connections);
  return std::min(most_paths, pair_count * std::max<std::size_t>(each, 1));
}

// Urgent frames are small: one path is enough for them.
std::vector<std::unique_ptr<Path>> Rdma::make_paths(RdmaLink& link) {
  // Takes pending events first: a new queue pair may get the number of one that is gone.
  hear_of_devices();
  const auto pairs = this->pairs(link.peer());
  if (pairs.empty()) throw Error(Errc::system, "there are no ports that can talk to each other");
  const Address& peer = *peers_[static_cast<std::size_t>(link.peer())];
  const std::size_t count =
      link.lane() == transports::Lane::urgent ? 1 : paths_between(peer, pairs.size());
  std::vector<std::unique_ptr<Path>> made;
  for (std::size_t i = 0; i < count; ++i) {
    const Port& port = context_->devices->ports()[pairs[i % pairs.size()].mine];
    Completions& completions = *completions_[port.device_index];
    completions.reserve(Path::send_depth + Path::receive_depth);
    made.push_back(std::make_unique<Path>(completions.device(), port, completions.queue(),
                                          static_cast<std::uint32_t>(paths_.size() + i)));
  }
  for (const auto& path : made) paths_.push_back({path.get(), &link});
  return made;
}

void Rdma::connect_path(RdmaLink& link, std::size_t index, Path& path, const PathSetup& theirs) {
  const auto pairs = this->pairs(link.peer());
  const PortAddress& port =
      peers_[static_cast<std::size_t>(link.peer())]->ports[pairs[index % pairs.size()].theirs];
  path.connect(port, theirs,
               patience_for(static_cast<std::uint64_t>(
                   std::chrono::duration_cast<nanoseconds>(options_.deadline).count())),
               static_cast<std::uint8_t>(options_.service_level),
               static_cast<std::uint8_t>(options_.traffic_class));
}

RdmaLink& Rdma::link(int peer, transports::Lane lane) {
  const auto row = static_cast<std::size_t>(std::ranges::find(transports::link_lanes, lane) -
                                            transports::link_lanes.begin());
  auto& place = links_.at(row * peers_.size() + static_cast<std::size_t>(peer));
  if (place) return *place;
  const auto& known = peers_[static_cast<std::size_t>(peer)];
  std::string name = known ? connect::to_text(known->connections.endpoints.front()) : "no address";
  const RdmaLink::SlotShape shape{slot_bytes_, slot_count(lane, slot_bytes_)};
  RdmaLink::Owner& owner = *this;
  place = std::make_unique<RdmaLink>(peer, lane, sinks_, std::move(name), owner, pool_, regions_,
                                     shape, options_.grants);
  return *place;
}

std::string Rdma::describe_peer(int peer) const {
  const auto& known = peers_.at(static_cast<std::size_t>(peer));
  if (!known) return "no address";
  const auto pairs = this->pairs(peer);
  std::string text;
  for (const PortPair& pair : pairs)
    text +=
        fmt::format("{}{} -> {}", text.empty() ? "" : ", ", rdma::describe(own_.ports[pair.mine]),
                    rdma::describe(known->ports[pair.theirs]));
  return text;
}

// Memory that the system does not register is sent by copies: slower, and no failure.
std::unique_ptr<transports::Registration> Rdma::register_memory(std::span<std::byte> memory) {
  try {
    return std::make_unique<RegisteredMemory>(context_, memory);
  } catch (const Error& error) {
    if (!refusal_told.exchange(true))
      base::log_line(
          base::LogLevel::warning,
          fmt::format("rank {}: rdma copies what it sends from {} of memory, which is slower: {}",
                      options_.rank, base::describe_bytes(memory.size()), error.what()));
    return nullptr;
  }
}

void Rdma::halt() noexcept {
  halted_ = true;
  for (const auto& link : links_)
    if (link) link->halt();
  // Nobody reads these any more, and they must wake nobody.
  for (const auto& queue : completions_) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, queue->descriptor(), nullptr);
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, queue->device().context()->async_fd, nullptr);
  }
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, events_.descriptor(), nullptr);
}

void Rdma::adopt() {
  for (connect::Event& event : connections_.take()) {
    if (event.kind == connect::Event::Kind::interface_lost) continue;
    if (event.kind == connect::Event::Kind::reminder) continue;
    RdmaLink& link = this->link(event.peer, static_cast<transports::Lane>(event.lane));
    if (std::ranges::find(active_, &link) == active_.end()) {
      active_.push_back(&link);
      std::ranges::sort(active_, {}, [&](const RdmaLink* one) {
        return std::ranges::find(transports::link_lanes, one->lane());
      });
    }
    if (event.kind == connect::Event::Kind::ready)
      link.attach(event);
    else
      link.fail(event.code, event.what);
  }
}

bool Rdma::poll_completions() {
  bool moved = false, drained = true;
  for (std::size_t i = 0; i < completions_.size(); ++i) {
    const auto complete = completions_[i]->poll();
    drained = drained && complete.size() < Completions::most_at_once;
    for (const ibv_wc& one : complete) {
      moved = true;
      // An event says more than the failure that it caused: the port is down.
      if (one.status != IBV_WC_SUCCESS && one.status != IBV_WC_WR_FLUSH_ERR) look();
      const auto number = static_cast<std::size_t>((one.wr_id & ~Path::receive_bit) >> 32);
      if (number < paths_.size()) paths_[number].link->completed(*paths_[number].path, one);
    }
    if (!completions_[i]->failed()) continue;
    for (RdmaLink* const link : active_)
      link->port_failed(i, 0, "its completion queue cannot be read");
  }
  if (drained) ++drains_;
  return moved;
}

// Reads what epoll has: sockets of links, events of devices.
void Rdma::look() {
  std::array<epoll_event, 64> events;
  int count = 0;
  do {
    count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t which = events[static_cast<std::size_t>(i)].data.u64;
      if ((which & device_descriptor) != 0) {
        context_->events.read(static_cast<std::size_t>(which & ~device_descriptor));
        hear_of_devices();
      } else if ((which & channel_descriptor) != 0)
        completions_[static_cast<std::size_t>(which & ~channel_descriptor)]->take_event();
      else if (which == events_descriptor)
        hear_of_devices();
      else if (which != other_descriptor && links_[which])
        links_[which]->flag();
    }
  } while (count == static_cast<int>(events.size()));
}

void Rdma::hear_of_devices() {
  for (const DeviceEvent& event : events_.take())
    for (const auto& link : links_) {
      if (!link) continue;
      if (event.queue_pair != 0)
        link->queue_pair_failed(event.device, event.queue_pair, event.what);
      else
        link->port_failed(event.device, event.port, event.what);
    }
}

bool Rdma::progress() {
  if (halted_) return false;
  bool moved = connections_.pending();
  if (moved) adopt();
  if (!std::exchange(looked_, true) || occasional_look_.due()) look();
  moved |= poll_completions();
  for (std::size_t i = 0; i < active_.size() && !halted_; ++i) moved |= active_[i]->progress();
  return moved;
}

bool Rdma::prepare_sleep() {
  if (halted_) return true;
  looked_ = false;
  look();
  for (const auto& queue : completions_) queue->arm();
  if (connections_.pending() || poll_completions()) return false;
  return std::ranges::none_of(active_, [](RdmaLink* link) { return link->ready(); });
}

// All that was sent must have arrived when the peers read "bye".
void Rdma::flush_links(base::TimePoint until) {
  for (RdmaLink* const link : active_) link->flush();
  const auto all_flushed = [&] {
    return std::ranges::all_of(active_, [](RdmaLink* link) { return link->flushed(); });
  };
  while (!all_flushed() && base::Clock::now() < until) {
    look();
    for (RdmaLink* const link : active_) link->read_message();
    for (const auto& queue : completions_) queue->arm();
    if (poll_completions()) continue;
    pollfd waited{epoll_.get(), POLLIN, 0};
    ::poll(&waited, 1, static_cast<int>(flush_look.count()));
  }
  for (RdmaLink* const link : active_) link->say_bye();
}

}  // namespace

std::unique_ptr<transports::Transport> make_rdma(const Options& options, const Shared& shared) {
  std::string obstacle = shared.obstacle();
  if (obstacle.empty()) {
    try {
      return std::make_unique<Rdma>(options, shared.context());
    } catch (const Error& error) {
      if (error.code() != Errc::system) throw;
      obstacle = error.what();
    }
  }
  static std::atomic<bool> told{false};
  if (shared.has_device() && !told.exchange(true))
    base::log_line(base::LogLevel::warning,
                   fmt::format("rank {} does not use RDMA: {}", options.rank, obstacle));
  return std::make_unique<Absent>(std::move(obstacle));
}

}  // namespace rondo::rdma
