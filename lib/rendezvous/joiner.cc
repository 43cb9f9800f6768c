// SPDX-License-Identifier: Apache-2.0
//
// A rank joins by trying: it looks for rank 0, connects and proves the secret, again and again
// until the deadline, because ranks start in any order. An Obstacle may be gone at the next
// attempt; an Error ends the join.
#include "lib/rendezvous/joiner.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include <rondo/error.h>

#include "base/handshake_driver.h"
#include "base/process.h"
#include "base/text.h"
#include "lib/rendezvous/listen.h"
#include "lib/rendezvous/meeting.h"
#include "lib/settings/url.h"
#include "lib/wire/join_report.h"
#include "lib/wire/messages.h"
#include "lib/wire/name_lookup.h"
#include "lib/wire/socket.h"

namespace rondo::rendezvous {
namespace {

constexpr milliseconds connect_time{3'000};    // for one attempt
constexpr milliseconds handshake_time{5'000};  // likewise
constexpr milliseconds first_pause{5}, longest_pause{100};
// How long after its deadline this rank still waits for rank 0 to tell all ranks how the join
// ended.
constexpr milliseconds verdict_grace{1'000};
constexpr milliseconds refusal_time{1'500};
// An announcement may be that of an earlier job, left behind: how long this rank waits for another
// one before it believes a refusal.
constexpr milliseconds announce_time{5'000};
// How long a rank that must give up tries to reach rank 0 first, so that rank 0's message can name
// it.
constexpr milliseconds hint_time{2'000};

// A problem that may be gone at the next attempt.
struct Obstacle {
  std::string what;
};

class Joiner {
 public:
  Joiner(const Place& place, const Options& options, const transports::Blob& record)
      : place_(place),
        url_(name_of_rendezvous(place, options)),
        record_(record),
        connect_deadline_(options.connect_deadline),
        deadline_(place.deadline),
        board_(board_of(place, options)) {}

  // persistent: run() tries until the deadline, else once.
  void fail_with(const operation::Failure& failure, bool persistent) {
    failure_ = failure;
    persistent_ = persistent;
  }
  // True once rank 0 has said why no rank can join.
  bool has_heard() const noexcept { return heard_; }

  JoinResult run() {
    milliseconds pause = first_pause;
    std::optional<std::string> obstacle;
    while (base::Clock::now() < deadline_) {
      try {
        return attempt();
      } catch (const Obstacle& found) {
        obstacle = found.what;
        if (!persistent_) break;
      }
      wire::pause_until(std::min(deadline_, base::after(base::Clock::now(), pause)));
      pause = std::min(longest_pause, pause * 3 / 2);
    }
    throw Error(
        Errc::deadline_exceeded,
        late() + (obstacle ? "rank 0 was not found: " + *obstacle +
                                 "; start rank 0, or check that this is its address"
                           : std::string("its time was over before it looked for rank 0; find out "
                                         "what held it up, or give it longer (connect_deadline)")));
  }

 private:
  std::string prefix() const {
    return "rank " + std::to_string(place_.rank) + " could not join the " +
           std::to_string(place_.size) + " ranks at " + url_;
  }

  std::string late() const {
    return prefix() + " within " +
           wire::describe_seconds(std::chrono::duration<double>(connect_deadline_).count()) + ": ";
  }

  [[noreturn]] void refuse(Errc code, const std::string& why) const {
    throw Error(code, prefix() + ": " + why);
  }

  JoinResult attempt() {
    std::uint64_t job = 0;
    const std::vector<wire::Endpoint> endpoints = board_           ? announced(job)
                                                  : place_.meeting ? met()
                                                                   : named();
    Obstacle last{"it has no address"};
    for (const wire::Endpoint& endpoint : endpoints) {
      try {
        return talk(endpoint, job);
      } catch (const Obstacle& obstacle) {
        last = obstacle;
      } catch (const Error& error) {
        // If the announcement has changed meanwhile, it was that of an earlier job, and perhaps
        // that job refused.
        const bool refused =
            error.code() == Errc::authentication || error.code() == Errc::unsupported;
        if (!refused || !board_ || !changed(job)) throw;
        last = {error.what()};
      }
    }
    throw last;
  }

  std::vector<wire::Endpoint> named() const {
    const settings::RendezvousUrl url = settings::parse_rendezvous(place_.url, "the rendezvous");
    std::string why;
    std::vector<wire::Endpoint> endpoints = wire::resolve(url.host, url.port, deadline_, why);
    if (endpoints.empty()) throw Obstacle{why};
    if (!place_.stays_here()) return endpoints;
    const auto elsewhere =
        std::stable_partition(endpoints.begin(), endpoints.end(),
                              [](const wire::Endpoint& one) { return one.is_local(); });
    if (elsewhere == endpoints.begin()) give_up(endpoints, "it is not an address of this host");
    endpoints.erase(elsewhere, endpoints.end());
    return endpoints;
  }

  std::vector<wire::Endpoint> announced(std::uint64_t& job) {
    std::string why;
    const auto announcement = board_->look(deadline_, why);
    if (!announcement) throw Obstacle{why};
    job = announcement->job;
    const bool here = announcement->host == base::host_identity();
    std::vector<wire::Endpoint> endpoints = reachable(announcement->addresses, here);
    if (!here && place_.stays_here())
      give_up(endpoints, "rank 0 is on another host than this rank");
    if (endpoints.empty()) throw Obstacle{"rank 0 announced no address that this host can reach"};
    return endpoints;
  }

  std::vector<wire::Endpoint> met() const {
    const bool here = place_.meeting->host == base::host_identity();
    std::vector<wire::Endpoint> endpoints = reachable(place_.meeting->addresses, here);
    if (endpoints.empty()) throw Obstacle{"rank 0 listens at no address that this host can reach"};
    return endpoints;
  }

  static std::vector<wire::Endpoint> reachable(const std::vector<std::string>& addresses,
                                               bool here) {
    std::vector<wire::Endpoint> endpoints;
    for (const std::string& address : addresses)
      for (const wire::Endpoint& endpoint : wire::parse_endpoint(address))
        if (here || !endpoint.is_loopback()) endpoints.push_back(endpoint);
    return endpoints;
  }

  // Ends the join of a rank that has no job secret, where rank 0 is on another host. Connects to
  // rank 0 first, which may not listen yet: it turns the connection away and can report this rank.
  [[noreturn]] void give_up(const std::vector<wire::Endpoint>& endpoints,
                            const std::string& why) const {
    const base::TimePoint until = std::min(deadline_, base::after(base::Clock::now(), hint_time));
    bool told = endpoints.empty();
    while (!told && base::Clock::now() < until) {
      for (const wire::Endpoint& endpoint : endpoints) told = tell(endpoint, until) || told;
      if (!told) wire::pause_until(std::min(until, base::after(base::Clock::now(), longest_pause)));
    }
    demand_secret(prefix() + ": " + why);
  }

  // Returns false if nobody listens there yet.
  bool tell(const wire::Endpoint& endpoint, base::TimePoint until) const {
    std::string obstacle;
    base::FileDescriptor socket = wire::connect_to(
        endpoint, std::min(until, base::after(base::Clock::now(), hint_time / 4)), obstacle);
    if (!socket) return obstacle.find(base::describe_errno(ECONNREFUSED)) == std::string::npos;
    wire::Stream stream(std::move(socket));
    try {
      handshake(stream, 0, until);
    } catch (const Obstacle&) {
    }
    return true;
  }

  // Returns whether the announcement is another one by now. If its process is not known to live,
  // waits a while for the announcement of another rank 0.
  bool changed(std::uint64_t job) {
    const base::TimePoint until =
        std::min(deadline_, base::after(base::Clock::now(), announce_time));
    for (;;) {
      std::string why;
      const auto now = board_->look(base::after(base::Clock::now(), connect_time), why);
      if (!now || now->job != job) return true;
      if (liveness_of(*now) == Liveness::alive || base::Clock::now() >= until) return false;
      wire::pause_until(std::min(until, base::after(base::Clock::now(), longest_pause)));
    }
  }

  JoinResult talk(const wire::Endpoint& endpoint, std::uint64_t job) {
    std::string why;
    base::FileDescriptor socket = wire::connect_to(
        endpoint, std::min(deadline_, base::after(base::Clock::now(), connect_time)), why);
    if (!socket) throw Obstacle{why};
    if (place_.stays_here() && !wire::same_host(socket.get()))
      demand_secret(prefix() + ": " + endpoint.text() + " is on another host");
    wire::Stream stream(std::move(socket));
    handshake(stream, job, std::min(deadline_, base::after(base::Clock::now(), handshake_time)));
    hand_in_record(stream);
    return receive_result(stream);
  }

  void handshake(wire::Stream& stream, std::uint64_t job, base::TimePoint until) const {
    auto handshake = base::HandshakeDriver::connector(
        {.purpose = base::Purpose::rendezvous,
         .rank = static_cast<std::uint32_t>(place_.rank),
         .size = static_cast<std::uint32_t>(place_.size),
         .job = job},
        0, place_.secret, place_.terms(wire::same_host(stream.descriptor())));
    stream.send(handshake.output());
    std::array<std::byte, base::longest_handshake_message> buffer;
    while (handshake.awaits() != 0) {
      const auto message = std::span(buffer).first(handshake.awaits());
      take(stream, message, until);
      handshake.take(message);
      stream.send(handshake.output());
    }
    if (handshake.verdict()) {
      stream.protect(handshake.agreement());
      return heed(*handshake.verdict(), stream);
    }
    stream.finish_sending();
    if (handshake.code() == Errc::authentication || handshake.code() == Errc::unsupported)
      refuse(handshake.code(), handshake.why());
    throw Obstacle{stream.peer() + ": " + handshake.why()};
  }

  void heed(base::Verdict verdict, wire::Stream& stream) const {
    switch (verdict) {
      case base::Verdict::welcome:
        return;
      case base::Verdict::bad_secret:
      case base::Verdict::secret_needed:
      case base::Verdict::other_user:
        refuse(Errc::authentication, base::explain(verdict));
      case base::Verdict::bad_version:
        refuse(Errc::unsupported, base::explain(verdict));
      case base::Verdict::wrong_job:
      case base::Verdict::duplicate_link:
        throw Obstacle{stream.peer() + ": " + base::explain(verdict)};
      case base::Verdict::bad_size:
      case base::Verdict::bad_rank:
      case base::Verdict::doubled_rank:
        break;
    }
    // Rank 0 ends the join for all ranks and says why, in the same words to all.
    const base::TimePoint until = base::after(base::Clock::now(), refusal_time);
    std::string why = base::explain(verdict);
    if (const auto message = next_message(stream, until))
      if (const auto* refusal = std::get_if<wire::RefusalMessage>(&*message))
        throw Error(refusal->failure.code, refusal->failure.cause);
    refuse(Errc::rendezvous, why);
  }

  void hand_in_record(wire::Stream& stream) const {
    if (failure_) return stream.send(wire::encode(wire::UnableMessage{*failure_}));
    const auto left = std::max(
        std::chrono::duration_cast<milliseconds>(deadline_ - base::Clock::now()), milliseconds{0});
    stream.send(
        wire::encode(wire::RecordMessage{static_cast<std::uint64_t>(left.count()), record_}));
  }

  JoinResult receive_result(wire::Stream& stream) {
    const base::TimePoint until = base::after(deadline_, verdict_grace);
    JoinResult result;
    std::size_t expected = 0;
    for (bool first = true; first || result.records.size() < expected; first = false) {
      auto message = next_message(stream, until);
      if (!message && !stream.ended()) {
        throw Error(Errc::deadline_exceeded, late() + "rank 0 at " + stream.peer() +
                                                 " accepted it and then stopped answering");
      }
      if (!message && stream.code() == Errc::authentication)
        refuse(Errc::authentication, "rank 0 at " + stream.peer() + ": " + stream.why());
      if (!message)
        throw Obstacle{"rank 0 at " + stream.peer() +
                       " went away while the ranks were joining: " + stream.why()};
      if (const auto* refusal = std::get_if<wire::RefusalMessage>(&*message)) {
        heard_ = true;
        throw Error(refusal->failure.code, refusal->failure.cause);
      }
      if (!accept(*message, result, expected, first))
        throw Obstacle{"rank 0 at " + stream.peer() +
                       " sent something else than the records of the ranks"};
    }
    result.streams.push_back(std::move(stream));
    return result;
  }

  bool accept(wire::ControlMessage& message, JoinResult& result, std::size_t& expected,
              bool first) const {
    if (const auto* members = std::get_if<wire::MembersMessage>(&message)) {
      expected = members->size;
      result.job = members->job;
      return first && members->size == static_cast<std::uint32_t>(place_.size);
    }
    auto* const member = std::get_if<wire::MemberMessage>(&message);
    if (member == nullptr || first || member->rank != result.records.size()) return false;
    result.records.push_back(std::move(member->record));
    return true;
  }

  // No value if time is up or the stream has ended.
  static std::optional<wire::ControlMessage> next_message(wire::Stream& stream,
                                                          base::TimePoint until) {
    for (;;) {
      stream.write();
      if (const auto frame = stream.take_frame()) {
        auto message = wire::decode(frame->type, frame->payload);
        if (!message) stream.end("it sent a message that is not valid");
        return message;
      }
      if (stream.ended()) return std::nullopt;
      if (!wire::wait_for(stream.descriptor(), stream.events(), until)) return std::nullopt;
      stream.read();
    }
  }

  static void take(wire::Stream& stream, std::span<std::byte> to, base::TimePoint until) {
    for (;;) {
      stream.write();
      if (stream.take(to)) return;
      if (stream.ended())
        throw Obstacle{stream.peer() + ": " + stream.why() + " during the handshake"};
      if (!wire::wait_for(stream.descriptor(), stream.events(), until))
        throw Obstacle{stream.peer() + ": no answer to the handshake"};
      stream.read();
    }
  }

  const Place& place_;
  const std::string url_;
  const transports::Blob& record_;
  const std::chrono::milliseconds connect_deadline_;
  const base::TimePoint deadline_;
  const std::unique_ptr<Board> board_;
  std::optional<operation::Failure> failure_;  // what this rank sends instead of its record
  bool heard_ = false, persistent_ = true;
};

}  // namespace

JoinResult join_rank_zero(const Place& place, const Options& options,
                          const transports::Blob& record) {
  return Joiner(place, options, record).run();
}

operation::Failure report_to_rank_zero(const Place& place, const Options& options,
                                       const operation::Failure& failure, bool persistent) {
  const transports::Blob nothing;
  Joiner joiner(place, options, nothing);
  joiner.fail_with(failure, persistent);
  try {
    joiner.run();
  } catch (const Error& error) {
    if (joiner.has_heard()) return wire::failure_of(error);
    throw;
  }
  return failure;
}

}  // namespace rondo::rendezvous
