// SPDX-License-Identifier: Apache-2.0
//
// A descriptor comes with a message of 8 bytes:
//   export = slot generation           ; 32 bits each, little endian
#include "transports/cuda_ipc/exports.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/bytes.h"
#include "base/shortage.h"

namespace rondo::cuda_ipc {

// The CPU must not touch the memory: the span only says where it lies.
class Exports::Owned final : public transports::Allocation {
 public:
  Owned(std::shared_ptr<Exports> exports, std::shared_ptr<device::Gpus> gpus,
        std::shared_ptr<const device::SharedMemory> memory, std::size_t bytes)
      : exports_(std::move(exports)),
        gpus_(std::move(gpus)),
        memory_(std::move(memory)),
        bytes_(bytes) {}
  ~Owned() override { exports_->remove(memory_->address()); }
  std::span<std::byte> memory() const noexcept override {
    return {reinterpret_cast<std::byte*>(memory_->address()), bytes_};
  }

 private:
  const std::shared_ptr<Exports> exports_;
  const std::shared_ptr<device::Gpus> gpus_;
  std::shared_ptr<const device::SharedMemory> memory_;
  std::size_t bytes_;
};

Exports::Exports(transports::Windows& windows, int rank)
    : windows_(&windows), ranks_(windows.ranks().begin(), windows.ranks().end()) {
  place_ = static_cast<std::size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
  for (const int each : ranks_) tables_.push_back(&table_in(windows.area(each)));
}

std::unique_ptr<transports::Allocation> Exports::allocate(std::shared_ptr<Exports> exports,
                                                          std::shared_ptr<device::Gpus> gpus,
                                                          int ordinal, std::size_t bytes) {
  const device::Gpu& gpu = gpus->gpu(ordinal);
  auto memory = std::make_shared<const device::SharedMemory>(gpu, bytes);
  device::set_to_zero(gpu, memory->address(), memory->bytes());
  exports->insert(memory, bytes, gpu);
  try {
    return std::make_unique<Owned>(exports, std::move(gpus), memory, bytes);
  } catch (...) {
    exports->remove(memory->address());
    throw;
  }
}

void Exports::insert(std::shared_ptr<const device::SharedMemory> memory, std::size_t bytes,
                     const device::Gpu& gpu) {
  device::Uuid uuid{};
  gpu.check(gpu.driver().device_get_uuid(&uuid, gpu.ordinal()), "cuDeviceGetUuid");
  std::array<std::uint64_t, 2> words{};
  static_assert(sizeof words == sizeof uuid.bytes);
  std::memcpy(words.data(), uuid.bytes, sizeof words);
  const std::lock_guard lock(mutex_);
  const auto after = std::ranges::upper_bound(
      live_, memory->address(), {}, [](const Live& live) { return live.memory->address(); });
  Live& live = *live_.insert(after, Live{std::move(memory), bytes});
  if (windows_ == nullptr) return;
  auto& entries = tables_[place_]->exports;
  const auto entry = std::ranges::find_if(entries, [](const ExportEntry& e) {
    return e.generation.load(std::memory_order_relaxed) == 0;
  });
  if (entry == entries.end()) return;
  live.slot = static_cast<std::uint32_t>(entry - entries.begin());
  if (++last_generation_ == 0) ++last_generation_;
  live.generation = last_generation_;
  entry->bytes.store(live.memory->bytes(), std::memory_order_relaxed);
  for (std::size_t i = 0; i < words.size(); ++i)
    entry->gpu[i].store(words[i], std::memory_order_relaxed);
  entry->generation.store(live.generation, std::memory_order_release);
}

// After halt() the entry stays, so nobody lets go of memory that an operation may still use.
void Exports::remove(device::Address address) noexcept {
  Live removed;
  const std::lock_guard lock(mutex_);
  Live* const live = live_at(address);
  removed = std::move(*live);
  live_.erase(live_.begin() + (live - live_.data()));
  if (windows_ == nullptr || halted_ || removed.slot == most_exports) return;
  tables_[place_]->exports[removed.slot].generation.store(0, std::memory_order_release);
}

void Exports::close() noexcept {
  const std::lock_guard lock(mutex_);
  windows_ = nullptr;
}

void Exports::halt() noexcept {
  const std::lock_guard lock(mutex_);
  halted_ = true;
}

// The export that begins at or before the address; null when there is none.
Exports::Live* Exports::live_at(device::Address address) noexcept {
  const auto after = std::ranges::upper_bound(
      live_, address, {}, [](const Live& live) { return live.memory->address(); });
  return after == live_.begin() ? nullptr : &*std::prev(after);
}

std::uint64_t Exports::everyone_else() const noexcept {
  return (UINT64_MAX >> (most_ranks - ranks_.size())) & ~(std::uint64_t{1} << place_);
}

bool Exports::is_everywhere(const Live& live) const noexcept {
  for (std::size_t place = 0; place < tables_.size(); ++place)
    if (place != place_ && tables_[place]->mapped[place_][live.slot].load(
                               std::memory_order_acquire) != live.generation)
      return false;
  return true;
}

transports::WindowPlace Exports::find(const void* data, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<device::Address>(data);
  const std::lock_guard lock(mutex_);
  Live* const live = windows_ == nullptr ? nullptr : live_at(address);
  if (live == nullptr || live->slot == most_exports) return {};
  const std::uint64_t offset = address - live->memory->address();
  if (offset > live->bytes || bytes > live->bytes - offset) return {};
  if (is_everywhere(*live)) return {live->slot, live->generation, offset};
  if (live->told != everyone_else()) live->wanted = any_wanted_ = true;
  return {};
}

// Returns the places of the ranks that have the descriptor now.
std::uint64_t Exports::send(const Live& live) const {
  const base::FileDescriptor descriptor(live.memory->export_descriptor());
  std::array<std::byte, export_message_bytes> message{};
  base::store_little(message.data(), live.slot);
  base::store_little(message.data() + 4, live.generation);
  std::uint64_t told = live.told;
  for (std::size_t place = 0; place < ranks_.size(); ++place) {
    const std::uint64_t bit = std::uint64_t{1} << place;
    if (place == place_ || (told & bit) != 0) continue;
    const int error = windows_->pass_descriptor(ranks_[place], message, descriptor.get());
    // A rank that is gone needs nothing.
    if (error == EAGAIN || base::is_shortage(error)) break;
    told |= bit;
  }
  return told;
}

// Exports without the lock, because CUDA may block then. Memory that is freed meanwhile lives until
// the end of this function.
std::string Exports::send_wanted() noexcept {
  try {
    std::vector<Live> wanted;
    {
      const std::lock_guard lock(mutex_);
      if (!any_wanted_ || windows_ == nullptr) return {};
      any_wanted_ = false;
      for (Live& live : live_)
        if (std::exchange(live.wanted, false)) wanted.push_back(live);
    }
    for (Live& live : wanted) {
      live.told = send(live);
      const std::lock_guard lock(mutex_);
      Live* const same = live_at(live.memory->address());
      if (same != nullptr && same->generation == live.generation) same->told = live.told;
    }
  } catch (const std::exception& error) {
    if (!std::exchange(told_why_, true)) return error.what();
  }
  return {};
}

}  // namespace rondo::cuda_ipc
