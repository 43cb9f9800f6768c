// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/handshake.h"
#include "catch.h"
#include "shm_helpers.h"
#include "transports/host/address.h"
#include "transports/host/packet.h"
#include "transports/shm/ring.h"

namespace rondo::testing {

inline constexpr milliseconds patience{20'000};

inline shm::Options options_of(int rank, int size) {
  shm::Options options;
  options.rank = rank;
  options.size = size;
  options.host = "one host";
  options.deadline = base::after(base::Clock::now(), patience);
  return options;
}

// Plays rank 1 of 2 and sends whatever bytes the test wants.
class Impostor {
 public:
  explicit Impostor(const transports::Transport& victim) {
    address_ =
        host::encode(host::Address{"one host", "rondo-test-impostor-" + std::to_string(::getpid()),
                                   static_cast<std::uint32_t>(::geteuid()), 0});
    listener_ = host::listen_at_name(host::decode_address(address_)->name, 8);
    socket_ = host::connect_to_name(host::decode_address(victim.address())->name);
  }
  const transports::Blob& address() const { return address_; }
  int socket() const { return socket_.get(); }
  void close() { socket_.reset(); }
  template <class Array>
  Array await() {
    Array array{};
    pollfd ready{socket_.get(), POLLIN, 0};
    ::poll(&ready, 1, 20'000);
    host::receive_packet(socket_.get(), array, true);
    return array;
  }
  base::Verdict shake_hands(std::string_view secret = {}) {
    const base::Claim claim{.purpose = base::Purpose::memory, .rank = 1, .size = 2, .job = shm_job};
    base::Initiator initiator(claim, 0, secret);
    host::send_packet(socket_.get(), initiator.hello());
    host::send_packet(socket_.get(), initiator.answer(await<base::ChallengeBytes>()));
    return base::Initiator::read_verdict(await<base::VerdictBytes>());
  }
  void show(int segment) { show(segment, bell_.get()); }
  void show(int segment, int bell) {
    const std::array<int, 2> descriptors{segment, bell};
    host::send_packet(socket_.get(), std::as_bytes(std::span("rondoseg", 8)), descriptors);
  }

 private:
  transports::Blob address_;
  base::FileDescriptor listener_, socket_;
  base::FileDescriptor bell_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

inline base::FileDescriptor memory_of(std::size_t bytes, int seals) {
  base::FileDescriptor memory(::memfd_create("test", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  REQUIRE(::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0);
  REQUIRE(::fcntl(memory.get(), F_ADD_SEALS, seals) == 0);
  return memory;
}

// Writes a header to the start of a ring, with all its words. Returns its end.
inline std::size_t put_header(std::byte* ring, const transports::HeaderBytes& header) {
  shm::first_word(ring) = shm::header_mark | shm::every_word;
  std::ranges::copy(header, ring + sizeof(shm::RingWord));
  return shm::header_bytes(shm::every_word);
}

}  // namespace rondo::testing
