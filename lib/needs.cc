// SPDX-License-Identifier: Apache-2.0
//
// Counts descriptors part by part. A constant here stands for descriptors that the code of a
// transport opens, and changes with that code.
#include "lib/needs.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include <rondo/error.h>
#include <rondo/info.h>

#include "base/log.h"
#include "base/shared_memory.h"
#include "lib/settings/reachability.h"
#include "lib/settings/settings.h"

namespace rondo::lib {
namespace {

constexpr std::size_t control_thread = 1;
// An event that wakes drivers. Where all ranks share memory, drivers sleep on a word of it.
constexpr std::size_t engine = 1;
// shm_listening: epoll, the listener, and the event that interrupts start(). shm_sharing, while
// ranks exchange segments: this rank's segment and bell, an epoll, and what a peer has just sent.
constexpr std::size_t shm_listening = 3, shm_sharing = 5;
// shm_running: epoll and bell, if drivers poll. On a word: an epoll if there are many peers.
constexpr std::size_t shm_running = 2, most_polled_peers = 16;
// For each peer on this host: a socket, and its bell if that is an event.
constexpr std::size_t neighbour = 2, neighbour_on_word = 1;
// tcp_listening: epoll, the bell of the set-up thread and three descriptors of Boost.Asio; a
// listening socket for each address comes in addition. tcp_netlink: once the transport runs.
constexpr std::size_t tcp_listening = 5, tcp_netlink = 1;
// While joining: rank 0 listens, as a rule at few addresses, and writes or reads a file.
constexpr std::size_t rendezvous = 8;
// rdma_device: the context, the asynchronous events and the completion channel of a device.
// rdma_bell: an eventfd for events. rdma_link: a TCP connection for each lane of a peer.
constexpr std::size_t rdma_device = 3, rdma_bell = 1, rdma_link = 3;
// Files that the program, and the libraries under Rondo, may open beside it when the soft limit is
// raised.
constexpr std::size_t spare = 64;

// Protects the next variable, and the limit from being lowered by another thread that raises it.
// Held while the process forks, so that a child does not find it locked.
std::mutex reserving;
std::size_t later_descriptors = 0;  // the sum of all LaterDescriptors

// Registers when the library is loaded.
[[maybe_unused]] const int registered =
    ::pthread_atfork([] { reserving.lock(); }, [] { reserving.unlock(); },
                     [] {
                       later_descriptors = 0;
                       reserving.unlock();
                     });

// Without /proc: counts the open ones among the first 4096.
std::size_t probe_descriptors(std::size_t limit) {
  std::size_t count = 0;
  for (int descriptor = 0; descriptor < static_cast<int>(std::min<std::size_t>(limit, 4096));
       ++descriptor)
    if (::fcntl(descriptor, F_GETFD) >= 0) ++count;
  return count;
}

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

std::string text_of(rlim_t limit) {
  return limit == RLIM_INFINITY ? "none" : fmt::format("{}", limit);
}

// Transports that reach no rank are closed when all ranks have joined. Whether rdma reaches the
// ranks that tcp reaches too is known only then.
bool keeps_tcp(const DescriptorShape& shape) noexcept {
  return shape.tcp && shape.tcp_peers > 0;
}
bool keeps_rdma(const DescriptorShape& shape) noexcept {
  return shape.rdma_devices > 0 && (shape.rdma_peers > 0 || shape.tcp_peers > 0);
}

std::size_t count(int number) noexcept {
  return static_cast<std::size_t>(std::max(0, number));
}

// Counts the listening descriptors of the transports that set links up over tcp.
std::size_t listeners(const DescriptorShape& shape, bool tcp, bool rdma) noexcept {
  return ((tcp ? 1u : 0u) + (rdma ? 1u : 0u)) * (tcp_listening + count(shape.tcp_addresses)) +
         (rdma ? count(shape.rdma_devices) * rdma_device + rdma_bell : 0);
}

}  // namespace

std::size_t users_of_tcp(const DescriptorShape& shape) noexcept {
  return (keeps_tcp(shape) ? 1u : 0u) + (keeps_rdma(shape) ? 1u : 0u);
}

// Bulk and messages use all connections of a peer, urgent frames one.
std::size_t descriptors_of_links(const DescriptorShape& shape) noexcept {
  return count(shape.tcp_peers) * (2 * count(shape.connections) + 1) +
         count(shape.rdma_peers) * rdma_link;
}

DescriptorNeeds descriptors_of(const DescriptorShape& shape) noexcept {
  DescriptorNeeds needs;
  if (shape.ranks == 1) return {0, engine, engine, engine};
  const std::size_t control = shape.rank == 0 ? count(shape.ranks - 1) : 1;
  needs.join = control + (shape.shm ? shm_listening : 0) +
               listeners(shape, shape.tcp, shape.rdma_devices > 0) + rendezvous;
  const std::size_t peers = count(shape.shm_peers);
  const bool on_word = shape.shm_peers == shape.ranks - 1;
  const std::size_t running = control + control_thread + (on_word ? 0 : engine) +
                              listeners(shape, keeps_tcp(shape), keeps_rdma(shape)) +
                              users_of_tcp(shape) * tcp_netlink;
  const std::size_t neighbours = peers * (on_word ? neighbour_on_word : neighbour);
  const std::size_t epolls = peers > most_polled_peers ? 1 : 0;
  needs.connect =
      std::max(needs.join, running + (peers != 0 ? shm_listening + shm_sharing : 0) + neighbours);
  needs.idle = running + neighbours + (peers == 0 ? 0 : on_word ? epolls : shm_running);
  needs.most = needs.idle + descriptors_of_links(shape);
  return needs;
}

std::size_t open_descriptors() {
  // The kernel gives their number as the size of this folder, from Linux 6.2 on.
  struct stat status {};
  if (::stat("/proc/self/fd", &status) == 0 && status.st_size > 0)
    return static_cast<std::size_t>(status.st_size);
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir("/proc/self/fd"));
  if (!folder) return probe_descriptors(limit.rlim_cur);
  std::size_t count = 0;
  while (const dirent* const entry = ::readdir(folder.get()))
    if (entry->d_name[0] != '.') ++count;
  return count - 1;  // the folder itself
}

LaterDescriptors::~LaterDescriptors() {
  if (generation_ == base::process_generation()) set(0);
}

void LaterDescriptors::set(std::size_t count) {
  const std::lock_guard lock(reserving);
  later_descriptors += count - std::exchange(count_, count);
}

void reserve_descriptors(std::size_t necessary, std::size_t wanted, const std::string& what) {
  const std::lock_guard lock(reserving);
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const std::size_t open = open_descriptors();
  const rlim_t least = open + necessary,
               good = open + later_descriptors + std::max(necessary, wanted) + spare;
  if (limit.rlim_cur >= good) return;
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(good, limit.rlim_max);
  if (limit.rlim_cur > before && ::setrlimit(RLIMIT_NOFILE, &limit) == 0)
    base::log_line(base::LogLevel::info,
                   fmt::format("{}: raised the limit of open files (RLIMIT_NOFILE) from {} to {}",
                               what, before, limit.rlim_cur));
  else
    limit.rlim_cur = before;
  if (limit.rlim_cur >= least) return;
  throw Error(
      Errc::system,
      fmt::format(
          "{} needs {} more open files: this process has {} open, and its limit is {} (hard limit "
          "{}). Raise the limit to at least {} (ulimit -n, LimitNOFILE=, --ulimit nofile=)",
          what, necessary, open, limit.rlim_cur, text_of(limit.rlim_max), least));
}

void warn_when_short_of_descriptors(const std::string& what) {
  static std::atomic<bool> told{false};
  rlimit limit{};
  if (told || ::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return;
  const std::size_t open = open_descriptors();
  if (open <= limit.rlim_max / 2 || told.exchange(true)) return;
  base::log_line(base::LogLevel::warning,
                 fmt::format("{}: this process has {} of at most {} files open, and every "
                             "communicator opens its own. Use the communicators of earlier splits "
                             "again, or raise the hard limit (ulimit -Hn, LimitNOFILE=)",
                             what, open, limit.rlim_max));
}

void reserve_descriptors_to_join(const rendezvous::Place& place, const Options& options,
                                 LaterDescriptors& later) {
  DescriptorShape shape;
  shape.ranks = place.size;
  shape.rank = place.rank;
  shape.shm = settings::allows_transport(options, "shm");
  shape.tcp = settings::allows_transport(options, "tcp");
  shape.connections = std::max(1, options.connections);
  if (settings::allows_transport(options, "rdma"))
    shape.rdma_devices = static_cast<int>(settings::count_rdma_devices());
  const std::size_t necessary = descriptors_of(shape).join;
  // Nobody knows yet which ranks share this host. So the descriptors for all of them are wanted,
  // not necessary.
  shape.shm_peers = shape.shm ? place.size - 1 : 0;
  shape.tcp_peers = shape.tcp ? place.size - 1 : 0;
  shape.rdma_peers = shape.rdma_devices > 0 && !shape.tcp ? place.size - 1 : 0;
  const DescriptorNeeds all = descriptors_of(shape);
  later.set(std::max(all.connect, all.most));
  reserve_descriptors(necessary, 0,
                      fmt::format("joining as rank {} of {}", place.rank, place.size));
}

}  // namespace rondo::lib

namespace rondo {

namespace {

int listening_addresses(const Options& options) {
  const auto interfaces = settings::describe_interfaces(options.interfaces);
  return static_cast<int>(
      std::max<std::ptrdiff_t>(1, std::ranges::count_if(interfaces, &InterfaceInfo::chosen)));
}

}  // namespace

NeedsInfo compute_needs(int ranks, int ranks_on_host, int rank, const Options& given) {
  if (ranks < 1 || ranks_on_host < 1 || ranks_on_host > ranks || rank < 0 || rank >= ranks)
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} of {} ranks, with {} on its host, is impossible", rank, ranks,
                            ranks_on_host));
  const Options options = settings::with_environment(given);
  lib::DescriptorShape shape;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.shm = settings::allows_transport(options, "shm");
  shape.tcp = settings::allows_transport(options, "tcp");
  shape.connections = options.connections;
  shape.shm_peers = shape.shm ? ranks_on_host - 1 : 0;
  if (settings::allows_transport(options, "rdma"))
    shape.rdma_devices = static_cast<int>(settings::count_rdma_devices());
  const bool rdma = shape.rdma_devices > 0;
  // Ranks know only after joining whom devices reach. tcp takes at least as many descriptors, so it
  // counts where it is allowed.
  const int others = ranks - 1 - shape.shm_peers;
  shape.tcp_peers = shape.tcp ? others : 0;
  shape.rdma_peers = rdma && !shape.tcp ? others : 0;
  shape.tcp_addresses = ranks > 1 && (shape.tcp || rdma) ? listening_addresses(options) : 0;
  const lib::DescriptorNeeds descriptors = lib::descriptors_of(shape);
  NeedsInfo needs;
  needs.descriptors_to_connect = descriptors.connect;
  needs.descriptors_idle = descriptors.idle;
  needs.descriptors_most = descriptors.most;
  needs.threads = ranks == 1 ? 0 : 2 + lib::users_of_tcp(shape);
  needs.ports = lib::users_of_tcp(shape) * static_cast<std::size_t>(shape.tcp_addresses);
  needs.staging_bytes = ranks == 1 ? 0 : options.staging_bytes;
  if (shape.shm_peers > 0) needs.shared_bytes = settings::shared_segment_bytes(ranks_on_host);
  if (shape.shm_peers > 0 && ranks_on_host == ranks)
    needs.shared_bytes += base::page_bytes();  // the word of the bell
  return needs;
}

}  // namespace rondo
