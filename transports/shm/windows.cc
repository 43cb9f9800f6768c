// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <rondo/error.h>

#include "base/log.h"

namespace rondo {

namespace {
constexpr int most_messages = 1024;  // at once
}

void ShmImports::take_messages() {
  for (int i = 0; i < most_messages && !peer_.ended; ++i) {
    std::array<std::byte, 64> buffer;
    Packet packet = receive_packet(peer_.socket.get(), buffer, true);
    if (packet.error == EAGAIN) return;
    if (packet.error != 0 || packet.ended) {
      peer_.ended = peer_.busy = true;
      return;
    }
    const auto bytes = std::span<const std::byte>(buffer).first(packet.bytes);
    learn(std::move(packet), bytes);
  }
}

// What cannot be used is left out: map() finds nothing then, and says so to its caller.
void ShmImports::learn(Packet packet, std::span<const std::byte> bytes) {
  const auto message = decode_memory_message(bytes);
  const FileDescriptor& memory = packet.descriptors[0];
  std::string defect;
  if (!message)
    defect = "the message is not what it should be";
  else if (!memory)
    defect = "its descriptor could not be received: the limit of open files (ulimit -n) may be too low";
  else
    defect = defect_of_memory(memory.get(), message->bytes);
  try {
    if (defect.empty()) {
      if (slots_.size() <= message->slot) slots_.resize(message->slot + 1);
      Slot& slot = slots_[message->slot];
      if (slot.mapping) retired_[next_retired_++ % retired_.size()] = std::exchange(slot.mapping, Mapping());
      slot.generation = message->generation;
      slot.mapping = Mapping(memory.get(), message->bytes, Mapping::Access::write);
      return;
    }
  } catch (const std::exception& error) {
    defect = error.what();
  }
  log_line(LogLevel::warning, fmt::format("memory of rank {} cannot be reached: {}", peer_.rank, defect));
}

const ShmImports::Slot* ShmImports::find(WindowPlace place) const noexcept {
  if (place.slot >= slots_.size()) return nullptr;
  const Slot& slot = slots_[place.slot];
  return slot.generation == place.generation && slot.mapping ? &slot : nullptr;
}

std::byte* ShmImports::map(WindowPlace place, std::size_t bytes) {
  if (place.generation == 0) return nullptr;
  const Slot* slot = find(place);
  if (slot == nullptr) {
    take_messages();
    slot = find(place);
  }
  if (slot == nullptr || place.offset > slot->mapping.size() || bytes > slot->mapping.size() - place.offset)
    return nullptr;
  return slot->mapping.data() + place.offset;
}

ShmWindows::ShmWindows(int rank, const Segment& own,
                       std::span<const std::unique_ptr<ShmNeighbourState>> peers,
                       std::shared_ptr<ShmExports> exports)
    : rank_(rank), own_(own), peers_(peers), exports_(std::move(exports)), ranks_{rank} {
  for (const auto& peer : peers_) {
    ranks_.push_back(peer->rank);
    imports_.emplace_back(*peer);
  }
  std::ranges::sort(ranks_);
}

// peers_.size() for a rank that is none of them.
std::size_t ShmWindows::index_of(int rank) const noexcept {
  const auto of = [](const std::unique_ptr<ShmNeighbourState>& peer) { return peer->rank; };
  const auto found = std::ranges::lower_bound(peers_, rank, {}, of);
  return found != peers_.end() && (*found)->rank == rank ? static_cast<std::size_t>(found - peers_.begin())
                                                         : peers_.size();
}

std::byte* ShmWindows::area(int rank) const noexcept {
  if (rank == rank_) return own_.area();
  const std::size_t index = index_of(rank);
  return index < peers_.size() ? peers_[index]->theirs.area() : nullptr;
}

std::byte* ShmWindows::map(int rank, WindowPlace place, std::size_t bytes) {
  const std::size_t index = index_of(rank);
  return index < peers_.size() ? imports_[index].map(place, bytes) : nullptr;
}

void ShmWindows::notify() noexcept {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (const auto& peer : peers_) peer->ring();
}

}  // namespace rondo
