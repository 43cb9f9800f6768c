// SPDX-License-Identifier: Apache-2.0
//
// What goes over the Unix socket of two ranks, each message in one packet:
//   connection = hello challenge proof verdict segment*2 memory*  ; handshake: base/handshake.cc
//   segment    = "rondoseg"       ; with two descriptors: the segment and the bell
//   end        = "rondoend" text  ; instead of a segment: why the sender gives up
//   memory     = see exports.cc
// Both ends send their segment as soon as the other has proved itself: the acceptor behind its
// verdict, the initiator when it reads that.
#include "transports/host/exchange.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace rondo::host {
namespace {

constexpr std::string_view segment_magic = "rondoseg", end_magic = "rondoend";
constexpr std::size_t longest_message = 1024, longest_text = 900;
constexpr milliseconds longest_pause{50};

std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A pipe without a reader would kill whoever rings.
bool is_bell(const base::FileDescriptor& descriptor) {
  std::array<char, 64> target{};
  const std::string path = fmt::format("/proc/self/fd/{}", descriptor.get());
  const auto length = ::readlink(path.c_str(), target.data(), target.size());
  if (length > 0)
    return std::string_view(target.data(), static_cast<std::size_t>(length)) ==
           "anon_inode:[eventfd]";
  // Without /proc: a file without a type is of the same kind as an eventfd, and none of that kind
  // sends SIGPIPE.
  struct stat status {};
  return ::fstat(descriptor.get(), &status) == 0 && (status.st_mode & S_IFMT) == 0;
}

bool begins_with(std::span<const std::byte> message, std::string_view magic) noexcept {
  return message.size() >= magic.size() &&
         std::ranges::equal(message.first(magic.size()), bytes_of(magic));
}

template <class Array>
std::optional<Array> exactly(std::span<const std::byte> message) noexcept {
  Array array;
  if (message.size() != array.size()) return std::nullopt;
  std::ranges::copy(message, array.begin());
  return array;
}

}  // namespace

Exchange::Exchange(const Offer& own, base::FileDescriptor socket, int peer, base::TimePoint now)
    : own_(own), socket_(std::move(socket)), rank_(peer), begun_(now), step_(Step::challenge) {
  const base::Claim claim{.purpose = base::Purpose::memory,
                          .rank = static_cast<std::uint32_t>(own.rank),
                          .size = static_cast<std::uint32_t>(own.size),
                          .job = own.job};
  initiator_.emplace(claim, static_cast<std::uint32_t>(peer), own.secret);
  if (same_user())
    say(initiator_->hello());
  else
    end("it belongs to another user, and there is no job secret", Errc::authentication);
}

Exchange::Exchange(const Offer& own, base::FileDescriptor socket, base::TimePoint now)
    : own_(own), socket_(std::move(socket)), begun_(now), step_(Step::hello) {
  acceptor_.emplace(static_cast<std::uint32_t>(own.rank), own.secret);
  if (!same_user())
    end("it belongs to another user, and there is no job secret", Errc::authentication);
}

// Without a secret the user is all that a process can be known by.
bool Exchange::same_user() const noexcept {
  return !own_.secret.empty() || process_behind(socket_.get()).user == ::geteuid();
}

void Exchange::end(std::string why, std::optional<Errc> code) {
  state_ = State::ended;
  why_ = std::move(why);
  code_ = code;
}

void Exchange::say(std::span<const std::byte> message) {
  if (send_packet(socket_.get(), message) != 0) end("it closed the connection");
}

void Exchange::give_up(std::string_view why) const noexcept {
  if (state_ != State::proved) return;
  std::array<std::byte, end_magic.size() + longest_text> message;
  const auto text = bytes_of(why.substr(0, longest_text));
  std::ranges::copy(bytes_of(end_magic), message.begin());
  std::ranges::copy(text, message.begin() + end_magic.size());
  send_packet(socket_.get(), std::span(message).first(end_magic.size() + text.size()));
}

bool Exchange::step(Wanted wanted) {
  if (taken_) return false;  // what follows is not for this object
  std::array<std::byte, longest_message> buffer;
  // Descriptors are let in only from a peer that has proved itself.
  Packet packet = receive_packet(socket_.get(), buffer, state_ == State::proved);
  if (packet.error == EAGAIN) return false;
  if (base::is_shortage(packet.error)) {
    try_later(packet.error);
    return false;
  }
  if (packet.error != 0 || packet.ended) {
    end(state_ == State::proved ? "its process has ended" : "it closed the connection");
    return false;
  }
  const auto message = std::span<const std::byte>(buffer).first(packet.bytes);
  try {
    switch (step_) {
      case Step::hello:
        take_hello(message);
        break;
      case Step::challenge:
        take_challenge(message);
        break;
      case Step::proof:
        take_proof(message, wanted);
        break;
      case Step::verdict:
        take_verdict(message);
        break;
      case Step::segment:
        take_segment(std::move(packet), message);
        break;
    }
  } catch (const Error& error) {
    end(error.what(), Errc::rendezvous);
  }
  return true;
}

void Exchange::take_hello(std::span<const std::byte> message) {
  const auto hello = exactly<base::HelloBytes>(message);
  if (!hello)
    return end("what connected is not Rondo: its first message is not a hello", Errc::rendezvous);
  step_ = Step::proof;
  say(acceptor_->challenge(*hello));
}

void Exchange::take_challenge(std::span<const std::byte> message) {
  const auto challenge = exactly<base::ChallengeBytes>(message);
  if (!challenge) return end("what listens there is not Rondo", Errc::rendezvous);
  try {
    step_ = Step::verdict;
    say(initiator_->answer(*challenge));
  } catch (const Error& error) {
    // Zeros tell the acceptor that its own proof was the wrong one.
    send_packet(socket_.get(), base::refused_proof);
    end(error.what(),
        error.code() == Errc::authentication ? Errc::authentication : Errc::rendezvous);
  }
}

base::Verdict Exchange::judge(Wanted wanted) const {
  const base::Claim& claim = acceptor_->claim();
  if (claim.size != static_cast<std::uint32_t>(own_.size)) return base::Verdict::bad_size;
  if (claim.job != own_.job || claim.purpose != base::Purpose::memory)
    return base::Verdict::wrong_job;
  if (!acceptor_->meant_for_this_rank() || claim.rank >= claim.size) return base::Verdict::bad_rank;
  // Whoever has the higher rank connects.
  if (claim.rank <= static_cast<std::uint32_t>(own_.rank)) return base::Verdict::bad_rank;
  return wanted.call(wanted.context, static_cast<int>(claim.rank)) ? base::Verdict::welcome
                                                                   : base::Verdict::duplicate_link;
}

void Exchange::take_proof(std::span<const std::byte> message, Wanted wanted) {
  const auto proof = exactly<base::ProofBytes>(message);
  if (!proof) return end("its proof has a wrong size", Errc::rendezvous);
  const bool proved = acceptor_->version() == base::wire_version && acceptor_->proves(*proof);
  const base::Verdict verdict = proved ? judge(wanted) : acceptor_->refusal();
  say(base::Acceptor::write_verdict(verdict));
  if (state_ == State::ended) return;
  if (verdict != base::Verdict::welcome)
    return end(base::explain(verdict), proved ? Errc::rendezvous : Errc::authentication);
  rank_ = static_cast<int>(acceptor_->claim().rank);
  send_segment();
}

void Exchange::take_verdict(std::span<const std::byte> message) {
  const auto bytes = exactly<base::VerdictBytes>(message);
  if (!bytes) return end("its verdict has a wrong size", Errc::rendezvous);
  const base::Verdict verdict = base::Initiator::read_verdict(*bytes);
  if (verdict == base::Verdict::welcome) return send_segment();
  const bool secrets =
      verdict == base::Verdict::bad_secret || verdict == base::Verdict::secret_needed;
  end(base::explain(verdict), secrets ? Errc::authentication : Errc::rendezvous);
}

void Exchange::send_segment() {
  state_ = State::proved;
  step_ = Step::segment;
  const std::array<int, 2> descriptors{own_.segment, own_.bell};
  const int error = send_packet(socket_.get(), bytes_of(segment_magic), descriptors);
  unsent_ = error != 0;
  if (error == 0) return conclude();
  if (base::is_shortage(error)) return try_later(error);
  const bool gone = error == EPIPE || error == ECONNRESET;
  end(gone ? std::string("its process has ended")
           : fmt::format("cannot send descriptors: {}", std::generic_category().message(error)),
      gone ? Errc::peer_lost : Errc::system);
}

void Exchange::conclude() {
  shortage_ = 0;
  if (taken_ && !unsent_) state_ = State::met;
}

// Other processes of this user free descriptors as they receive what is sent to them.
void Exchange::try_later(int error) {
  shortage_ = error;
  next_try_ = base::after(base::Clock::now(), pause_);
  pause_ = std::min(longest_pause, pause_ * 2);
}

void Exchange::take_segment(Packet packet, std::span<const std::byte> message) {
  if (begins_with(message, end_magic)) {
    std::string text;
    for (const std::byte byte : message.subspan(end_magic.size())) {
      const auto letter = std::to_integer<unsigned char>(byte);
      text.push_back(letter < 0x20 || letter == 0x7f ? ' ' : static_cast<char>(letter));
    }
    return end(std::move(text), Errc::aborted);
  }
  if (message.size() != segment_magic.size() || !begins_with(message, segment_magic))
    return end("it sent something else than its segment", Errc::rendezvous);
  if (packet.cut || !packet.descriptors[0] || !packet.descriptors[1])
    return end("its segment came without its two descriptors", Errc::rendezvous);
  if (!is_bell(packet.descriptors[1])) return end("its bell is no eventfd", Errc::rendezvous);
  const int memory = packet.descriptors[0].get();
  if (std::string defect = defect_of_memory(memory, own_.segment_bytes); !defect.empty())
    return end(std::move(defect), Errc::rendezvous);
  met_.segment = Mapping(memory, own_.segment_bytes, Mapping::Access::read);
  met_.bell = std::move(packet.descriptors[1]);
  taken_ = true;
  conclude();
}

Peer Exchange::take() {
  met_.rank = rank_;
  met_.process = process_behind(socket_.get());
  met_.socket = std::move(socket_);
  return std::move(met_);
}

}  // namespace rondo::host
