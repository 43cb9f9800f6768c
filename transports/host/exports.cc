// SPDX-License-Identifier: Apache-2.0
//
// Each peer gets this rank's memory file once, in one packet with one descriptor:
//   memory = "rondomem"
#include "transports/host/exports.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include <rondo/error.h>

#include "transports/host/packet.h"

namespace rondo::host {
namespace {

constexpr std::size_t huge_page = std::size_t{2} << 20;
// For all ranks of a communicator together: the descriptors in flight of each user are bounded.
constexpr std::size_t most_in_flight = 256;

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t alignment_of(std::size_t bytes) noexcept {
  return bytes >= huge_page ? huge_page : base::page_bytes();
}

// No two allocations share a page: remove() gives whole pages back.
std::size_t room_of(std::size_t bytes) noexcept {
  return round_up(bytes, base::page_bytes());
}

}  // namespace

class Exports::Owned final : public transports::Allocation {
 public:
  Owned(std::shared_ptr<Exports> exports, std::byte* data, std::size_t bytes)
      : Allocation({data, bytes}), exports_(std::move(exports)) {}
  // A child that was forked has a copy of this object, and no say in the memory.
  ~Owned() override {
    if (::getpid() == process_) exports_->remove(reinterpret_cast<std::uintptr_t>(memory().data()));
  }

 private:
  std::shared_ptr<Exports> exports_;
  pid_t process_ = ::getpid();
};

Exports::Exports(std::atomic<std::uint32_t>& opened, std::span<const ExportPeer> peers)
    : opened_(&opened) {
  for (const ExportPeer& peer : peers) peers_.push_back({peer, false});
}

std::unique_ptr<transports::Allocation> Exports::allocate(const std::shared_ptr<Exports>& exports,
                                                          std::size_t bytes) {
  std::byte* const data = exports->insert(bytes);
  if (data == nullptr) return nullptr;
  try {
    return std::make_unique<Owned>(exports, data, bytes);
  } catch (...) {
    exports->remove(reinterpret_cast<std::uintptr_t>(data));
    throw;
  }
}

void Exports::close() noexcept {
  const std::lock_guard lock(mutex_);
  opened_ = nullptr;
  peers_.clear();
  memory_.reset();
  halted_ = true;
  ++version_;
}

// Null when no extent has room, and none may be opened.
std::byte* Exports::insert(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (opened_ == nullptr || bytes > Extent(Extent::count - 1).bytes()) return nullptr;
  const std::size_t room = room_of(bytes);
  live_.reserve(live_.size() + 1);  // all that can throw comes first
  for (std::uint32_t i = 0; i < Extent::count; ++i) {
    if (Extent(i).bytes() < room) continue;
    if (!extents_[i] && !open(i)) return nullptr;
    const std::size_t offset = take_range(free_[i], room);
    if (offset == SIZE_MAX) continue;
    std::byte* const data = extents_[i].data() + offset;
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    live_.insert(std::ranges::upper_bound(live_, begin, {}, &Live::begin), Live{begin, bytes, i});
    live_count_ = live_.size();
    ++version_;
    return data;
  }
  return nullptr;
}

// False when the limit of file sizes forbids it.
bool Exports::open(std::uint32_t index) {
  const Extent extent(index);
  if (!base::fits_file_limit(extent.end())) return false;
  if (!memory_) memory_ = base::make_growing_memory();
  if (file_bytes_ < extent.end()) base::grow_memory(memory_.get(), extent.end());
  file_bytes_ = std::max(file_bytes_, extent.end());
  base::Mapping mapping(memory_.get(), extent.bytes(), base::Mapping::Access::write,
                        extent.offset());
  free_[index].emplace(0, extent.bytes());
  extents_[index] = std::move(mapping);
  opened_->fetch_or(extent.bit(), std::memory_order_release);
  return true;
}

// The first range with room; SIZE_MAX when there is none.
std::size_t Exports::take_range(Ranges& free, std::size_t bytes) {
  for (auto one = free.begin(); one != free.end(); ++one) {
    const auto [begin, length] = *one;
    const std::size_t offset = round_up(begin, alignment_of(bytes));
    const std::size_t before = offset - begin;
    if (before > length || bytes > length - before) continue;
    const std::size_t behind = length - before - bytes;
    if (behind != 0) free.emplace(offset + bytes, behind);
    if (before != 0)
      one->second = before;
    else
      free.erase(one);
    return offset;
  }
  return SIZE_MAX;
}

void Exports::give_range(Ranges& free, std::size_t offset, std::size_t bytes) {
  auto next = free.lower_bound(offset);
  if (next != free.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free.erase(next);
  }
  if (next != free.begin())
    if (const auto before = std::prev(next); before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  free.emplace_hint(next, offset, bytes);
}

// The pages go back to the system before the range may be used again.
void Exports::remove(std::uintptr_t begin) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::lower_bound(live_, begin, {}, &Live::begin);
  const Live one = *found;
  live_.erase(found);
  live_count_ = live_.size();
  ++version_;
  const std::size_t room = room_of(one.bytes);
  const std::size_t offset = begin - reinterpret_cast<std::uintptr_t>(extents_[one.extent].data());
  extents_[one.extent].discard(offset, room);
  // A peer that does not know yet that the communicator has failed may still store there.
  if (halted_) return;
  try {
    give_range(free_[one.extent], offset, room);
  } catch (...) {  // no memory for the list: addresses are lost, and no pages
  }
}

bool Exports::is_everywhere(std::uint32_t extent) noexcept {
  const std::uint32_t bit = Extent(extent).bit();
  if ((everywhere_ & bit) != 0) return true;
  std::uint32_t mapped = UINT32_MAX;
  for (const Peer& peer : peers_) mapped &= peer.mapped();
  everywhere_ |= mapped;
  return (everywhere_ & bit) != 0;
}

// Sends the descriptor to peers that do not have it, a few at a time: the next ones get it when
// these have mapped an extent.
void Exports::tell() noexcept {
  std::size_t may_send = std::max<std::size_t>(1, most_in_flight / (peers_.size() + 1));
  for (const Peer& peer : peers_)
    if (peer.told && peer.mapped() == 0 && may_send > 0) --may_send;
  const std::array<int, 1> descriptor{memory_.get()};
  const auto message = std::as_bytes(std::span(memory_magic.data(), memory_magic.size()));
  for (Peer& peer : peers_) {
    if (peer.told) continue;
    if (may_send == 0) return;
    const int error = send_packet(peer.shared.socket, message, descriptor);
    // Whatever failed, it is tried again when the memory is next used.
    if (error != 0 && error != EPIPE && error != ECONNRESET && error != ENOTCONN) return;
    peer.told = true;
    peer.shared.mine->fetch_or(descriptor_sent, std::memory_order_release);
    --may_send;
  }
}

Exports::Known Exports::look_up(std::uintptr_t begin, std::uintptr_t end) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t version = version_.load();
  const auto after = std::ranges::upper_bound(live_, begin, {}, &Live::begin);
  if (after == live_.begin()) return {};
  const Live& one = *std::prev(after);
  if (begin - one.begin > one.bytes || end - one.begin > one.bytes) return {};
  if (!is_everywhere(one.extent)) {
    tell();
    return {};
  }
  const auto extent = reinterpret_cast<std::uintptr_t>(extents_[one.extent].data());
  return {version, one.begin, one.begin + one.bytes, one.extent, one.begin - extent};
}

// The answers of the last few times hold until something is allocated or freed.
transports::WindowPlace Exports::find(const void* data, std::size_t bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(data), end = begin + bytes;
  if (data == nullptr || end < begin || live_count_.load(std::memory_order_acquire) == 0) return {};
  Known& known = known_[(begin >> 12) * 0x9e3779b97f4a7c15u >> 61];
  if (known.version != version_.load(std::memory_order_acquire) || begin < known.begin ||
      end > known.end) {
    known = look_up(begin, end);
    if (known.version == 0) return {};
  }
  return {known.extent, 1, known.offset + (begin - known.begin)};
}

}  // namespace rondo::host
