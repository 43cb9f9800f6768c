// SPDX-License-Identifier: Apache-2.0
//
// Compares a tcp link between two processes with a plain loop over one socket, in turns within the
// same run.
//
//   tcp_link_bench [seconds per turn] [rounds] [none | headers | payload]
//
// The third argument says which tags the frames have, as they have between hosts. With tags, the
// processor time of a tag alone is printed first.
// latency: one frame there and one back; the figure is the one-way time in microseconds.
// stream: both ends send and receive at once, as in a ring; the figure is GB/s in each direction.
// Both are medians over the rounds.
// placed: the link receives into a buffer of the frame's size. borrowed: the link shows views,
// which are added as floats into such a buffer.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/frame_tag.h"
#include "transports/tcp/tcp.h"

namespace {

using namespace rondo;
using SteadyClock = std::chrono::steady_clock;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Memory that the two processes share: a barrier and the addresses.
struct Shared {
  std::atomic<int> arrived{0};
  std::array<std::array<std::byte, 1024>, 2> address;
  std::array<std::size_t, 2> address_bytes;
};

class Barrier {
 public:
  explicit Barrier(Shared& shared) : shared_(shared) {}
  void wait() {
    target_ += 2;
    shared_.arrived.fetch_add(1);
    while (shared_.arrived.load() < target_) ::sched_yield();
  }

 private:
  Shared& shared_;
  int target_ = 0;
};

// Expects frames of one size, up to the allowed number.
class BenchSink final : public transports::Sink {
 public:
  void aim(std::size_t bytes, bool placed, std::byte* buffer) {
    bytes_ = bytes;
    placed_ = placed;
    buffer_ = buffer;
    done_ = offset_ = 0;
  }
  void allow(std::size_t frames) { allowed_ = frames; }
  std::size_t done() const { return done_; }
  bool busy() const { return queued_; }
  void queued() { queued_ = true; }

  std::optional<transports::Receive> expected(transports::Link&, std::size_t ahead) override {
    if (ahead > 0 || done_ >= allowed_) return std::nullopt;
    return transports::Receive{placed_ ? buffer_ : nullptr, bytes_};
  }
  transports::Header arrived(transports::Link&, const transports::HeaderBytes&) override {
    return done_ < allowed_ ? transports::Header::accept : transports::Header::hold;
  }
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    auto* to = reinterpret_cast<float*>(buffer_ + offset_);
    const auto* from = reinterpret_cast<const float*>(view.data());
    const std::size_t count = view.size() / sizeof(float);
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
    offset_ += count * sizeof(float);
    return count * sizeof(float);
  }
  void received(transports::Link&) override {
    ++done_;
    offset_ = 0;
  }
  void sent(transports::Link&) override { queued_ = false; }
  void broken(transports::Link&, std::error_code, std::string_view what, bool) override {
    std::fprintf(stderr, "link broken: %.*s\n", static_cast<int>(what.size()), what.data());
    std::exit(1);
  }

 private:
  std::size_t bytes_ = 0, allowed_ = 0, done_ = 0, offset_ = 0;
  std::byte* buffer_ = nullptr;
  bool placed_ = true, queued_ = false;
};

// A rank may have sent this many frames more than it received, like segments in flight.
constexpr std::size_t ahead = 2;

struct Rank {
  int rank = 0;
  transports::Transport* transport = nullptr;
  transports::Link* link = nullptr;
  int socket = -1;
  std::vector<std::byte> out, in;
};

double stream_rondo(Rank& me, BenchSink& sink, std::size_t bytes, bool placed, std::size_t count) {
  const transports::HeaderBytes header{};
  sink.aim(bytes, placed, me.in.data());
  sink.allow(count);
  std::size_t sent = 0;
  const auto begin = SteadyClock::now();
  while (sink.done() < count || sent < count || sink.busy()) {
    bool moved = false;
    while (sent < count && sent < sink.done() + ahead && !sink.busy()) {
      const transports::Send result = me.link->send(header, std::span(me.out).first(bytes));
      if (result == transports::Send::full) break;
      if (result == transports::Send::queued) sink.queued();
      ++sent;
      moved = true;
    }
    moved = me.transport->progress() || moved;
    if (!moved) ::sched_yield();
  }
  return seconds_since(begin);
}

// Runs the same pattern over the bare socket: 64 bytes and the payload in one buffer.
double stream_plain(Rank& me, std::size_t bytes, std::size_t count) {
  const std::size_t frame = bytes + transports::frame_header_bytes;
  std::size_t sent = 0, received = 0;
  const auto begin = SteadyClock::now();
  while (received < frame * count || sent < frame * count) {
    bool moved = false;
    if (sent < frame * count && sent / frame < received / frame + ahead) {
      const std::size_t at = sent % frame;
      const ssize_t n = ::send(me.socket, me.out.data() + at, frame - at, MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<std::size_t>(n), moved = true;
    }
    if (received < frame * count) {
      const std::size_t at = received % frame;
      const ssize_t n = ::recv(me.socket, me.in.data() + at, frame - at, 0);
      if (n > 0) received += static_cast<std::size_t>(n), moved = true;
    }
    if (!moved) ::sched_yield();
  }
  return seconds_since(begin);
}

// Yields from time to time: on a busy machine the peer may have no core.
template <class Done>
void spin_until(Done done) {
  for (unsigned tries = 1; !done(); ++tries)
    if (tries % 64 == 0) ::sched_yield();
}

double latency_rondo(Rank& me, BenchSink& sink, std::size_t bytes, std::size_t count) {
  const transports::HeaderBytes header{};
  sink.aim(bytes, true, me.in.data());
  sink.allow(count);
  const auto begin = SteadyClock::now();
  for (std::size_t i = 0; i < count; ++i) {
    if (me.rank == 1)
      while (sink.done() <= i) me.transport->progress();
    while (me.link->send(header, std::span(me.out).first(bytes)) == transports::Send::full)
      me.transport->progress();
    if (me.rank == 0)
      while (sink.done() <= i) me.transport->progress();
  }
  return seconds_since(begin) / static_cast<double>(2 * count);
}

double latency_plain(Rank& me, std::size_t bytes, std::size_t count) {
  const std::size_t frame = bytes + transports::frame_header_bytes;
  const auto receive = [&] {
    std::size_t have = 0;
    spin_until([&] {
      const ssize_t n = ::recv(me.socket, me.in.data() + have, frame - have, 0);
      if (n > 0) have += static_cast<std::size_t>(n);
      return have == frame;
    });
  };
  const auto begin = SteadyClock::now();
  for (std::size_t i = 0; i < count; ++i) {
    if (me.rank == 1) receive();
    ::send(me.socket, me.out.data(), frame, MSG_NOSIGNAL);
    if (me.rank == 0) receive();
  }
  return seconds_since(begin) / static_cast<double>(2 * count);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run_latency(Rank& me, BenchSink& sink, Barrier& barrier, int rounds) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{8}, std::size_t{1024}, std::size_t{16384}}) {
    std::vector<double> rondo_us, plain_us;
    for (int round = 0; round < rounds; ++round) {
      barrier.wait();
      rondo_us.push_back(1e6 * latency_rondo(me, sink, bytes, 1000));
      barrier.wait();
      plain_us.push_back(1e6 * latency_plain(me, bytes, 1000));
    }
    if (me.rank == 0)
      std::printf("latency %8zu B: rondo %7.2f us, plain %7.2f us\n", bytes, median(rondo_us),
                  median(plain_us));
  }
}

void run_stream(Rank& me, BenchSink& sink, Barrier& barrier, double seconds, int rounds) {
  for (std::size_t bytes = 64; bytes <= std::size_t{4} << 20; bytes *= 4) {
    // Assumes about 1.5 GB/s and 5 us for each frame, so that both ranks use the same count.
    const auto count =
        static_cast<std::size_t>(seconds / (5e-6 + static_cast<double>(bytes) / 1.5e9)) + 1;
    std::array<std::vector<double>, 3> rates;
    for (int round = 0; round < rounds; ++round)
      for (std::size_t kind = 0; kind < rates.size(); ++kind) {
        barrier.wait();
        const double time = kind == 0 ? stream_plain(me, bytes, count)
                                      : stream_rondo(me, sink, bytes, kind == 1, count);
        rates[kind].push_back(static_cast<double>(bytes * count) / time / 1e9);
      }
    if (me.rank != 0) continue;
    std::printf("stream %9zu B: plain %6.3f GB/s, placed %6.3f (%.2f), borrowed %6.3f (%.2f)\n",
                bytes, median(rates[0]), median(rates[1]), median(rates[1]) / median(rates[0]),
                median(rates[2]), median(rates[2]) / median(rates[0]));
    std::fflush(stdout);
  }
}

// Processor time of this process, which does not count the time of others.
double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void run_tags() {
  base::FrameTag tags(base::SessionKey{});
  const std::vector<std::byte> bytes(std::size_t{1} << 20);
  for (const std::size_t count :
       {std::size_t{64}, std::size_t{4096}, std::size_t{65536}, bytes.size()}) {
    const int repeats = static_cast<int>(std::size_t{1} << 28) / static_cast<int>(count + 4096);
    const double begin = processor_seconds();
    for (int i = 0; i < repeats; ++i) {
      tags.begin();
      tags.add(std::span(bytes).first(count));
      (void)tags.end();
      tags.skip(1);
    }
    const double each = (processor_seconds() - begin) / repeats;
    std::printf("tag     %8zu B: %9.0f ns, %6.2f GB/s\n", count, 1e9 * each,
                1e-9 * static_cast<double>(count) / each);
  }
  std::fflush(stdout);
}

int plain_socket(int rank, int listener, const sockaddr_in& address) {
  const int socket =
      rank == 0 ? ::accept(listener, nullptr, nullptr) : ::socket(AF_INET, SOCK_STREAM, 0);
  if (rank == 1 &&
      ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    std::abort();
  const int one = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  ::fcntl(socket, F_SETFL, O_NONBLOCK);
  return socket;
}

void run_rank(int rank, Shared& shared, int listener, const sockaddr_in& address, double seconds,
              int rounds, base::Protection protection) {
  Barrier barrier(shared);
  tcp::Options options;
  options.rank = rank;
  options.size = 2;
  options.host = "bench";
  options.secret = "bench";
  options.interfaces = {"lo"};
  options.within_host = protection;
  const auto transport = tcp::make_tcp(options);
  const auto mine = static_cast<std::size_t>(rank);
  const transports::Blob blob = transport->address();
  std::ranges::copy(blob, shared.address[mine].begin());
  shared.address_bytes[mine] = blob.size();
  barrier.wait();
  std::vector<transports::Blob> addresses;
  for (std::size_t i = 0; i < 2; ++i)
    addresses.emplace_back(
        shared.address[i].begin(),
        shared.address[i].begin() + static_cast<std::ptrdiff_t>(shared.address_bytes[i]));
  transport->start(addresses, 1);

  Rank me{rank,
          transport.get(),
          &transport->link(1 - rank, transports::Lane::bulk),
          plain_socket(rank, listener, address),
          std::vector<std::byte>((4u << 20) + 64),
          std::vector<std::byte>((4u << 20) + 64)};
  BenchSink sink;
  me.transport->open({&sink, &sink, &sink});
  stream_rondo(me, sink, 64, true, 10);
  run_latency(me, sink, barrier, rounds);
  run_stream(me, sink, barrier, seconds, rounds);
  barrier.wait();
  ::close(me.socket);
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 0.05;
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 7;
  const std::string_view wanted = argc > 3 ? argv[3] : "none";
  const base::Protection protection = wanted == "payload"   ? base::Protection::payload
                                      : wanted == "headers" ? base::Protection::headers
                                                            : base::Protection::none;
  if (protection != base::Protection::none) run_tags();
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  auto* shared = new (memory) Shared;
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, 1) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return 1;
  const pid_t child = ::fork();
  run_rank(child == 0 ? 1 : 0, *shared, listener, address, seconds, rounds, protection);
  if (child == 0) return 0;
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}
