// SPDX-License-Identifier: Apache-2.0
//
// Frames of a measurement, on the bulk lane of the link between rank 0 and its partner:
//
//   header  = magic:u32 kind:u8 answer:u8 zero*58          ; magic "RMEA"
//   kind    = 0 (8 bytes follow) | 1 (64 KiB follow)
//           | 2 (the end, nothing follows; its answer is the last frame)
//   answer  = 1: the receiver sends a frame of kind 0 back
#include "lib/measure_links.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <vector>

#include <rondo/error.h>

#include "base/bytes.h"
#include "base/interruption.h"
#include "collectives/kernels/reduce.h"

namespace rondo::lib {

namespace {

enum class Kind : std::uint8_t { small, large, end };

constexpr std::uint32_t magic = 0x41454d52;
constexpr std::size_t small_bytes = 8, large_bytes = transports::eager_bytes;
constexpr int pings = 15, burst_frames = 24;
// A link may take the first bytes at once, into buffers or a traffic shaper's bucket. So these
// frames are sent but not timed.
constexpr int untimed_frames = 8, timed_frames = 16;
// If one large frame takes longer, the link is so slow that this frame is measurement enough.
constexpr nanoseconds slow_frame{2'500'000};
constexpr nanoseconds spin_time{300'000};

constexpr std::string_view firewall =
    ". A firewall may drop data connections: open this port between all hosts. "
    "RONDO_PORT_RANGE=FIRST-LAST limits ports to a range (docs/several-hosts.md#firewalls)";

std::size_t bytes_of(Kind kind) noexcept {
  return kind == Kind::small ? small_bytes : kind == Kind::large ? large_bytes : 0;
}

// One end of the link that is measured. It leaves frames of other links where they are.
// Thread-bound; its functions throw Error if the link breaks or time is up.
class Conversation final : private transports::Sink {
 public:
  Conversation(int peer, transports::Transport& transport, base::TimePoint until)
      : peer_(peer), transport_(transport), until_(until), payload_(large_bytes) {
    transport_.open({this, this, this});
  }

  void send(Kind kind, bool answer) {
    transports::HeaderBytes header{};
    base::store_little(header.data(), magic);
    header[4] = static_cast<std::byte>(kind);
    header[5] = static_cast<std::byte>(answer ? 1 : 0);
    const std::span<const std::byte> bytes(payload_.data(), bytes_of(kind));
    drive([&] {
      const transports::Send result =
          transport_.link(peer_, transports::Lane::bulk).send(header, bytes);
      if (result == transports::Send::copied || result == transports::Send::queued) ++under_way_;
      return result != transports::Send::full;
    });
  }
  // Waits until everything was sent and `frames` frames have arrived in all.
  void wait_for(std::uint64_t frames) {
    drive([&] { return received_ >= frames && under_way_ == 0; });
  }
  // Answers frames that ask for an answer, until the end frame arrives.
  void answer_until_end() {
    while (!ended_) {
      drive([&] { return owed_ > 0 || ended_; });
      for (; owed_ > 0; --owed_) send(Kind::small, false);
    }
    drive([&] { return under_way_ == 0; });
  }
  std::uint64_t received_frames() const noexcept { return received_; }

 private:
  // Rank 0 may start operations before this end sees that the measurement is over. Their frames
  // come after the end frame, or on the links of other lanes at any time.
  bool is_measured(const transports::Link& link) const noexcept {
    return link.peer() == peer_ && link.lane() == transports::Lane::bulk;
  }
  template <class Done>
  void drive(const Done& done);
  void sleep(base::TimePoint now);

  std::optional<transports::Receive> expected(transports::Link& link, std::size_t ahead) override {
    if (ahead > 0 || !is_measured(link) || !announced_) return std::nullopt;
    return transports::Receive{payload_.data(), bytes_of(arriving_)};
  }
  transports::Header arrived(transports::Link& link,
                             const transports::HeaderBytes& header) override {
    if (!is_measured(link) || ended_) return transports::Header::hold;
    const auto kind = std::to_integer<std::uint8_t>(header[4]);
    if (base::load_little<std::uint32_t>(header.data()) != magic || kind > 2) {
      problem_ = "it sent a frame that is not part of the measurement";
      return transports::Header::refuse;
    }
    arriving_ = static_cast<Kind>(kind);
    asks_ = header[5] == std::byte{1};
    announced_ = true;
    return transports::Header::accept;
  }
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    return view.size();
  }
  void received(transports::Link&) override {
    announced_ = false;
    ++received_;
    ended_ = ended_ || arriving_ == Kind::end;
    if (asks_) ++owed_;
  }
  void sent(transports::Link&) override { --under_way_; }
  void broken(transports::Link& link, std::error_code, std::string_view what, bool) override {
    if (link.peer() == peer_) problem_ = what;
  }

  const int peer_;
  transports::Transport& transport_;
  const base::TimePoint until_;
  transports::Blob payload_;
  std::string problem_;
  Kind arriving_ = Kind::small;
  bool announced_ = false, asks_ = false, ended_ = false;
  int under_way_ = 0, owed_ = 0;
  std::uint64_t received_ = 0;
};

template <class Done>
void Conversation::drive(const Done& done) {
  base::TimePoint idle_since = base::Clock::now();
  while (!done()) {
    if (transport_.progress()) {
      idle_since = base::Clock::now();
      if (problem_.empty()) continue;
    }
    const base::TimePoint now = base::Clock::now();
    if (!problem_.empty())
      throw Error(Errc::peer_lost,
                  fmt::format("measuring the link to rank {} at {}: {}", peer_,
                              transport_.link(peer_, transports::Lane::bulk).describe(), problem_));
    if (now >= until_)
      throw Error(Errc::deadline_exceeded,
                  fmt::format("measuring the link to rank {} at {}: no answer by the deadline of "
                              "connect(){}",
                              peer_, transport_.link(peer_, transports::Lane::bulk).describe(),
                              received_ > 0 ? "" : firewall));
    if (now - idle_since < spin_time)
      ::sched_yield();
    else
      sleep(now);
  }
}

void Conversation::sleep(base::TimePoint now) {
  const base::WakeWord* const word = transport_.wake_source().word;
  const std::uint32_t seen = word != nullptr ? word->load() : 0;
  base::Interruption::check();
  if (!transport_.prepare_sleep()) return;
  const int limit = std::min(100, base::poll_timeout(now, until_));
  if (word != nullptr) return base::sleep_on(*word, seen, milliseconds{limit});
  pollfd entry{transport_.wake_source().descriptor, POLLIN, 0};
  ::poll(&entry, 1, limit);
}

double seconds_since(base::TimePoint start) {
  return std::chrono::duration<double>(base::Clock::now() - start).count();
}

PlanLinkCosts measure_link(int peer, transports::Transport& transport, base::TimePoint until) {
  Conversation talk(peer, transport, until);
  const auto timed = [&](Kind kind, int frames) {
    const base::TimePoint start = base::Clock::now();
    for (int i = 0; i < frames; ++i) talk.send(kind, i == frames - 1);
    talk.wait_for(talk.received_frames() + 1);
    return seconds_since(start);
  };
  timed(Kind::small, 1);  // opens the connection
  timed(Kind::small, 1);
  std::array<double, pings> rounds;
  for (double& round : rounds) round = timed(Kind::small, 1);
  std::nth_element(rounds.begin(), rounds.begin() + pings / 2, rounds.end());
  const double round = rounds[pings / 2];
  const double burst = timed(Kind::small, burst_frames);
  PlanLinkCosts costs{.latency_s = round / 2,
                      .frame_s = std::max(0.0, burst - round) / (burst_frames - 1)};
  double bytes = large_bytes, time = timed(Kind::large, 1);
  if (time < std::chrono::duration<double>(slow_frame).count()) {
    timed(Kind::large, untimed_frames);
    bytes = double{large_bytes} * timed_frames;
    time = timed(Kind::large, timed_frames);
  }
  costs.seconds_per_byte = std::max(time - round, time / 10) / bytes;
  // Nothing else may be sent until the partner has ended: it would take an operation's frame for
  // one of the measurement.
  talk.send(Kind::end, true);
  talk.wait_for(talk.received_frames() + 1);
  return costs;
}

}  // namespace

MeasurePlan plan_measurement(const schedules::Hosts& hosts, int ranks, bool crowded) {
  MeasurePlan plan;
  for (int rank = ranks - 1; rank > 0; --rank) {
    if (hosts.host(rank) != hosts.host(0))
      plan.other_host = rank;
    else if (!crowded)
      plan.same_host = rank;
  }
  return plan;
}

PlanConstants measure_links(const MeasurePlan& plan,
                            const std::vector<transports::Transport*>& routes,
                            const PlanConstants& otherwise, base::TimePoint until) {
  PlanConstants constants = otherwise;
  const auto measure = [&](int partner, PlanLinkCosts& costs) {
    if (partner != schedules::no_rank)
      costs = measure_link(partner, *routes[static_cast<std::size_t>(partner)], until);
  };
  measure(plan.same_host, constants.host);
  measure(plan.other_host, constants.network);
  constants.reduce_seconds_per_byte = measure_reduction();
  return constants;
}

void answer_measurement(const std::vector<transports::Transport*>& routes, base::TimePoint until) {
  Conversation(0, *routes.front(), until).answer_until_end();
}

double measure_reduction() {
  constexpr std::size_t count = std::size_t{1} << 18;  // 1 MiB each
  const std::vector<float> a(count, 1), b(count, 2);
  std::vector<float> sum(count);
  const std::byte* const sources[] = {reinterpret_cast<const std::byte*>(a.data()),
                                      reinterpret_cast<const std::byte*>(b.data())};
  const kernels::ReduceFunction reduce = kernels::find_reduce(DType::f32, ReduceOp::sum);
  double best = 1;
  for (int turn = 0; turn < 3; ++turn) {
    const base::TimePoint start = base::Clock::now();
    reduce(reinterpret_cast<std::byte*>(sum.data()), sources, 2, count, kernels::Finish{});
    best = std::min(best, seconds_since(start));
  }
  return best / (count * sizeof(float));
}

}  // namespace rondo::lib
