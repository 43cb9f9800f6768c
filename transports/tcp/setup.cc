// SPDX-License-Identifier: Apache-2.0
//
// Two ranks may open the same connection at once. The one begun by the higher rank is kept: the lower rank accepts it and
// gives up its own; the higher rank refuses the lower's with duplicate_link once it has said hello on its own, and
// before that accepts it and gives up its own. Both ends decide on one thread each, so there is no third case: a rank that
// has welcomed a connection never says hello for the same one later.
#include "transports/tcp/setup.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <cerrno>

#include "base/log.h"
#include "base/thread.h"
#include "transports/tcp/socket.h"

namespace rondo {
namespace {

// Connections that have proved nothing are bounded in time and, beyond what the job's own ranks can cause, in number.
constexpr milliseconds handshake_limit{5000};
constexpr std::size_t strangers = 128;

FileDescriptor make_eventfd() {
  FileDescriptor event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) throw Error(Errc::system, fmt::format("eventfd: {}", reason(errno)));
  return event;
}

}  // namespace

Setup::Setup(const TcpOptions& options)
    : options_(options),
      wakeup_(make_eventfd()),
      listener_(context_, options),
      vigil_(options.peer_timeout),
      vigil_timer_(context_),
      address_{options.host, listener_.endpoints()},
      slots_(static_cast<std::size_t>(options.size) * lane_count),
      work_(boost::asio::make_work_guard(context_)) {}

Setup::~Setup() {
  context_.stop();
  if (thread_.joinable()) thread_.join();
}

void Setup::start(std::vector<std::optional<TcpAddress>> peers, std::uint64_t job) {
  peers_ = std::move(peers);
  peers_.resize(static_cast<std::size_t>(options_.size));
  job_ = job;
  listener_.start([this](FileDescriptor socket) { came_in(std::move(socket)); });
  thread_ = start_thread("rondo-setup", [this] { run(); });
}

// One connection that fails in an unforeseen way (no memory, no random bytes) must not take the others with it.
void Setup::run() {
  for (;;) {
    try {
      context_.run();
      return;
    } catch (const std::exception& problem) {
      log_line(LogLevel::error, fmt::format("while setting up a connection: {}", problem.what()));
    }
  }
}

void Setup::open(int peer, int lane) {
  boost::asio::post(context_, [this, peer, lane] { dial(peer, lane); });
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

void Setup::came_in(FileDescriptor socket) {
  if (incoming_.size() >= strangers + slots_.size()) {
    strangers_log_.line(LogLevel::warning,
                        "too many connections that have not proved the job secret: the oldest is dropped");
    incoming_.front()->cancel();
    incoming_.pop_front();
  }
  Incoming::Owner& owner = *this;
  auto session =
      std::make_shared<Incoming>(owner, context_, std::move(socket),
                                 static_cast<std::uint32_t>(options_.rank), options_.secret, strangers_log_);
  incoming_.push_back(session);
  session->start(handshake_limit);
}

void Setup::finished(Incoming& incoming) {
  incoming_.remove_if([&](const auto& one) { return one.get() == &incoming; });
}

Verdict Setup::admit(const Claim& claim) const {
  const auto size = static_cast<std::uint32_t>(options_.size),
             rank = static_cast<std::uint32_t>(options_.rank);
  if (claim.size != size) return Verdict::bad_size;
  if (claim.job != job_ || claim.purpose != Purpose::data) return Verdict::wrong_job;
  if (claim.rank >= size || claim.rank == rank) return Verdict::bad_rank;
  if (claim.lane >= lane_count || claim.connection != 0) return Verdict::duplicate_link;
  const Slot& mine = slots_[std::size_t{claim.rank} * lane_count + claim.lane];
  if (mine.state == Slot::State::ready) return Verdict::duplicate_link;
  const bool own_is_kept = mine.state == Slot::State::dialing && rank > claim.rank && mine.dial->committed();
  return own_is_kept ? Verdict::duplicate_link : Verdict::welcome;
}

void Setup::established(const Claim& claim, FileDescriptor socket) {
  Slot& mine = slot(claim.rank, claim.lane);
  if (mine.dial) std::exchange(mine.dial, nullptr)->cancel();
  hand_over(static_cast<int>(claim.rank), static_cast<int>(claim.lane), std::move(socket));
}

void Setup::dial(int peer, int lane) {
  Slot& mine = slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane));
  if (mine.state != Slot::State::idle) return;
  const auto& address = peers_[static_cast<std::size_t>(peer)];
  auto endpoints = address ? candidates(*address, address->host == options_.host, chosen(), own())
                           : std::vector<boost::asio::ip::tcp::endpoint>{};
  Claim claim{.purpose = Purpose::data,
              .rank = static_cast<std::uint32_t>(options_.rank),
              .size = static_cast<std::uint32_t>(options_.size),
              .job = job_,
              .lane = static_cast<std::uint32_t>(lane)};
  if (endpoints.empty())
    return dial_failed(
        claim, static_cast<std::uint32_t>(peer), Errc::unsupported,
        fmt::format("cannot connect to rank {}: it has no TCP address that can be reached from here", peer));
  Dial::Owner& owner = *this;
  mine.state = Slot::State::dialing;
  mine.dial = std::make_shared<Dial>(owner, context_, claim, static_cast<std::uint32_t>(peer),
                                     options_.secret, std::move(endpoints));
  mine.dial->start(options_.connect_deadline);
}

void Setup::dialed(const Claim& claim, std::uint32_t peer, FileDescriptor socket) {
  slot(peer, claim.lane).dial.reset();
  hand_over(static_cast<int>(peer), static_cast<int>(claim.lane), std::move(socket));
}

void Setup::dial_failed(const Claim& claim, std::uint32_t peer, Errc code, const std::string& what) {
  Slot& mine = slot(peer, claim.lane);
  mine.state = Slot::State::ready;
  mine.dial.reset();
  publish({static_cast<int>(peer), static_cast<int>(claim.lane), {}, {}, code, what});
}

void Setup::hand_over(int peer, int lane, FileDescriptor socket) {
  slot(static_cast<std::size_t>(peer), static_cast<std::size_t>(lane)).state = Slot::State::ready;
  const auto& address = peers_[static_cast<std::size_t>(peer)];
  set_connection_options(socket.get(), options_.peer_timeout, address && address->host == options_.host);
  vigil_.watch(socket.get());
  if (!vigil_kept_) keep_vigil();
  std::string name = name_of_peer(peer, socket.get());
  publish({peer, lane, std::move(socket), std::move(name), {}, {}});
}

void Setup::keep_vigil() {
  vigil_kept_ = true;
  vigil_timer_.expires_after(vigil_.interval());
  vigil_timer_.async_wait([this](const boost::system::error_code& failed) {
    vigil_kept_ = !failed && vigil_.look(Clock::now());
    if (vigil_kept_) keep_vigil();
  });
}

// Where the peer listens rather than the port that it happened to connect from: that is what its own log says.
std::string Setup::name_of_peer(int peer, int socket) const {
  const auto remote = remote_endpoint(socket);
  if (const auto& known = peers_[static_cast<std::size_t>(peer)]; known) {
    for (const auto& endpoint : known->endpoints)
      if (endpoint.address() == remote.address()) return to_text(endpoint);
    return to_text(known->endpoints.front());
  }
  return to_text(remote);
}

}  // namespace rondo
