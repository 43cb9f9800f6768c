// SPDX-License-Identifier: Apache-2.0
//
// The control plane with many ranks. Rank 0 is that of the library, in a process of its own. One
// process plays all other ranks with their protocol, and reads nothing before all have sent their
// records. So rank 0 must send all records to all ranks at once.
//
//   join_scale [--check] RANKS ...        ; --check: exit status 1 when rank 0 needs 64 MB or more
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "base/handshake.h"
#include "base/text.h"
#include "lib/needs.h"
#include "lib/wire/messages.h"
#include "lib/wire/socket.h"
#include "lib/wire/stream.h"

namespace rondo {
namespace {

constexpr const char* secret = "a secret for the table";
// The bytes of the record of a rank with three tcp addresses and shared memory.
constexpr std::size_t record_bytes = 400;
constexpr milliseconds limit{200'000};
constexpr std::size_t most_megabytes = 64;
#if RONDO_SANITIZED
constexpr bool memory_counts = false;  // sanitizers keep freed memory
#else
constexpr bool memory_counts = true;
#endif

double seconds_since(base::TimePoint start) {
  return std::chrono::duration<double>(base::Clock::now() - start).count();
}

struct Report {
  double joined = 0, ready = 0, left = 0;  // seconds of each phase at rank 0
  std::size_t peak_kilobytes = 0;
};

std::size_t peak_kilobytes() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;)
    if (word == "VmHWM:") {
      std::size_t kilobytes = 0;
      file >> kilobytes;
      return kilobytes;
    }
  return 0;
}

transports::Blob record() {
  return transports::Blob(record_bytes, std::byte{7});
}

// Runs rank 0 in the child. Writes a byte to the pipe when it has joined, and its report at the
// end.
int be_rank_0(int ranks, const std::string& url, int pipe) {
  try {
    rendezvous::Place place;
    place.size = ranks;
    place.url = url;
    place.secret = secret;
    place.deadline = base::after(base::Clock::now(), limit);
    Report report;
    base::TimePoint start = base::Clock::now();
    rendezvous::Joined joined = rendezvous::join(place, Options{}, record());
    report.joined = seconds_since(start);
    if (::write(pipe, "J", 1) != 1) return 2;
    start = base::Clock::now();
    if (const auto failure = joined.control->await_ready(place.deadline))
      throw Error(failure->code, failure->cause);
    report.ready = seconds_since(start);
    start = base::Clock::now();
    const std::uint64_t finished[lane_count] = {};
    joined.control->leave(finished, place.deadline);
    report.left = seconds_since(start);
    report.peak_kilobytes = peak_kilobytes();
    return ::write(pipe, &report, sizeof report) == sizeof report ? 0 : 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank 0: %s\n", error.what());
    return 2;
  }
}

[[noreturn]] void fail(const std::string& what) {
  throw Error(Errc::system, what);
}

// One of the other ranks, with one connection to rank 0. Its functions do not block.
struct Joiner {
  Joiner(base::FileDescriptor socket, int rank, int ranks)
      : stream(std::move(socket)),
        initiator({base::Purpose::rendezvous, static_cast<std::uint32_t>(rank),
                   static_cast<std::uint32_t>(ranks), 0, 0, 0},
                  0, secret),
        rank(rank) {
    stream.send(initiator.hello());
  }

  // Continues the handshake. Returns true when the record is sent.
  bool shake_hands() {
    if (handed_in) return true;
    stream.write();
    stream.read();
    if (base::ChallengeBytes challenge; !answered && stream.take(challenge)) {
      stream.send(initiator.answer(challenge));
      answered = true;
    }
    if (base::VerdictBytes verdict; answered && stream.take(verdict)) {
      if (base::Initiator::read_verdict(verdict) != base::Verdict::welcome)
        fail("rank 0 refuses a rank");
      stream.send(
          wire::encode(wire::RecordMessage{static_cast<std::uint64_t>(limit.count()), record()}));
      return handed_in = true;
    }
    return ended();
  }
  bool ended() {
    if (stream.ended()) fail("rank " + std::to_string(rank) + ": " + stream.why());
    return false;
  }
  // Returns true when `expected` bytes of records have arrived. Never reads more.
  bool drain(std::size_t expected) {
    static std::array<std::byte, 1 << 16> scratch;
    while (drained < expected) {
      const ssize_t count = ::recv(stream.descriptor(), scratch.data(),
                                   std::min(scratch.size(), expected - drained), 0);
      if (count > 0)
        drained += static_cast<std::size_t>(count);
      else if (count == 0)
        fail("rank 0 has gone");
      else if (errno == EAGAIN)
        return false;
      else if (errno != EINTR)
        fail(base::describe_errno(errno));
    }
    return true;
  }
  // Returns true when a message of that kind has arrived.
  template <class Message>
  bool hear() {
    stream.write();
    stream.read();
    while (const auto frame = stream.take_frame())
      if (const auto message = wire::decode(frame->type, frame->payload);
          message && std::holds_alternative<Message>(*message))
        return true;
    return ended();
  }

  wire::Stream stream;
  base::Initiator initiator;
  int rank;
  bool answered = false, handed_in = false;
  std::size_t drained = 0;
};

using Joiners = std::vector<std::unique_ptr<Joiner>>;

// Calls step(joiner) on those with something to read, until it has returned true for each.
template <class Step>
void until_all(Joiners& joiners, const Step& step) {
  const base::TimePoint until = base::after(base::Clock::now(), limit);
  std::vector<Joiner*> open;
  for (const auto& joiner : joiners) open.push_back(joiner.get());
  while (!open.empty()) {
    std::vector<pollfd> entries;
    for (const Joiner* joiner : open) entries.push_back({joiner->stream.descriptor(), POLLIN, 0});
    if (base::Clock::now() >= until) fail("a phase takes too long");
    ::poll(entries.data(), entries.size(), 1000);
    std::vector<Joiner*> still;
    for (std::size_t i = 0; i < open.size(); ++i)
      if (entries[i].revents == 0 || !step(*open[i])) still.push_back(open[i]);
    open = std::move(still);
  }
}

void read_whole(int pipe, void* to, std::size_t bytes) {
  for (std::size_t had = 0; had < bytes;) {
    const ssize_t count = ::read(pipe, static_cast<std::byte*>(to) + had, bytes - had);
    if (count <= 0) fail("rank 0 has failed");
    had += static_cast<std::size_t>(count);
  }
}

Joiners connect_joiners(int ranks, const std::string& address) {
  const wire::Endpoint endpoint = wire::parse_endpoint(address).front();
  const base::TimePoint until = base::after(base::Clock::now(), limit);
  Joiners joiners;
  for (int rank = 1; rank < ranks; ++rank)
    for (;;) {
      std::string why;
      if (base::FileDescriptor socket = wire::connect_to(endpoint, until, why)) {
        joiners.push_back(std::make_unique<Joiner>(std::move(socket), rank, ranks));
        // Rank 0 waits only a short time for a handshake that has begun, and limits their number.
        if (rank % 32 == 0)
          for (const auto& joiner : joiners) joiner->shake_hands();
        break;
      }
      if (base::Clock::now() >= until) fail(why);
      wire::pause_until(base::after(base::Clock::now(), milliseconds{2}));
    }
  return joiners;
}

std::string free_address() {
  const auto listener = wire::listen_on(wire::loopback_address(0), 0, 0);
  return wire::own_endpoint(listener.front().get()).text();
}

Report measure(int ranks, std::size_t& sent, double& drained) {
  const std::string address = free_address();
  int ends[2];
  if (::pipe(ends) != 0) fail("pipe");
  const base::TimePoint start = base::Clock::now();
  const pid_t child = ::fork();
  // Only after the fork the ends become FileDescriptors, because a forked child closes those.
  if (child == 0) ::_exit(be_rank_0(ranks, "tcp://" + address, ends[1]));
  const base::FileDescriptor reading(ends[0]);
  base::FileDescriptor(ends[1]).reset();
  if (child < 0) fail("fork");

  Joiners joiners = connect_joiners(ranks, address);
  until_all(joiners, [](Joiner& joiner) { return joiner.shake_hands(); });
  char joined = 0;
  read_whole(reading.get(), &joined, 1);
  std::size_t expected = wire::encode(wire::MembersMessage{1, 1}).size();
  expected +=
      static_cast<std::size_t>(ranks) * wire::encode(wire::MemberMessage{0, record()}).size();
  until_all(joiners, [&](Joiner& joiner) { return joiner.drain(expected); });
  drained = seconds_since(start);
  sent = expected * joiners.size();
  for (const auto& joiner : joiners) joiner->stream.send(wire::encode(wire::ReadyMessage{}));
  until_all(joiners, [](Joiner& joiner) { return joiner.hear<wire::GoMessage>(); });
  for (const auto& joiner : joiners) joiner->stream.send(wire::encode(wire::LeavingMessage{}));
  // A rank that got its LeftMessage closes its side.
  until_all(joiners, [](Joiner& joiner) {
    if (!joiner.hear<wire::LeftMessage>()) return false;
    joiner.stream.finish_sending();
    return true;
  });
  Report report;
  read_whole(reading.get(), &report, sizeof report);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail("rank 0 has failed");
  return report;
}

int run(int count, char** arguments) {
  bool check = false, good = true;
  std::printf(
      "| ranks | all have all records, s | of that rank 0 joins, s | go, s | leave, s | rank 0 "
      "sends, MB | "
      "rank 0 peak, MB |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--check") == 0) {
      check = true;
      continue;
    }
    const int ranks = std::atoi(arguments[i]);
    if (ranks < 2) fail("RANKS is 2 or more");
    try {
      const auto joiners = static_cast<std::size_t>(ranks);
      lib::reserve_descriptors(joiners + 32, 4 * joiners, std::to_string(ranks) + " played ranks");
    } catch (const Error& error) {
      std::printf("skipped: %s\n", error.what());
      return 77;
    }
    std::size_t sent = 0;
    double drained = 0;
    const Report report = measure(ranks, sent, drained);
    const double megabytes = static_cast<double>(report.peak_kilobytes) / 1024;
    std::printf("| %d | %.3f | %.3f | %.3f | %.3f | %.1f | %.1f |\n", ranks, drained, report.joined,
                report.ready, report.left, static_cast<double>(sent) / 1e6, megabytes);
    std::fflush(stdout);
    good = good && (!memory_counts || megabytes < most_megabytes);
  }
  if (check && !good) std::printf("rank 0 takes more than %zu MB\n", most_megabytes);
  return check && !good ? 1 : 0;
}

}  // namespace
}  // namespace rondo

int main(int count, char** arguments) {
  try {
    return rondo::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "join_scale: %s\n", error.what());
    return 1;
  }
}
