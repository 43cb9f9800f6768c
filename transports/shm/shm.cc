// SPDX-License-Identifier: Apache-2.0
//
// The data plane takes no lock and allocates nothing. It makes system calls only to wake a peer
// and, about once in a millisecond, to see whether every peer still lives.
#include "transports/shm/shm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include <rondo/error.h>

#include "base/clock.h"
#include "base/occasional.h"
#include "base/process_fence.h"
#include "transports/host/address.h"
#include "transports/host/exchange_all.h"
#include "transports/host/exports.h"
#include "transports/host/listener.h"
#include "transports/shm/link.h"
#include "transports/shm/neighbour.h"
#include "transports/shm/windows.h"

namespace rondo::shm {
namespace {

// Sockets show the end of a peer's process, and a busy driver looks at them once in look_interval.
// To know when, it reads the clock once in so many calls: a look at the clock takes about as long
// as a line needs between two cores.
constexpr unsigned calls_between_clocks = 128;
// The bell's number in the epoll set; the peers' sockets have their indices.
constexpr std::uint64_t bell_id = UINT64_MAX;
constexpr milliseconds look_interval{1};
// If a rank that sleeps on a word has at most so many peers, it polls their sockets. If it has
// more, it keeps an epoll for them.
constexpr std::size_t most_polled = 16;

base::FileDescriptor checked(int descriptor, const char* call) {
  if (descriptor < 0)
    throw Error(Errc::system,
                fmt::format("{}: {}{}", call, std::generic_category().message(errno),
                            errno == EMFILE ? " (raise the limit of open files, ulimit -n)" : ""));
  return base::FileDescriptor(descriptor);
}

// A peer's segment and bell, from the descriptors that it has sent.
struct Received {
  base::Mapping segment;
  Bell bell;
};

Received receive_segment(host::Descriptors descriptors, std::size_t bytes) {
  auto& [memory, offered] = descriptors;
  Bell bell(std::move(offered));
  if (const std::string defect = base::defect_of_memory(memory.get(), bytes); !defect.empty())
    throw Error(Errc::rendezvous, defect);
  base::Mapping mapping(memory.get(), bytes, base::Mapping::Access::read);
  mapping.hide_from_children();
  return {std::move(mapping), std::move(bell)};
}

constexpr auto to_link = [](const std::unique_ptr<ShmLink>& link) -> const ShmLink& {
  return *link;
};

class Shm final : public transports::Transport {
 public:
  explicit Shm(const Options& options);
  ~Shm() override;

  transports::Identity identity() const override {
    return {"shm", listener_.obstacle.empty() ? host::encode(own_address()) : transports::Blob{},
            fmt::format("process {}", ::getpid())};
  }
  transports::Reach reach(int peer, std::span<const std::byte> address) const override;
  void start(std::vector<transports::Blob> addresses, std::uint64_t job) override;
  transports::Link& link(int peer, transports::Lane lane) override;
  transports::Windows* windows() noexcept override { return windows_ ? &*windows_ : nullptr; }
  std::unique_ptr<transports::Allocation> allocate(std::size_t bytes) override {
    return exports_ && bytes != 0 ? host::Exports::allocate(exports_, bytes) : nullptr;
  }
  std::optional<bool> shares_core(int core, std::uint64_t ranks) noexcept;
  bool progress() override;
  transports::WakeSource wake_source() const noexcept override {
    return {wait_word_ ? -1 : epoll_.get(), wait_word_};
  }
  bool prepare_sleep() override;
  void halt() noexcept override {
    if (!windows_) return;
    stop_references();
    exports_->halt();
    windows_->halt();
    for (const Links& links : links_)
      for (const auto& link : links) link->halt();
  }
  void interrupt(std::string_view why) noexcept { interruption_.set(why); }

 private:
  using Links = std::array<std::unique_ptr<ShmLink>, transports::link_lane_count>;

  host::Address own_address() const;
  void make_segment(const SegmentLayout& layout, std::size_t ranks, bool alone);
  void close_after_exchange();
  void adopt(host::Peer met, Received received, std::size_t index, const SegmentLayout& layout);
  void make_links(const SegmentLayout& layout);
  void stop_references() noexcept;
  void watch(int descriptor, std::uint64_t which);
  void wake_up() noexcept;
  // The sender of a message changes only its header, once the link is in use.
  bool message_came(std::size_t peer) const noexcept {
    return links_[peer][static_cast<std::size_t>(transports::Lane::messages)]->header_came();
  }
  void look();
  void look_at_events();
  void look_at_sockets();
  void heard(std::size_t which, bool ended);

  const Options options_;
  const pid_t process_ = ::getpid();
  const bool joined_fences_ = base::join_process_fences();
  host::Listener listener_;
  host::Interruption interruption_;
  base::FileDescriptor epoll_, memory_;
  std::optional<Bell> bell_;
  base::WakeWord* wait_word_ = nullptr;  // bell_'s, if the driver sleeps on it
  std::optional<Segment> own_;
  std::size_t own_index_ = 0;
  std::vector<std::unique_ptr<ShmNeighbourState>> peers_;  // in order of ranks
  std::vector<Links> links_;                               // in order of ranks
  std::vector<std::size_t> turn_;  // indices of the peers that progress() has to serve
  std::shared_ptr<host::Exports> exports_;
  std::optional<ShmWindows> windows_;
  std::uint64_t sleeps_ = 0;
  bool asleep_ = false;
  std::uint32_t core_ = 0;  // as the others know it
  base::Occasional occasional_look_{look_interval, calls_between_clocks};
};

Shm::Shm(const Options& options)
    : options_(options),
      listener_(host::open_listener(options.size,
                                    SegmentLayout(static_cast<std::size_t>(options.size)).bytes())),
      epoll_(checked(::epoll_create1(EPOLL_CLOEXEC), "epoll_create1")) {}

// Peers can still read what is in the rings: the segment lives as long as a peer has mapped it.
Shm::~Shm() {
  if (::getpid() != process_) return;  // a forked child
  if (!windows_) return;
  stop_references();
  own_->head().left.store(1, std::memory_order_release);
  exports_->close();
}

host::Address Shm::own_address() const {
  return {options_.host, listener_.name, static_cast<std::uint32_t>(::geteuid()),
          static_cast<std::uint32_t>(::getpid())};
}

transports::Reach Shm::reach(int peer, std::span<const std::byte> bytes) const {
  if (!listener_.obstacle.empty()) return {{}, listener_.obstacle};
  if (bytes.empty()) return {{}, fmt::format("rank {} cannot share memory", peer)};
  const auto address = host::decode_address(bytes);
  if (!address)
    return {{},
            fmt::format(
                "the shm address of rank {} cannot be read: give all ranks one version of Rondo",
                peer)};
  if (options_.host.empty() || address->host != options_.host)
    return {{},
            fmt::format("rank {} runs on another host, or in another network name space", peer)};
  if (options_.secret.empty() && address->user != ::geteuid())
    return {
        {},
        fmt::format("rank {} belongs to user {}, and there is no job secret", peer, address->user)};
  return {transports::distance_host, {}};
}

void Shm::start(std::vector<transports::Blob> addresses, std::uint64_t job) {
  std::vector<host::Neighbour> neighbours;
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (static_cast<int>(rank) == options_.rank) own_index_ = neighbours.size();
    if (static_cast<int>(rank) == options_.rank ||
        !reach(static_cast<int>(rank), addresses[rank]).distance)
      continue;
    const auto address = host::decode_address(addresses[rank]);
    neighbours.push_back({static_cast<int>(rank), address->name, address->process});
  }
  if (neighbours.empty()) return listener_.socket.reset();
  const SegmentLayout layout(neighbours.size() + 1);
  make_segment(layout, neighbours.size() + 1, neighbours.size() + 1 == addresses.size());
  std::map<int, Received> received;
  const host::Offer own{options_.rank,
                        options_.size,
                        options_.secret,
                        job,
                        {memory_.get(), bell_->descriptor()},
                        [&](int rank, host::Descriptors descriptors) {
                          received.insert_or_assign(
                              rank, receive_segment(std::move(descriptors), layout.bytes()));
                        }};
  // Closes the listener at the end, also after a failure: ranks that look for this one must notice.
  const base::FileDescriptor listener = std::move(listener_.socket);
  auto met = host::exchange_all(own, listener.get(), neighbours, options_.deadline, interruption_);
  for (std::size_t i = 0; i < met.size(); ++i) {
    const int rank = met[i].rank;
    adopt(std::move(met[i]), std::move(received.at(rank)), i < own_index_ ? i : i + 1, layout);
  }
  close_after_exchange();
  turn_.reserve(peers_.size());
  std::vector<host::ExportPeer> peers;
  for (const auto& peer : peers_)
    peers.push_back({peer->socket.get(), &peer->mine.extents, &peer->other.extents});
  exports_ = std::make_shared<host::Exports>(own_->head().extents, peers);
  windows_.emplace(options_.rank, *own_, peers_, exports_);
  make_links(layout);
}

// ranks: of this host. alone: there are no others. Ranks that share cores sleep often, so there
// each makes its own fences.
void Shm::make_segment(const SegmentLayout& layout, std::size_t ranks, bool alone) {
  bell_.emplace(options_.may_sleep_on_word && alone ? Bell::Kind::word : Bell::Kind::event);
  wait_word_ = bell_->word();
  memory_ = base::make_shared_memory(layout.bytes());
  base::Mapping mapping(memory_.get(), layout.bytes(), base::Mapping::Access::write);
  mapping.hide_from_children();
  own_.emplace(layout, std::move(mapping));
  if (joined_fences_ && ranks <= static_cast<std::size_t>(::sysconf(_SC_NPROCESSORS_ONLN)))
    own_->head().heavy_fence.store(1, std::memory_order_relaxed);
  base::forbid_writing(memory_.get());
  if (wait_word_ == nullptr) watch(bell_->descriptor(), bell_id);
}

// Mappings stay without their descriptors.
void Shm::close_after_exchange() {
  memory_.reset();
  interruption_.end();
  bell_->close_offer();
  if (wait_word_ != nullptr && peers_.size() <= most_polled) epoll_.reset();
}

void Shm::adopt(host::Peer met, Received received, std::size_t index, const SegmentLayout& layout) {
  watch(met.socket.get(), peers_.size());
  peers_.push_back(std::make_unique<ShmNeighbourState>(
      met.rank, index, Segment(layout, std::move(received.segment)), own_->pair(index), own_index_,
      std::move(received.bell), std::move(met.socket), met.process, joined_fences_));
}

void Shm::make_links(const SegmentLayout& layout) {
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    ShmNeighbourState& peer = *peers_[i];
    Links& links = links_.emplace_back();
    for (const transports::Lane lane : transports::link_lanes)
      links[static_cast<std::size_t>(lane)] = std::make_unique<ShmLink>(
          peer, lane, sinks_, own_->ring(peer.index, lane), peer.theirs.ring(own_index_, lane),
          layout.ring_bytes(), *windows_, windows_->imports(i));
  }
}

// Comes before the callers get their memory back: what a peer reads by reference after this does
// not count.
void Shm::stop_references() noexcept {
  own_->head().stopped.store(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void Shm::watch(int descriptor, std::uint64_t which) {
  epoll_event event{};
  // Sockets are edge-triggered. Otherwise a message for which no descriptor is free would keep a
  // thread awake.
  event.events = which == bell_id ? EPOLLIN : EPOLLIN | EPOLLRDHUP | EPOLLET;
  event.data.u64 = which;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
    throw Error(Errc::system, fmt::format("epoll_ctl: {}", std::generic_category().message(errno)));
}

transports::Link& Shm::link(int peer, transports::Lane lane) {
  const auto of = [](const std::unique_ptr<ShmNeighbourState>& one) { return one->rank; };
  const auto found = std::ranges::lower_bound(peers_, peer, {}, of);
  if (found == peers_.end() || (*found)->rank != peer)
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} is not reached through shared memory", peer));
  ShmLink& link =
      *links_[static_cast<std::size_t>(found - peers_.begin())][static_cast<std::size_t>(lane)];
  link.use();
  (*found)->busy = true;
  return link;
}

// Reads the bell and the sockets: takes messages and notices peers that have ended.
void Shm::look() {
  if (epoll_)
    look_at_events();
  else
    look_at_sockets();
  windows_->catch_up();
}

void Shm::look_at_sockets() {
  std::array<pollfd, most_polled> sockets;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    sockets[i] = {peers_[i]->ended ? -1 : peers_[i]->socket.get(), POLLIN | POLLRDHUP, 0};
  if (::poll(sockets.data(), peers_.size(), 0) <= 0) return;
  for (std::size_t i = 0; i < peers_.size(); ++i)
    if (sockets[i].revents != 0) heard(i, (sockets[i].revents & (POLLHUP | POLLRDHUP)) != 0);
}

void Shm::heard(std::size_t which, bool ended) {
  windows_->imports(which).take_messages();
  if (ended) peers_[which]->ended = peers_[which]->busy = true;
}

void Shm::look_at_events() {
  std::array<epoll_event, 16> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t which = events[static_cast<std::size_t>(i)].data.u64;
    if (which >= peers_.size()) {
      bell_->clear();
      continue;
    }
    heard(which, (events[static_cast<std::size_t>(i)].events & (EPOLLHUP | EPOLLRDHUP)) != 0);
    if (peers_[which]->ended)
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, peers_[which]->socket.get(), nullptr);
  }
}

void Shm::wake_up() noexcept {
  asleep_ = false;
  own_->head().sleeping.store(0, std::memory_order_relaxed);
}

bool Shm::progress() {
  if (!windows_) return false;
  if (asleep_ || occasional_look_.due()) {
    if (asleep_) wake_up();
    look();
  }
  turn_.clear();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    ShmNeighbourState& peer = *peers_[i];
    const std::uint64_t changes = peer.changes();
    if (changes == peer.seen && !peer.busy && !message_came(i)) continue;
    peer.seen = changes;
    turn_.push_back(i);
  }
  if (turn_.empty()) return false;
  bool moved = false;
  for (const transports::Lane lane : transports::link_lanes)
    for (const std::size_t i : turn_)
      moved |= links_[i][static_cast<std::size_t>(lane)]->progress();
  for (const std::size_t i : turn_)
    peers_[i]->busy = std::ranges::any_of(links_[i], &ShmLink::busy, to_link);
  return moved;
}

std::optional<bool> Shm::shares_core(int core, std::uint64_t ranks) noexcept {
  if (!windows_) return {};
  const std::uint32_t here = static_cast<std::uint32_t>(core) + 1;
  if (std::exchange(core_, here) != here) own_->head().core.store(here, std::memory_order_relaxed);
  return std::ranges::any_of(peers_, [&](const auto& peer) {
    return (ranks & transports::wake_bit(peer->rank)) != 0 && peer->runs_on(here);
  });
}

bool Shm::prepare_sleep() {
  if (!windows_) return true;
  if (asleep_) look();  // the last sleep has ended without a call of progress()
  asleep_ = true;
  own_->head().sleeping.store(++sleeps_, std::memory_order_release);
  own_->head().fence_before_look();
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i]->changes() == peers_[i]->seen && !peers_[i]->busy && !message_came(i)) continue;
    if (std::ranges::none_of(links_[i], &ShmLink::ready, to_link)) continue;
    wake_up();
    return false;
  }
  return true;
}

}  // namespace

std::unique_ptr<transports::Transport> make_shm(const Options& options) {
  return std::make_unique<Shm>(options);
}

void interrupt(transports::Transport& transport, std::string_view why) noexcept {
  if (auto* const shm = dynamic_cast<Shm*>(&transport)) shm->interrupt(why);
}

CoreCheck core_check(transports::Transport& transport) {
  auto* const shm = dynamic_cast<Shm*>(&transport);
  if (shm == nullptr) return {};
  return [shm](int core, std::uint64_t ranks) { return shm->shares_core(core, ranks); };
}

std::string obstacle() {
  return host::open_listener(1, SegmentLayout(1).bytes()).obstacle;
}

}  // namespace rondo::shm
