// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/meeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>

#include "base/quota_log.h"

namespace rondo {
namespace {

// Connections that have proved nothing are bounded in time and in number.
constexpr milliseconds handshake_limit{5000};
constexpr std::size_t strangers = 128;
constexpr int most_at_once = 256;
// How often those that have not come are looked for, and connections tried again.
constexpr milliseconds look_interval{100}, retry_interval{5};

class Meeting {
 public:
  Meeting(const ShmOwn& own, int listener, const std::vector<ShmNeighbour>& neighbours)
      : own_(own), listener_(listener) {
    const TimePoint later = Clock::now() + look_interval;
    for (const ShmNeighbour& one : neighbours)
      open_.emplace(one.rank, Open{one, nullptr, one.rank < own.rank ? TimePoint{} : later});
  }

  void run(TimePoint until);
  void give_up(std::string_view why) const noexcept {
    for (const Encounter& one : encounters_) one.give_up(why);
  }
  std::vector<ShmMet> take() { return std::move(met_); }

 private:
  // A neighbour that has not been met.
  struct Open {
    ShmNeighbour neighbour;
    const Encounter* encounter = nullptr;  // under way, begun here
    TimePoint next_try;
  };

  void call(Open& open, TimePoint now);
  void call_all(TimePoint now);
  void accept_all(TimePoint now);
  void wait(TimePoint now, TimePoint until);
  void go_on(TimePoint now);
  void settle(Encounter& encounter);
  bool is_open(int rank) const { return open_.contains(rank); }
  std::string name_of(int rank) const;
  std::string missing() const;

  const ShmOwn& own_;
  int listener_;
  std::map<int, Open> open_;
  std::list<Encounter> encounters_;
  std::vector<ShmMet> met_;
  std::vector<pollfd> watched_;
  QuotaLog log_;
};

std::string Meeting::name_of(int rank) const {
  const auto found = open_.find(rank);
  return found == open_.end() ? fmt::format("rank {}", rank)
                              : fmt::format("rank {} (process {})", rank, found->second.neighbour.process);
}

std::string Meeting::missing() const {
  std::string text;
  for (const auto& [rank, open] : open_) text += (text.empty() ? "" : ", ") + name_of(rank);
  return text;
}

// A rank below this one is connected to; one above is looked for, for it may end before it connects.
void Meeting::call(Open& open, TimePoint now) {
  const int rank = open.neighbour.rank;
  // Its own connection is there: it may have all that it needs, and listen no more.
  if (std::ranges::any_of(encounters_, [&](const Encounter& one) { return one.rank() == rank; })) {
    open.next_try = now + look_interval;
    return;
  }
  FileDescriptor socket = connect_to_name(open.neighbour.name);
  const int error = socket ? 0 : errno;
  open.next_try = now + (rank < own_.rank && error != 0 ? retry_interval : look_interval);
  if (error == ECONNREFUSED)
    throw Error(
        Errc::peer_lost,
        fmt::format("cannot share memory with {}: its process has ended, or it has given up", name_of(rank)));
  if (error != 0 && error != EAGAIN)
    throw Error(
        Errc::system,
        fmt::format("cannot connect to {}: {}{}", name_of(rank), std::generic_category().message(error),
                    error == EMFILE ? " (raise the limit of open files, ulimit -n)" : ""));
  if (error == 0 && rank < own_.rank)
    open.encounter = &encounters_.emplace_back(own_, std::move(socket), rank, now);
}

void Meeting::call_all(TimePoint now) {
  for (auto& [rank, open] : open_)
    if (open.encounter == nullptr && open.next_try <= now) call(open, now);
}

void Meeting::accept_all(TimePoint now) {
  for (int i = 0; i < most_at_once; ++i) {
    FileDescriptor socket(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!socket && errno == EAGAIN) return;
    if (!socket)
      throw Error(
          Errc::system,
          fmt::format("cannot accept a rank of this host: {}{}", std::generic_category().message(errno),
                      errno == EMFILE ? " (raise the limit of open files, ulimit -n)" : ""));
    const auto unproved = [](const Encounter& one) { return one.rank() < 0; };
    if (std::ranges::count_if(encounters_, unproved) >= static_cast<std::ptrdiff_t>(strangers) + own_.size) {
      log_.line(LogLevel::warning,
                "too many local connections that have not proved the job secret: the oldest is dropped");
      encounters_.erase(std::ranges::find_if(encounters_, unproved));
    }
    encounters_.emplace_back(own_, std::move(socket), now);
  }
}

void Meeting::wait(TimePoint now, TimePoint until) {
  watched_.clear();
  watched_.push_back({listener_, POLLIN, 0});
  for (const Encounter& one : encounters_) watched_.push_back({one.socket(), POLLIN, 0});
  TimePoint next = until;
  for (const auto& [rank, open] : open_)
    if (open.encounter == nullptr) next = std::min(next, open.next_try);
  ::poll(watched_.data(), watched_.size(), poll_timeout(now, next, look_interval));
}

void Meeting::go_on(TimePoint now) {
  for (auto one = encounters_.begin(); one != encounters_.end();) {
    one->go_on([this](int rank) { return is_open(rank); });
    const bool late = one->rank() < 0 && now - one->begun() > handshake_limit;
    const bool over = one->state() == Encounter::State::met || one->state() == Encounter::State::ended;
    if (over) settle(*one);
    if (late)
      log_.line(LogLevel::warning, "dropped a local connection: it did not finish the handshake in time");
    one = over || late ? encounters_.erase(one) : std::next(one);
  }
}

void Meeting::settle(Encounter& encounter) {
  const int rank = encounter.rank();
  if (encounter.state() == Encounter::State::met) {
    if (open_.erase(rank) != 0) met_.push_back(encounter.take());
    return;
  }
  const auto code = encounter.code();
  if (rank < 0) {
    if (code) log_.line(LogLevel::warning, fmt::format("dropped a local connection: {}", encounter.why()));
    return;
  }
  if (code == Errc::aborted) throw Error(Errc::rendezvous, encounter.why());
  if (code)
    throw Error(*code, fmt::format("cannot share memory with {}: {}", name_of(rank), encounter.why()));
  if (const auto found = open_.find(rank); found != open_.end()) found->second.encounter = nullptr;
}

void Meeting::run(TimePoint until) {
  const TimePoint start = Clock::now();
  for (;;) {
    const TimePoint now = Clock::now();
    call_all(now);
    accept_all(now);
    go_on(now);
    if (open_.empty()) break;
    if (now >= until)
      throw Error(
          Errc::deadline_exceeded,
          fmt::format("rank {} waited {} ms, until the deadline for joining, to share memory with {}",
                      own_.rank, std::chrono::duration_cast<milliseconds>(now - start).count(), missing()));
    wait(Clock::now(), until);
  }
}

}  // namespace

std::vector<ShmMet> meet(const ShmOwn& own, int listener, const std::vector<ShmNeighbour>& neighbours,
                         TimePoint until) {
  Meeting meeting(own, listener, neighbours);
  try {
    meeting.run(until);
  } catch (const std::exception& error) {
    meeting.give_up(error.what());
    throw;
  }
  auto met = meeting.take();
  std::ranges::sort(met, {}, &ShmMet::rank);
  return met;
}

}  // namespace rondo
