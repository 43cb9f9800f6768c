// SPDX-License-Identifier: Apache-2.0
//
// Two kinds of packets, each with one descriptor:
//   memory = "rondomem"           ; of all that the peer allocates (host/exports.cc)
//   passed = "rondopas" message   ; for a DescriptorSink
#include "transports/shm/windows.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <rondo/error.h>

#include "base/log.h"

namespace rondo::shm {

namespace {
constexpr int most_messages = 1024;  // at once
constexpr milliseconds retry_interval{100};
constexpr std::string_view passed_magic = "rondopas";

std::span<const std::byte> bytes_of(std::string_view text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

void ShmImports::take_messages() {
  for (int i = 0; i < most_messages && !peer_.ended; ++i) {
    std::array<std::byte, 64> buffer;
    host::Packet packet = host::receive_packet(peer_.socket.get(), buffer, true);
    if (packet.error == EAGAIN) return;
    // A shortage leaves the message in the socket.
    if (base::is_shortage(packet.error)) {
      next_try_ = base::Clock::now() + retry_interval;
      left_over_ = true;
      return complain(host::describe_shortage(packet.error));
    }
    if (packet.error != 0 || packet.ended) {
      peer_.ended = peer_.busy = true;
      return;
    }
    const auto bytes = std::span<const std::byte>(buffer).first(packet.bytes);
    learn(std::move(packet), bytes);
  }
}

void ShmImports::take_left_over() {
  if (base::Clock::now() < next_try_) return;
  left_over_ = false;
  take_messages();
}

void ShmImports::learn(host::Packet packet, std::span<const std::byte> bytes) {
  constexpr std::size_t most_bytes = passed_magic.size() + host::most_passed_bytes;
  if (packet.descriptors[0] && bytes.size() <= most_bytes && bytes.size() >= passed_magic.size() &&
      std::ranges::equal(bytes.first(passed_magic.size()), bytes_of(passed_magic))) {
    if (sink_ != nullptr)
      sink_->passed(peer_.rank, bytes.subspan(passed_magic.size()),
                    std::move(packet.descriptors[0]));
    return;
  }
  if (!std::ranges::equal(bytes, bytes_of(host::memory_magic)) || !packet.descriptors[0])
    return complain("it sent an invalid message");
  if (!memory_) memory_ = std::move(packet.descriptors[0]);
}

// Maps what is missing and tells the peer, in this rank's segment, which extents are mapped.
void ShmImports::map_more() {
  if (next_try_ != base::TimePoint{} && base::Clock::now() < next_try_) return;
  if (!memory_) take_messages();
  if (!memory_) return;
  const std::uint32_t wanted = peer_.theirs.head().extents.load(std::memory_order_acquire);
  try {
    for (std::uint32_t i = 0; i < host::Extent::count; ++i) {
      const host::Extent extent(i);
      if ((wanted & ~mapped_ & extent.bit()) == 0) continue;
      if (const std::string defect = base::defect_of_growing_memory(memory_.get(), extent.end());
          !defect.empty())
        throw Error(Errc::corrupt, defect);
      extents_[i] = base::Mapping(memory_.get(), extent.bytes(), base::Mapping::Access::write,
                                  extent.offset());
      mapped_ |= extent.bit();
    }
  } catch (const std::exception& error) {
    next_try_ = base::Clock::now() + retry_interval;
    complain(error.what());
  }
  peer_.mine.extents.fetch_or(mapped_, std::memory_order_release);
}

void ShmImports::complain(std::string_view why) {
  log_.line(base::LogLevel::warning, fmt::format("memory that rank {} has allocated cannot be "
                                                 "mapped: {}; operations on it copy through slots",
                                                 peer_.rank, why));
}

// Null for an extent that is not mapped. A correct peer does not name it before this rank has told
// it that the extent is mapped.
std::byte* ShmImports::map(transports::WindowPlace place, std::size_t bytes) const noexcept {
  if (place.generation == 0 || place.slot >= extents_.size()) return nullptr;
  const base::Mapping& extent = extents_[place.slot];
  if (place.offset > extent.size() || bytes > extent.size() - place.offset) return nullptr;
  return extent ? extent.data() + place.offset : nullptr;
}

namespace {

std::vector<int> with_peers(int rank, std::span<const std::unique_ptr<ShmNeighbourState>> peers) {
  std::vector<int> ranks{rank};
  for (const auto& peer : peers) ranks.push_back(peer->rank);
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

ShmWindows::ShmWindows(int rank, const Segment& own,
                       std::span<const std::unique_ptr<ShmNeighbourState>> peers,
                       std::shared_ptr<host::Exports> exports)
    : Windows(with_peers(rank, peers)),
      rank_(rank),
      own_(own),
      peers_(peers),
      exports_(std::move(exports)),
      all_light_(std::ranges::all_of(peers, [](const auto& peer) { return peer->light(); })) {
  for (const auto& peer : peers_) imports_.emplace_back(*peer);
  await(transports::every_wake_bit);
}

// The result is peers_.size() for a rank that is not a peer.
std::size_t ShmWindows::index_of(int rank) const noexcept {
  const auto of = [](const std::unique_ptr<ShmNeighbourState>& peer) { return peer->rank; };
  const auto found = std::ranges::lower_bound(peers_, rank, {}, of);
  return found != peers_.end() && (*found)->rank == rank
             ? static_cast<std::size_t>(found - peers_.begin())
             : peers_.size();
}

std::byte* ShmWindows::area(int rank) const noexcept {
  if (rank == rank_) return own_.area();
  const std::size_t index = index_of(rank);
  return index < peers_.size() ? peers_[index]->theirs.area() : nullptr;
}

std::byte* ShmWindows::map(int rank, transports::WindowPlace place, std::size_t bytes) {
  const std::size_t index = index_of(rank);
  return index < peers_.size() ? imports_[index].map(place, bytes) : nullptr;
}

int ShmWindows::pass_descriptor(int rank, std::span<const std::byte> message, int descriptor) {
  const std::size_t index = index_of(rank);
  if (index == peers_.size() || message.size() > host::most_passed_bytes) return EINVAL;
  std::array<std::byte, passed_magic.size() + host::most_passed_bytes> packet;
  std::ranges::copy(message, std::ranges::copy(bytes_of(passed_magic), packet.begin()).out);
  return host::send_packet(peers_[index]->socket.get(),
                           std::span(packet).first(passed_magic.size() + message.size()),
                           std::array{descriptor});
}

bool ShmWindows::has_died(int rank) const noexcept {
  const std::size_t index = index_of(rank);
  if (index == peers_.size()) return false;
  pollfd socket{peers_[index]->socket.get(), POLLRDHUP, 0};
  // A peer says that it leaves before it closes the socket.
  return ::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLHUP | POLLRDHUP)) != 0 &&
         !peers_[index]->left();
}

void ShmWindows::set_sink(host::DescriptorSink* sink) noexcept {
  sink_ = sink;
  for (ShmImports& one : imports_) one.set_sink(sink);
}

void ShmWindows::await(std::uint64_t ranks) noexcept {
  const SegmentHead& head = own_.head();
  own_.head().awaited.store(ranks, std::memory_order_relaxed);
  if (head.sleeping.load(std::memory_order_relaxed) != 0) head.fence_before_look();
}

void ShmWindows::notify() noexcept {
  ShmNeighbourState::fence(all_light_);
  for (const auto& peer : peers_) peer->ring_if_awaited(transports::wake_bit(rank_));
}

}  // namespace rondo::shm
