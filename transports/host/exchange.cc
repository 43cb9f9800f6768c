// SPDX-License-Identifier: Apache-2.0
//
// The grammar of the Unix socket between two ranks, each message in one packet:
//   connection  = hello challenge proof verdict descriptors*2 ...   ; handshake: base/handshake.cc
//   descriptors = "rondoseg"            ; with two descriptors, in the order of Offer::descriptors
//   end         = "rondoend" text       ; instead of descriptors: why the sender gives up
// Each end sends its descriptors as soon as the other has proved itself: the acceptor after its
// verdict, the connector when it has read the verdict. What follows belongs to the transport.
#include "transports/host/exchange.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace rondo::host {
namespace {

constexpr std::string_view descriptors_magic = "rondoseg", end_magic = "rondoend";
constexpr std::size_t longest_message = 1024, longest_text = 900;
constexpr milliseconds longest_pause{50};

std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool begins_with(std::span<const std::byte> message, std::string_view magic) noexcept {
  return message.size() >= magic.size() &&
         std::ranges::equal(message.first(magic.size()), bytes_of(magic));
}

}  // namespace

Exchange::Exchange(const Offer& own, base::FileDescriptor socket, int peer, base::TimePoint now)
    : own_(own),
      socket_(std::move(socket)),
      rank_(peer),
      begun_(now),
      handshake_(base::HandshakeDriver::connector({.purpose = base::Purpose::memory,
                                                   .rank = static_cast<std::uint32_t>(own.rank),
                                                   .size = static_cast<std::uint32_t>(own.size),
                                                   .job = own.job},
                                                  static_cast<std::uint32_t>(peer), own.secret)) {
  if (same_user())
    say(handshake_.output());
  else
    end("it belongs to another user, and there is no job secret", Errc::authentication);
}

Exchange::Exchange(const Offer& own, base::FileDescriptor socket, base::TimePoint now)
    : own_(own),
      socket_(std::move(socket)),
      begun_(now),
      handshake_(
          base::HandshakeDriver::acceptor(static_cast<std::uint32_t>(own.rank), own.secret)) {
  if (!same_user())
    end("it belongs to another user, and there is no job secret", Errc::authentication);
}

void Exchange::go_on(const Wanted& wanted) {
  next_try_ = base::TimePoint::max();
  if (unsent_) send_descriptors();
  while (state_ != State::met && state_ != State::ended && step(wanted)) {
  }
}

// Without a secret, the user is the only proof of who the peer is.
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

bool Exchange::step(const Wanted& wanted) {
  if (taken_) return false;  // what follows belongs to the transport
  std::array<std::byte, longest_message> buffer;
  // Only a peer that has proved itself may send descriptors.
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
    if (handshake_.awaits() != 0)
      take_handshake(message, wanted);
    else
      take_descriptors(std::move(packet), message);
  } catch (const Error& error) {
    end(error.what(), Errc::rendezvous);
  }
  return true;
}

base::Verdict Exchange::judge(const base::Acceptor& claimed, const Wanted& wanted) const {
  const base::Claim& claim = claimed.claim();
  if (claim.size != static_cast<std::uint32_t>(own_.size)) return base::Verdict::bad_size;
  if (claim.job != own_.job || claim.purpose != base::Purpose::memory)
    return base::Verdict::wrong_job;
  if (!claimed.meant_for_this_rank() || claim.rank >= claim.size) return base::Verdict::bad_rank;
  // The end with the higher rank connects.
  if (claim.rank <= static_cast<std::uint32_t>(own_.rank)) return base::Verdict::bad_rank;
  return wanted(static_cast<int>(claim.rank)) ? base::Verdict::welcome
                                              : base::Verdict::duplicate_link;
}

void Exchange::take_handshake(std::span<const std::byte> message, const Wanted& wanted) {
  handshake_.take(message, [&](const base::Acceptor& claimed) { return judge(claimed, wanted); });
  if (!handshake_.output().empty()) say(handshake_.output());
  if (handshake_.awaits() != 0) return;
  if (!handshake_.accepted()) {
    const bool secrets = handshake_.code() == Errc::authentication;
    return end(handshake_.why(), secrets ? Errc::authentication : Errc::rendezvous);
  }
  if (state_ == State::ended) return;
  if (rank_ < 0) rank_ = static_cast<int>(handshake_.claim().rank);
  send_descriptors();
}

void Exchange::send_descriptors() {
  state_ = State::proved;
  const int error = send_packet(socket_.get(), bytes_of(descriptors_magic), own_.descriptors);
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

// Waits, because other processes of this user free descriptors as they receive what is sent to
// them.
void Exchange::try_later(int error) {
  shortage_ = error;
  next_try_ = base::after(base::Clock::now(), pause_);
  pause_ = std::min(longest_pause, pause_ * 2);
}

void Exchange::take_descriptors(Packet packet, std::span<const std::byte> message) {
  if (begins_with(message, end_magic)) {
    std::string text;
    for (const std::byte byte : message.subspan(end_magic.size())) {
      const auto letter = std::to_integer<unsigned char>(byte);
      text.push_back(letter < 0x20 || letter == 0x7f ? ' ' : static_cast<char>(letter));
    }
    return end(std::move(text), Errc::aborted);
  }
  if (message.size() != descriptors_magic.size() || !begins_with(message, descriptors_magic))
    return end("it sent something else than its descriptors", Errc::rendezvous);
  if (packet.cut || !packet.descriptors[0] || !packet.descriptors[1])
    return end("its message came without its two descriptors", Errc::rendezvous);
  own_.receive(rank_, std::move(packet.descriptors));
  taken_ = true;
  conclude();
}

Peer Exchange::take() {
  const PeerProcess process = process_behind(socket_.get());
  return {rank_, std::move(socket_), process};
}

}  // namespace rondo::host
