// SPDX-License-Identifier: Apache-2.0
//
// What tells the others of an allocation, one packet with one descriptor:
//   memory = "rondomem" slot:u32 generation:u32 bytes:u64
// A slot is used again with the next generation once its memory has been freed; that it was freed is not told.
#include "transports/shm/exports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include <rondo/error.h>

#include "base/bytes.h"
#include "transports/shm/packet.h"

namespace rondo {
namespace {

constexpr std::uint64_t memory_magic = 0x6d656d6f646e6f72;  // "rondomem"
// A peer that counts its slots higher is not believed.
constexpr std::uint32_t most_slots = 1u << 20;

}  // namespace

std::array<std::byte, memory_message_bytes> encode(const MemoryMessage& message) {
  std::array<std::byte, memory_message_bytes> bytes;
  store_little(bytes.data(), memory_magic);
  store_little(bytes.data() + 8, message.slot);
  store_little(bytes.data() + 12, message.generation);
  store_little(bytes.data() + 16, message.bytes);
  return bytes;
}

std::optional<MemoryMessage> decode_memory_message(std::span<const std::byte> bytes) {
  if (bytes.size() != memory_message_bytes || load_little<std::uint64_t>(bytes.data()) != memory_magic)
    return std::nullopt;
  const MemoryMessage message{load_little<std::uint32_t>(bytes.data() + 8),
                              load_little<std::uint32_t>(bytes.data() + 12),
                              load_little<std::uint64_t>(bytes.data() + 16)};
  if (message.slot >= most_slots || message.generation == 0 || message.bytes == 0) return std::nullopt;
  return message;
}

class ShmExports::Owned final : public Allocation {
 public:
  Owned(std::shared_ptr<ShmExports> exports, std::size_t bytes)
      : exports_(std::move(exports)), bytes_(bytes) {
    FileDescriptor memory = make_shared_memory(bytes);
    mapping_ = Mapping(memory.get(), bytes, Mapping::Access::write);
    exports_->insert(begin(), bytes, std::move(memory));
  }
  // The others may keep their mappings for a while: the pages must go now.
  // A child that was forked has a copy of this object, and no say in the memory.
  ~Owned() override {
    if (::getpid() != process_) return;
    exports_->remove(begin());
    mapping_.discard();
  }
  std::span<std::byte> memory() const noexcept override { return {mapping_.data(), bytes_}; }

 private:
  std::uintptr_t begin() const noexcept { return reinterpret_cast<std::uintptr_t>(mapping_.data()); }

  std::shared_ptr<ShmExports> exports_;
  std::size_t bytes_;
  Mapping mapping_;
  pid_t process_ = ::getpid();
};

std::unique_ptr<Allocation> ShmExports::allocate(std::shared_ptr<ShmExports> exports, std::size_t bytes) {
  return std::make_unique<Owned>(std::move(exports), bytes);
}

void ShmExports::close() noexcept {
  const std::lock_guard lock(mutex_);
  sockets_.clear();
  for (Live& one : live_) one.memory.reset();
  ++version_;
}

void ShmExports::insert(std::uintptr_t begin, std::size_t bytes, FileDescriptor memory) {
  const std::lock_guard lock(mutex_);
  // All that can throw comes first.
  live_.reserve(live_.size() + 1);
  free_.reserve(generations_.size() + 1);
  if (free_.empty()) {
    if (generations_.size() == most_slots)
      throw Error(Errc::system, fmt::format("there are {} allocations already: free some", most_slots));
    generations_.push_back(0);
    free_.push_back(static_cast<std::uint32_t>(generations_.size() - 1));
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  std::uint32_t& generation = generations_[slot];
  generation = generation == UINT32_MAX ? 1 : generation + 1;
  const auto place = std::ranges::upper_bound(live_, begin, {}, &Live::begin);
  tell(*live_.insert(place, Live{begin, bytes, slot, generation, 0, std::move(memory)}));
  live_count_ = live_.size();
  ++version_;
}

void ShmExports::remove(std::uintptr_t begin) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::lower_bound(live_, begin, {}, &Live::begin);
  free_.push_back(found->slot);  // insert() has made room for it
  live_.erase(found);
  live_count_ = live_.size();
  ++version_;
}

// Goes on where the last attempt found a socket full. True when all have been told; a peer that is gone counts as told.
bool ShmExports::tell(Live& live) noexcept {
  if (!live.memory) return true;
  const auto message = encode(MemoryMessage{live.slot, live.generation, live.bytes});
  const std::array<int, 1> descriptor{live.memory.get()};
  for (; live.told < sockets_.size(); ++live.told) {
    const int error = send_packet(sockets_[live.told], message, descriptor);
    if (error != 0 && error != EPIPE && error != ECONNRESET && error != ENOTCONN) return false;
  }
  live.memory.reset();
  return true;
}

ShmExports::Known ShmExports::look_up(std::uintptr_t begin, std::uintptr_t end) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t version = version_.load();
  const auto after = std::ranges::upper_bound(live_, begin, {}, &Live::begin);
  if (after == live_.begin()) return {};
  Live& one = *std::prev(after);
  if (begin - one.begin > one.bytes || end - one.begin > one.bytes || !tell(one)) return {};
  return {version, one.begin, one.begin + one.bytes, one.slot, one.generation};
}

// The answers of the last few times hold until something is allocated or freed.
WindowPlace ShmExports::find(const void* data, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(data), end = begin + bytes;
  if (data == nullptr || end < begin || live_count_.load(std::memory_order_acquire) == 0) return {};
  Known& known = known_[(begin >> 12) * 0x9e3779b97f4a7c15u >> 61];
  if (known.version != version_.load(std::memory_order_acquire) || begin < known.begin || end > known.end) {
    known = look_up(begin, end);
    if (known.version == 0) return {};
  }
  return {known.slot, known.generation, begin - known.begin};
}

}  // namespace rondo
