// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/host.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <set>

#include <rondo/error.h>

#include "base/descriptor_share.h"
#include "base/handshake.h"
#include "base/quota_log.h"
#include "base/shortage.h"
#include "base/text.h"
#include "lib/control/messages.h"
#include "lib/rendezvous/attendance.h"
#include "lib/rendezvous/listen.h"
#include "lib/rendezvous/socket.h"

namespace rondo::rendezvous {
namespace {

constexpr milliseconds handshake_time{5'000};
// After a mistake that nothing can repair: how long others may still come and hear of it.
constexpr milliseconds hopeless_grace{250};
constexpr milliseconds farewell_time{500};
constexpr milliseconds accept_pause{10};
constexpr std::size_t most_turned = 256;

enum class Stage {
  hello,   // nothing known yet
  proof,   // has been challenged
  record,  // has proved the secret; its record is to come
  ready,
  heard,  // disagrees: waits for the end of the join, to hear why
  told,   // has been told why nobody can join; is read until it goes
  gone,
};

struct Guest {
  Guest(base::FileDescriptor descriptor, const Place& place)
      : stream(std::move(descriptor)),
        acceptor(0, place.secret, place.terms(same_host(stream.descriptor()))),
        handshake_until(base::after(base::Clock::now(), handshake_time)) {}

  Stream stream;
  base::Acceptor acceptor;
  base::Agreement agreed;
  Stage stage = Stage::hello;
  base::TimePoint handshake_until;
  base::TimePoint deadline = base::TimePoint::max();
  transports::Blob record;

  bool proved() const noexcept {
    return stage == Stage::record || stage == Stage::ready || stage == Stage::heard ||
           stage == Stage::told;
  }
  std::uint32_t rank() const noexcept { return acceptor.claim().rank; }
};

class Gathering {
 public:
  Gathering(const Place& place, const Options& options)
      : place_(place),
        url_(meeting_place(place, options)),
        connect_deadline_(options.connect_deadline),
        deadline_(place.deadline),
        job_(fresh_job()),
        reception_(open_reception(place, options, job_)),
        seats_(static_cast<std::size_t>(place.size), nullptr),
        most_strangers_(128 + static_cast<std::size_t>(place.size)) {
    attendance_.size = place.size;
  }

  Company run(const transports::Blob& record) {
    for (;;) {
      if (end_) {
        if (all_are_told() || base::Clock::now() >= end_until_)
          throw Error(end_->code, end_->cause);
        turn(end_until_);
        continue;
      }
      const bool all = taken_ + 1 == seats_.size();
      if (all && !attendance_.hopeless()) return finish(record);
      if (attendance_.hopeless() && !hopeless_until_)
        hopeless_until_ = base::after(base::Clock::now(), hopeless_grace);
      const base::TimePoint until = earliest_end();
      if (all || base::Clock::now() >= until) fail();
      turn(until);
    }
  }

  // The join ends with this cause: ranks that are there, and those that come by `until`, get it at
  // once.
  void end_with(const engine::Failure& failure, base::TimePoint until) {
    if (end_) return;
    end_ = failure;
    end_until_ = until;
    for (Guest& guest : guests_)
      if (guest.proved()) tell_end(guest);
  }

 private:
  void tell_end(Guest& guest) {
    guest.stream.send(control::encode(control::RefusalMessage{*end_}));
    guest.stage = Stage::told;
    if (guest.rank() != 0 && guest.rank() < seats_.size()) told_.insert(guest.rank());
    finish_telling(guest);
  }

  // Keeps the connection open until the guest has closed it: a reset because of unread bytes would
  // destroy what was sent.
  void finish_telling(Guest& guest) {
    if (!guest.stream.has_unsent()) guest.stream.finish_sending();
    while (guest.stream.take_frame()) {
    }
  }

  bool all_are_told() const {
    return told_.size() + 1 == seats_.size() &&
           std::ranges::none_of(guests_,
                                [](const Guest& guest) { return guest.stage == Stage::told; });
  }

  base::TimePoint earliest_end() const {
    base::TimePoint until = std::min(deadline_, hopeless_until_.value_or(base::TimePoint::max()));
    for (const Guest& guest : guests_)
      if (guest.stage == Stage::ready) until = std::min(until, guest.deadline);
    return until;
  }

  void turn(base::TimePoint until) {
    std::vector<pollfd> entries;
    const bool accepting = base::Clock::now() >= accept_again_;
    if (!accepting) until = std::min(until, accept_again_);
    for (const base::FileDescriptor& listener : reception_.listeners)
      entries.push_back({accepting ? listener.get() : -1, POLLIN, 0});
    for (const Guest& guest : guests_) {
      entries.push_back({guest.stream.descriptor(), guest.stream.events(), 0});
      if (!guest.proved()) until = std::min(until, guest.handshake_until);
    }
    if (::poll(entries.data(), entries.size(), base::poll_timeout(base::Clock::now(), until)) < 0)
      return;

    std::size_t next = reception_.listeners.size();
    const base::TimePoint now = base::Clock::now();
    for (Guest& guest : guests_) {
      if (entries[next++].revents != 0) advance(guest);
      if (!guest.proved() && guest.stage != Stage::gone && now >= guest.handshake_until)
        turn_away(guest, "it did not finish the handshake in time");
    }
    std::erase_if(guests_, [](const Guest& guest) { return guest.stage == Stage::gone; });
    for (std::size_t i = 0; i < reception_.listeners.size(); ++i)
      if (entries[i].revents != 0) accept_all(reception_.listeners[i].get());
  }

  void accept_all(int listener) {
    for (int count = 0; count < 64; ++count) {
      base::FileDescriptor socket = accept_from(listener);
      if (!socket) {
        if (!base::is_shortage(errno)) return;
        note_shortage(errno);
        if (dismiss_oldest_stranger()) continue;
        accept_again_ = base::after(base::Clock::now(), accept_pause);
        return;
      }
      if (reception_.this_host_only && !same_host(socket.get())) {
        ++attendance_.foreign;
        log_.line(base::LogLevel::warning,
                  "rank 0 turned away a connection from " + peer_endpoint(socket.get()).text() +
                      ": it is on another host, and no RONDO_SECRET is set");
        continue;
      }
      // More connections than the ranks can cause are strangers; fewer may be ranks for which there
      // is no room yet.
      const std::size_t unproved = strangers();
      if (unproved >= std::min(most_strangers_, base::most_unproved_descriptors()) &&
          dismiss_oldest_stranger() && unproved >= most_strangers_)
        ++attendance_.foreign;
      guests_.emplace_back(std::move(socket), place_);
    }
  }

  std::size_t strangers() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(guests_, [](const Guest& guest) { return !guest.proved(); }));
  }

  // This process is short of something; the connections that it cannot accept are not to blame.
  void note_shortage(int error) {
    if (!attendance_.shortage.empty()) return;
    attendance_.shortage = base::describe_errno(error) + base::remedy_of_shortage(error);
    log_.line(base::LogLevel::warning,
              "rank 0 cannot accept connections at " + url_ + ": " + attendance_.shortage);
  }

  // A rank that is dismissed so tries again; somebody who only holds connections open loses them.
  bool dismiss_oldest_stranger() {
    const auto oldest =
        std::ranges::find_if(guests_, [](const Guest& guest) { return !guest.proved(); });
    if (oldest == guests_.end()) return false;
    guests_.erase(oldest);
    return true;
  }

  void advance(Guest& guest) {
    guest.stream.write();
    guest.stream.read();
    if (guest.stage == Stage::hello) hear_hello(guest);
    if (guest.stage == Stage::proof) hear_proof(guest);
    if (guest.stage == Stage::record) hear_record(guest);
    if (guest.stage == Stage::told) finish_telling(guest);
    if (guest.stage != Stage::gone && guest.stream.ended()) lose(guest);
  }

  void hear_hello(Guest& guest) {
    base::HelloBytes hello;
    if (!guest.stream.take(hello)) return;
    try {
      guest.stream.send(guest.acceptor.challenge(hello));
    } catch (const Error& error) {
      if (error.code() != Errc::rendezvous) throw;
      ++attendance_.foreign;
      guest.stage = Stage::gone;
      return;
    }
    guest.stage = Stage::proof;
    if (guest.acceptor.version() != base::wire_version) refuse(guest, base::Verdict::bad_version);
  }

  void hear_proof(Guest& guest) {
    base::ProofBytes proof;
    if (!guest.stream.take(proof)) return;
    const base::Claim& claim = guest.acceptor.claim();
    if (!guest.acceptor.proves(proof)) return refuse(guest, guest.acceptor.refusal());
    guest.agreed = guest.acceptor.agreement(proof);
    const std::uint64_t expected = reception_.board ? job_ : 0;
    if (claim.purpose != base::Purpose::rendezvous || !guest.acceptor.meant_for_this_rank() ||
        claim.job != expected)
      return refuse(guest, base::Verdict::wrong_job);
    const std::string& address = guest.stream.peer();
    if (claim.size != seats_.size() || claim.rank >= seats_.size()) {
      attendance_.disagreeing.push_back({claim.rank, claim.size, address});
      return keep_for_the_end(
          guest, claim.size != seats_.size() ? base::Verdict::bad_size : base::Verdict::bad_rank);
    }
    Guest* const earlier = claim.rank == 0 ? nullptr : seats_[claim.rank];
    if (earlier != nullptr) advance(*earlier);  // it may be gone without our having heard of it
    if (claim.rank == 0 || seats_[claim.rank] != nullptr) {
      attendance_.doubled.push_back(
          {claim.rank, earlier == nullptr ? "rank 0 itself" : earlier->stream.peer(), address});
      return keep_for_the_end(guest, base::Verdict::doubled_rank);
    }
    seats_[claim.rank] = &guest;
    guest.stage = Stage::record;
    guest.stream.send(base::Acceptor::write_verdict(base::Verdict::welcome));
    guest.stream.protect(guest.agreed);
    if (end_) tell_end(guest);
  }

  void hear_record(Guest& guest) {
    auto frame = guest.stream.take_frame();
    if (!frame) return;
    auto message = control::decode(frame->type, frame->payload);
    if (const auto* unable = message ? std::get_if<control::UnableMessage>(&*message) : nullptr)
      return end_with(unable->failure,
                      std::min(deadline_, base::after(base::Clock::now(), failure_grace)));
    auto* const record = message ? std::get_if<control::RecordMessage>(&*message) : nullptr;
    if (record == nullptr) return guest.stream.end("it sent something else than its record");
    constexpr auto most =
        static_cast<std::uint64_t>(std::chrono::milliseconds(std::chrono::hours(24 * 365)).count());
    guest.deadline =
        base::after(base::Clock::now(), milliseconds(std::min(record->milliseconds_left, most)));
    guest.record = std::move(record->record);
    guest.stage = Stage::ready;
    ++taken_;
  }

  // It cannot take part, and says nothing more: the verdict and the end.
  void refuse(Guest& guest, base::Verdict verdict) {
    guest.stream.send(base::Acceptor::write_verdict(verdict));
    guest.stream.finish_sending();
    turn_away(guest, base::explain(verdict));
  }

  void keep_for_the_end(Guest& guest, base::Verdict verdict) {
    guest.stream.send(base::Acceptor::write_verdict(verdict));
    guest.stream.protect(guest.agreed);
    guest.stage = Stage::heard;
    if (end_) tell_end(guest);
  }

  void turn_away(Guest& guest, const std::string& why) {
    if (guest.stage == Stage::hello)
      ++attendance_.foreign;
    else
      note_turned(guest, why);
    guest.stage = Stage::gone;
  }

  void lose(Guest& guest) {
    if (guest.stage == Stage::record || guest.stage == Stage::ready) {
      seats_[guest.rank()] = nullptr;
      if (guest.stage == Stage::ready) --taken_;
    }
    if (guest.stage == Stage::told && guest.rank() < seats_.size() &&
        seats_[guest.rank()] == &guest)
      seats_[guest.rank()] = nullptr;
    if (guest.stage != Stage::heard && guest.stage != Stage::told)
      turn_away(guest, guest.stream.why());
    guest.stage = Stage::gone;
  }

  void note_turned(const Guest& guest, const std::string& why) {
    if (attendance_.turned.size() < most_turned)
      attendance_.turned.push_back({guest.rank(), guest.stream.peer(), why});
  }

  Company finish(const transports::Blob& record) {
    // Whoever comes for the next communicator must find no listener and no announcement of this
    // one.
    reception_ = {};
    std::erase_if(guests_, [](const Guest& guest) { return guest.stage != Stage::ready; });
    Company company;
    company.job = job_;
    company.records.push_back(record);
    for (std::size_t rank = 1; rank < seats_.size(); ++rank)
      company.records.push_back(std::move(seats_[rank]->record));
    // Every rank gets all records: n^2 of them are too many to keep. There is one copy, with an
    // offset in it for each stream.
    company.members =
        control::encode(control::MembersMessage{job_, static_cast<std::uint32_t>(seats_.size())});
    for (std::size_t rank = 0; rank < seats_.size(); ++rank) {
      const auto part = control::encode(
          control::MemberMessage{static_cast<std::uint32_t>(rank), company.records[rank]});
      company.members.insert(company.members.end(), part.begin(), part.end());
    }
    // What does not fit into the sockets at once, and a rank that is lost now, are the control
    // plane's business.
    for (std::size_t rank = 1; rank < seats_.size(); ++rank) {
      seats_[rank]->stream.send_shared(company.members);
      company.streams.push_back(std::move(seats_[rank]->stream));
    }
    return company;
  }

  [[noreturn]] void fail() {
    for (std::size_t rank = 1; rank < seats_.size(); ++rank)
      if (seats_[rank] == nullptr || seats_[rank]->stage != Stage::ready)
        attendance_.missing.push_back(static_cast<int>(rank));
    std::string when =
        "within " + describe_seconds(std::chrono::duration<double>(connect_deadline_).count());
    if (attendance_.hopeless()) {
      when = "and cannot any more";
    } else if (base::Clock::now() < deadline_) {
      const auto first = std::ranges::min_element(guests_, {}, &Guest::deadline);
      when = "by the deadline of rank " + std::to_string(first->rank());
    }
    engine::Failure failure = describe(attendance_, url_, when);
    say_to_all(control::encode(control::RefusalMessage{failure}));
    throw Error(failure.code, failure.cause);
  }

  void say_to_all(const std::vector<std::byte>& message) {
    const base::TimePoint until = base::after(base::Clock::now(), farewell_time);
    std::erase_if(guests_, [](const Guest& guest) { return !guest.proved(); });
    for (Guest& guest : guests_) guest.stream.send(message);
    for (Guest& guest : guests_) {
      while (guest.stream.has_unsent() && !guest.stream.ended() &&
             wait_for(guest.stream.descriptor(), POLLOUT, until))
        guest.stream.write();
      guest.stream.finish_sending();
    }
  }

  const Place& place_;
  const std::string url_;
  const std::chrono::milliseconds connect_deadline_;
  const base::TimePoint deadline_;
  const std::uint64_t job_;
  Reception reception_;
  std::list<Guest> guests_;    // in the order in which they came
  std::vector<Guest*> seats_;  // by rank, of those that have proved the secret
  std::size_t taken_ = 0;      // seats whose record is here
  const std::size_t most_strangers_;
  base::TimePoint accept_again_ = base::TimePoint::min();
  std::optional<base::TimePoint> hopeless_until_;
  std::optional<engine::Failure> end_;  // a rank cannot take part
  base::TimePoint end_until_;
  std::set<std::uint32_t> told_;  // ranks that have been told so
  Attendance attendance_;
  base::QuotaLog log_;
};

}  // namespace

Company gather(const Place& place, const Options& options, const transports::Blob& record) {
  return Gathering(place, options).run(record);
}

engine::Failure refuse_all(const Place& place, const Options& options,
                           const engine::Failure& failure, base::TimePoint until) {
  Gathering gathering(place, options);
  gathering.end_with(failure, until);
  try {
    gathering.run({});
  } catch (const Error& error) {
    return {static_cast<Errc>(error.code().value()), error.what()};
  }
  return failure;
}

}  // namespace rondo::rendezvous
