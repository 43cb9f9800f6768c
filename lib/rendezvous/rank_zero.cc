// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 polls all connections of a join at once: first a handshake on each, then a record, then
// the answer for all. It never ends a join at the first mistake: it waits a little for more ranks,
// so that all of them get the same cause.
#include "lib/rendezvous/rank_zero.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <map>
#include <optional>
#include <set>

#include <rondo/error.h>

#include "base/handshake_driver.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/shortage.h"
#include "base/text.h"
#include "lib/rendezvous/listen.h"
#include "lib/wire/join_report.h"
#include "lib/wire/messages.h"
#include "lib/wire/socket.h"

namespace rondo::rendezvous {
namespace {

constexpr milliseconds joiner_handshake_time{5'000};
// After a mistake that nothing can repair: how long rank 0 still waits for ranks, to tell them.
constexpr milliseconds hopeless_grace{250};
constexpr milliseconds last_message_time{500};
// Without a descriptor for it a connection stays in the queue, and poll() would report it at once
// again: rank 0 looks away for so long.
constexpr milliseconds accept_pause{10};
constexpr std::size_t most_turned = 256;

enum class Stage {
  hello,   // nothing is known yet
  proof,   // was challenged; its proof is to come
  record,  // has proved the secret; its record is to come
  ready,
  heard,  // disagrees about the ranks; is told why when the join ends
  told,   // was told why no rank can join; is read until it closes
  gone,
};

struct JoiningRank {
  JoiningRank(base::FileDescriptor descriptor, const Place& place)
      : stream(std::move(descriptor)),
        handshake(base::HandshakeDriver::acceptor(
            0, place.secret, place.terms(wire::same_host(stream.descriptor())))),
        handshake_until(base::after(base::Clock::now(), joiner_handshake_time)) {}

  wire::Stream stream;
  base::HandshakeDriver handshake;
  Stage stage = Stage::hello;
  base::TimePoint handshake_until;
  base::TimePoint deadline = base::TimePoint::max();
  transports::Blob record;

  bool proved() const noexcept {
    return stage == Stage::record || stage == Stage::ready || stage == Stage::heard ||
           stage == Stage::told;
  }
  std::uint32_t rank() const noexcept { return handshake.claim().rank; }
};

class RankZero {
 public:
  RankZero(const Place& place, const Options& options)
      : place_(place),
        url_(name_of_rendezvous(place, options)),
        connect_deadline_(options.connect_deadline),
        deadline_(place.deadline),
        job_(fresh_job()),
        listening_(start_listening(place, options, job_)),
        by_rank_(static_cast<std::size_t>(place.size), nullptr),
        most_unproved_(128 + static_cast<std::size_t>(place.size)) {
    report_.size = place.size;
  }

  JoinResult run(const transports::Blob& record) {
    for (;;) {
      if (end_) {
        if (all_are_told() || base::Clock::now() >= end_until_)
          throw Error(end_->code, end_->cause);
        turn(end_until_);
        continue;
      }
      const bool all = taken_ + 1 == by_rank_.size();
      if (all && !report_.hopeless()) return finish(record);
      if (report_.hopeless() && !hopeless_until_)
        hopeless_until_ = base::after(base::Clock::now(), hopeless_grace);
      const base::TimePoint until = earliest_end();
      if (all || base::Clock::now() >= until) fail();
      turn(until);
    }
  }

  void give_up(const operation::Failure& why) {
    say_to_all(wire::encode(wire::RefusalMessage{why}));
  }

  // Ends the join with this cause. Ranks that are there get it at once, and so do those that come
  // by `until`.
  void end_with(const operation::Failure& failure, base::TimePoint until) {
    if (end_) return;
    end_ = failure;
    end_until_ = until;
    for (JoiningRank& joiner : joiners_)
      if (joiner.proved()) tell_end(joiner);
  }

 private:
  void tell_end(JoiningRank& joiner) {
    joiner.stream.send(wire::encode(wire::RefusalMessage{*end_}));
    joiner.stage = Stage::told;
    if (joiner.rank() != 0 && joiner.rank() < by_rank_.size()) told_.insert(joiner.rank());
    finish_telling(joiner);
  }

  // Keeps the connection open until the joiner has closed it: unread bytes would cause a reset,
  // which destroys what was sent.
  void finish_telling(JoiningRank& joiner) {
    if (!joiner.stream.has_unsent()) joiner.stream.finish_sending();
    while (joiner.stream.take_frame()) {
    }
  }

  bool all_are_told() const {
    return told_.size() + 1 == by_rank_.size() &&
           std::ranges::none_of(
               joiners_, [](const JoiningRank& joiner) { return joiner.stage == Stage::told; });
  }

  base::TimePoint earliest_end() const {
    base::TimePoint until = std::min(deadline_, hopeless_until_.value_or(base::TimePoint::max()));
    for (const JoiningRank& joiner : joiners_)
      if (joiner.stage == Stage::ready) until = std::min(until, joiner.deadline);
    return std::min(until, end_of_refused());
  }

  // Returns when the join ends because every missing rank was turned away for its secret. Until
  // then one with the right secret can come instead.
  base::TimePoint end_of_refused() const {
    std::optional<base::TimePoint> last;
    for (std::uint32_t rank = 1; rank < by_rank_.size(); ++rank) {
      if (by_rank_[rank] != nullptr) continue;
      const auto refused = refused_.find(rank);
      if (refused == refused_.end()) return base::TimePoint::max();
      last = std::max(last.value_or(refused->second), refused->second);
    }
    return last ? base::after(*last, place_.refused_grace) : base::TimePoint::max();
  }

  void turn(base::TimePoint until) {
    std::vector<pollfd> entries;
    const bool accepting = base::Clock::now() >= accept_again_;
    if (!accepting) until = std::min(until, accept_again_);
    for (const base::FileDescriptor& listener : listening_.listeners)
      entries.push_back({accepting ? listener.get() : -1, POLLIN, 0});
    for (const JoiningRank& joiner : joiners_) {
      entries.push_back({joiner.stream.descriptor(), joiner.stream.events(), 0});
      if (!joiner.proved()) until = std::min(until, joiner.handshake_until);
    }
    base::Interruption::check();
    if (::poll(entries.data(), entries.size(),
               base::poll_timeout(base::Clock::now(), until, base::interruption_interval)) < 0)
      return;

    std::size_t next = listening_.listeners.size();
    const base::TimePoint now = base::Clock::now();
    for (JoiningRank& joiner : joiners_) {
      if (entries[next++].revents != 0) advance(joiner);
      if (!joiner.proved() && joiner.stage != Stage::gone && now >= joiner.handshake_until)
        turn_away(joiner, "it did not finish the handshake in time");
    }
    std::erase_if(joiners_, [](const JoiningRank& joiner) { return joiner.stage == Stage::gone; });
    for (std::size_t i = 0; i < listening_.listeners.size(); ++i)
      if (entries[i].revents != 0) accept_all(listening_.listeners[i].get());
  }

  void accept_all(int listener) {
    for (int count = 0; count < 64; ++count) {
      base::FileDescriptor socket = wire::accept_from(listener);
      if (!socket) {
        if (!base::is_shortage(errno)) return;
        note_shortage(errno);
        if (drop_oldest_unproved()) continue;
        accept_again_ = base::after(base::Clock::now(), accept_pause);
        return;
      }
      if (listening_.this_host_only && !wire::same_host(socket.get())) {
        const std::string address = wire::peer_endpoint(socket.get()).host();
        if (report_.other_hosts.size() < most_turned) report_.other_hosts.insert(address);
        log_.line(base::LogLevel::warning,
                  "rank 0 turned away a connection from " + address +
                      ": it is on another host, and rank 0 has no job secret: set RONDO_SECRET to "
                      "the same text on all ranks");
        continue;
      }
      // More unproved connections than the ranks can cause come from strangers. Fewer may be ranks
      // that must wait until there is room.
      const std::size_t unproved = count_unproved();
      if (unproved >= std::min(most_unproved_, base::most_unproved_descriptors()) &&
          drop_oldest_unproved() && unproved >= most_unproved_)
        ++report_.foreign;
      joiners_.emplace_back(std::move(socket), place_);
    }
  }

  std::size_t count_unproved() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        joiners_, [](const JoiningRank& joiner) { return !joiner.proved(); }));
  }

  // This process is short of descriptors or memory. The connections that it cannot accept are not
  // to blame.
  void note_shortage(int error) {
    if (!report_.shortage.empty()) return;
    report_.shortage = base::describe_errno(error) + base::remedy_of_shortage(error);
    log_.line(base::LogLevel::warning,
              "rank 0 cannot accept connections at " + url_ + ": " + report_.shortage);
  }

  // A rank that loses its connection here tries again. A stranger that only holds connections open
  // loses them.
  bool drop_oldest_unproved() {
    const auto oldest =
        std::ranges::find_if(joiners_, [](const JoiningRank& joiner) { return !joiner.proved(); });
    if (oldest == joiners_.end()) return false;
    joiners_.erase(oldest);
    return true;
  }

  void advance(JoiningRank& joiner) {
    joiner.stream.write();
    joiner.stream.read();
    if (joiner.stage == Stage::hello) take_hello(joiner);
    if (joiner.stage == Stage::proof) take_proof(joiner);
    if (joiner.stage == Stage::record) take_record(joiner);
    if (joiner.stage == Stage::told) finish_telling(joiner);
    if (joiner.stage != Stage::gone && joiner.stream.ended()) lose(joiner);
  }

  void take_hello(JoiningRank& joiner) {
    base::HelloBytes hello;
    if (!joiner.stream.take(hello)) return;
    joiner.handshake.take(hello);
    if (joiner.handshake.awaits() == 0) {
      if (joiner.handshake.code() != Errc::rendezvous)
        throw Error(joiner.handshake.code(), joiner.handshake.why());
      ++report_.foreign;
      joiner.stage = Stage::gone;
      return;
    }
    joiner.stream.send(joiner.handshake.output());
    joiner.stage = Stage::proof;
    if (joiner.handshake.version() == base::wire_version) return;
    joiner.handshake.refuse(base::Verdict::bad_version);
    refuse(joiner);
  }

  void take_proof(JoiningRank& joiner) {
    base::ProofBytes proof;
    if (!joiner.stream.take(proof)) return;
    joiner.handshake.take(proof,
                          [&](const base::Acceptor& claimed) { return judge(claimed, joiner); });
    const bool of_this_join =
        joiner.handshake.proved() && joiner.handshake.verdict() != base::Verdict::wrong_job;
    if (!of_this_join) return refuse(joiner);
    joiner.stream.send(joiner.handshake.output());
    joiner.stream.protect(joiner.handshake.agreement());
    // A rank that disagrees is told at the end of the join, with everything that was wrong.
    joiner.stage = joiner.handshake.accepted() ? Stage::record : Stage::heard;
    if (end_) tell_end(joiner);
  }

  // Decides about the claim and notes in the report what is wrong with it.
  base::Verdict judge(const base::Acceptor& claimed, JoiningRank& joiner) {
    const base::Claim& claim = claimed.claim();
    const std::uint64_t expected = listening_.board ? job_ : 0;
    if (claim.purpose != base::Purpose::rendezvous || !claimed.meant_for_this_rank() ||
        claim.job != expected)
      return base::Verdict::wrong_job;
    const std::string& address = joiner.stream.peer();
    if (claim.size != by_rank_.size() || claim.rank >= by_rank_.size()) {
      report_.disagreeing.push_back({claim.rank, claim.size, address});
      return claim.size != by_rank_.size() ? base::Verdict::bad_size : base::Verdict::bad_rank;
    }
    JoiningRank* const earlier = claim.rank == 0 ? nullptr : by_rank_[claim.rank];
    if (earlier != nullptr) advance(*earlier);  // its end may not have been noticed yet
    if (claim.rank == 0 || by_rank_[claim.rank] != nullptr) {
      report_.doubled.push_back(
          {claim.rank, earlier == nullptr ? "rank 0 itself" : earlier->stream.peer(), address});
      return base::Verdict::doubled_rank;
    }
    by_rank_[claim.rank] = &joiner;
    refused_.erase(claim.rank);
    return base::Verdict::welcome;
  }

  void take_record(JoiningRank& joiner) {
    auto frame = joiner.stream.take_frame();
    if (!frame) return;
    auto message = wire::decode(frame->type, frame->payload);
    if (const auto* unable = message ? std::get_if<wire::UnableMessage>(&*message) : nullptr)
      return end_with(unable->failure,
                      std::min(deadline_, base::after(base::Clock::now(), failure_grace)));
    auto* const record = message ? std::get_if<wire::RecordMessage>(&*message) : nullptr;
    if (record == nullptr) return joiner.stream.end("it sent something else than its record");
    constexpr auto most =
        static_cast<std::uint64_t>(std::chrono::milliseconds(std::chrono::hours(24 * 365)).count());
    joiner.deadline =
        base::after(base::Clock::now(), milliseconds(std::min(record->milliseconds_left, most)));
    joiner.record = std::move(record->record);
    joiner.stage = Stage::ready;
    ++taken_;
  }

  // The joiner cannot take part and will send nothing more: it gets the verdict and the end.
  void refuse(JoiningRank& joiner) {
    joiner.stream.send(joiner.handshake.output());
    joiner.stream.finish_sending();
    if (joiner.handshake.code() == Errc::authentication) note_refused(joiner);
    turn_away(joiner, joiner.handshake.why());
  }

  // A rank that was refused ends with an error and may not come again.
  void note_refused(const JoiningRank& joiner) {
    if (joiner.rank() < by_rank_.size()) refused_[joiner.rank()] = base::Clock::now();
    log_.line(base::LogLevel::warning,
              fmt::format("rank 0 turned away rank {} from {}: {}", joiner.rank(),
                          joiner.stream.peer(), joiner.handshake.why()));
  }

  void turn_away(JoiningRank& joiner, const std::string& why) {
    if (joiner.stage == Stage::hello)
      ++report_.foreign;
    else
      note_turned(joiner, why);
    joiner.stage = Stage::gone;
  }

  void lose(JoiningRank& joiner) {
    if (joiner.stage == Stage::record || joiner.stage == Stage::ready) {
      by_rank_[joiner.rank()] = nullptr;
      if (joiner.stage == Stage::ready) --taken_;
    }
    if (joiner.stage == Stage::told && joiner.rank() < by_rank_.size() &&
        by_rank_[joiner.rank()] == &joiner)
      by_rank_[joiner.rank()] = nullptr;
    if (joiner.stage != Stage::heard && joiner.stage != Stage::told)
      turn_away(joiner, joiner.stream.why());
    joiner.stage = Stage::gone;
  }

  void note_turned(const JoiningRank& joiner, const std::string& why) {
    if (report_.turned.size() < most_turned)
      report_.turned.push_back({joiner.rank(), joiner.stream.peer(), why});
  }

  JoinResult finish(const transports::Blob& record) {
    // A process that comes for the next communicator must not find a listener or an announcement of
    // this one.
    if (listening_.board) listening_.board->withdraw();
    listening_ = {};
    std::erase_if(joiners_, [](const JoiningRank& joiner) { return joiner.stage != Stage::ready; });
    JoinResult result;
    result.job = job_;
    result.records.push_back(record);
    for (std::size_t rank = 1; rank < by_rank_.size(); ++rank)
      result.records.push_back(std::move(by_rank_[rank]->record));
    // Every rank gets all records, and n^2 of them are too many to keep. So there is one copy, with
    // an offset in it for each stream.
    result.members =
        wire::encode(wire::MembersMessage{job_, static_cast<std::uint32_t>(by_rank_.size())});
    for (std::size_t rank = 0; rank < by_rank_.size(); ++rank) {
      const auto part =
          wire::encode(wire::MemberMessage{static_cast<std::uint32_t>(rank), result.records[rank]});
      result.members.insert(result.members.end(), part.begin(), part.end());
    }
    // The control plane sends what does not fit into the sockets at once, and notices a rank that
    // is lost from now on.
    for (std::size_t rank = 1; rank < by_rank_.size(); ++rank) {
      by_rank_[rank]->stream.send_shared(result.members);
      result.streams.push_back(std::move(by_rank_[rank]->stream));
    }
    return result;
  }

  [[noreturn]] void fail() {
    for (std::size_t rank = 1; rank < by_rank_.size(); ++rank)
      if (by_rank_[rank] == nullptr || by_rank_[rank]->stage != Stage::ready)
        report_.missing.push_back(static_cast<int>(rank));
    std::string when = "within " + wire::describe_seconds(
                                       std::chrono::duration<double>(connect_deadline_).count());
    if (report_.hopeless()) {
      when = "and no longer can";
    } else if (base::Clock::now() >= end_of_refused()) {
      report_.refused = true;
      when = "and no longer can: the missing ranks did not prove the secret";
    } else if (base::Clock::now() < deadline_) {
      const auto first = std::ranges::min_element(joiners_, {}, &JoiningRank::deadline);
      when = "by the deadline of rank " + std::to_string(first->rank());
    }
    operation::Failure failure = wire::describe(report_, url_, when);
    say_to_all(wire::encode(wire::RefusalMessage{failure}));
    throw Error(failure.code, failure.cause);
  }

  void say_to_all(const std::vector<std::byte>& message) {
    const base::TimePoint until = base::after(base::Clock::now(), last_message_time);
    std::erase_if(joiners_, [](const JoiningRank& joiner) { return !joiner.proved(); });
    for (JoiningRank& joiner : joiners_) joiner.stream.send(message);
    for (JoiningRank& joiner : joiners_) {
      while (joiner.stream.has_unsent() && !joiner.stream.ended() &&
             wire::wait_for(joiner.stream.descriptor(), POLLOUT, until))
        joiner.stream.write();
      joiner.stream.finish_sending();
    }
  }

  const Place& place_;
  const std::string url_;
  const std::chrono::milliseconds connect_deadline_;
  const base::TimePoint deadline_;
  const std::uint64_t job_;
  Listening listening_;
  std::list<JoiningRank> joiners_;     // in the order in which they came
  std::vector<JoiningRank*> by_rank_;  // by rank, of those that have proved the secret
  std::size_t taken_ = 0;              // ranks whose record has arrived
  const std::size_t most_unproved_;
  std::map<std::uint32_t, base::TimePoint> refused_;  // ranks, last turned away for their secret
  base::TimePoint accept_again_ = base::TimePoint::min();
  std::optional<base::TimePoint> hopeless_until_;
  std::optional<operation::Failure> end_;  // set once a rank cannot take part
  base::TimePoint end_until_;
  std::set<std::uint32_t> told_;  // ranks that have been told so
  wire::JoinReport report_;
  base::QuotaLog log_;
};

}  // namespace

JoinResult accept_all_ranks(const Place& place, const Options& options,
                            const transports::Blob& record) {
  RankZero rank_zero(place, options);
  try {
    return rank_zero.run(record);
  } catch (const base::Interrupted& interrupted) {
    rank_zero.give_up(
        {Errc::aborted, std::string("rank 0 could not connect: ") + interrupted.what()});
    throw;
  }
}

operation::Failure refuse_all(const Place& place, const Options& options,
                              const operation::Failure& failure, base::TimePoint until) {
  RankZero rank_zero(place, options);
  rank_zero.end_with(failure, until);
  try {
    rank_zero.run({});
  } catch (const Error& error) {
    return wire::failure_of(error);
  }
  return failure;
}

}  // namespace rondo::rendezvous
