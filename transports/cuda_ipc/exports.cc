// SPDX-License-Identifier: Apache-2.0
//
// A descriptor comes with a message of 8 bytes:
//   export = slot generation           ; 32 bits each, little endian
//
// Registered memory needs no message: its handle stands in the table. An importer first writes to
// its own table that it is opening the export, and then looks once more whether there is such an
// export. The owner first takes the export out of its table, and then looks who has it open. Both
// make a full fence in between, so one of them sees the other.
#include "transports/cuda_ipc/exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include <rondo/error.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/shortage.h"
#include "base/text.h"
#include "device/pointer.h"
#include "transports/cuda_ipc/process_memory.h"

namespace rondo::cuda_ipc {

namespace {

// A sleeper may miss a call that only wakes, so the owner of memory calls again.
constexpr milliseconds call_again{2};

device::Uuid uuid_of(const device::Gpu& gpu) {
  device::Uuid uuid{};
  gpu.check(gpu.driver().device_get_uuid(&uuid, gpu.ordinal()), "cuDeviceGetUuid");
  return uuid;
}

template <class Words, class Bytes>
void store_words(Words& words, const Bytes& bytes) noexcept {
  static_assert(sizeof(Bytes) == std::tuple_size_v<Words> * sizeof(std::uint64_t));
  std::array<std::uint64_t, std::tuple_size_v<Words>> values;
  std::memcpy(values.data(), &bytes, sizeof bytes);
  for (std::size_t i = 0; i < values.size(); ++i)
    words[i].store(values[i], std::memory_order_relaxed);
}

}  // namespace

// The CPU must not touch the memory: the span only says where it lies.
class Exports::Owned final : public transports::Allocation {
 public:
  Owned(std::shared_ptr<Exports> exports, std::shared_ptr<device::Gpus> gpus,
        std::shared_ptr<Live> live)
      : exports_(std::move(exports)), gpus_(std::move(gpus)), live_(std::move(live)) {}
  ~Owned() override { exports_->remove(live_); }
  std::span<std::byte> memory() const noexcept override {
    return {reinterpret_cast<std::byte*>(live_->address), live_->bytes};
  }

 private:
  const std::shared_ptr<Exports> exports_;
  const std::shared_ptr<device::Gpus> gpus_;
  const std::shared_ptr<Live> live_;
};

class Exports::Registered final : public transports::Registration {
 public:
  Registered(std::shared_ptr<Exports> exports, std::shared_ptr<device::Gpus> gpus)
      : exports_(std::move(exports)), gpus_(std::move(gpus)) {}
  ~Registered() override {
    if (live_ && generation_ == base::process_generation()) exports_->release(live_);
  }
  void keep(std::shared_ptr<Live> live) noexcept { live_ = std::move(live); }

 private:
  const std::shared_ptr<Exports> exports_;
  const std::shared_ptr<device::Gpus> gpus_;
  const unsigned generation_ = base::process_generation();
  std::shared_ptr<Live> live_;
};

Exports::Exports(transports::Windows& windows, int rank)
    : windows_(&windows), ranks_(windows.ranks().begin(), windows.ranks().end()) {
  place_ = static_cast<std::size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
  for (const int each : ranks_) tables_.push_back(&table_in(windows.area(each)));
}

// Memory that is allocated.

std::unique_ptr<transports::Allocation> Exports::allocate(std::shared_ptr<Exports> exports,
                                                          std::shared_ptr<device::Gpus> gpus,
                                                          int ordinal, std::size_t bytes) {
  const device::Gpu& gpu = gpus->gpu(ordinal);
  auto live = std::make_shared<Live>();
  live->memory = std::make_shared<const device::SharedMemory>(gpu, bytes);
  live->address = live->memory->address();
  live->bytes = bytes;
  device::set_to_zero(gpu, live->address, live->memory->bytes());
  auto owned = std::make_unique<Owned>(exports, std::move(gpus), live);
  const Shown shown{live->memory->bytes(), uuid_of(gpu), {}};
  bool is_full = false;
  {
    const std::lock_guard lock(exports->mutex_);
    is_full = !exports->insert(live, shown);
  }
  if (is_full) exports->tell_full();
  return owned;
}

// After halt() the entry stays, so nobody lets go of memory that an operation may still use.
void Exports::remove(const std::shared_ptr<Live>& live) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(live_, live);
  if (windows_ != nullptr && live->slot != most_exports && !halted_) withdraw(*live);
}

// Memory that is registered.

std::unique_ptr<transports::Registration> Exports::register_memory(
    std::shared_ptr<Exports> exports, std::shared_ptr<device::Gpus> gpus, int ordinal,
    std::span<std::byte> memory) {
  const device::Gpu& gpu = gpus->gpu(ordinal);
  auto registered = std::make_unique<Registered>(exports, std::move(gpus));
  registered->keep(exports->register_range(gpu, memory));
  return registered;
}

// The export of the allocation that holds the memory, with one registration more. Null for memory
// from allocate(), which the others reach already.
std::shared_ptr<Exports::Live> Exports::register_range(const device::Gpu& gpu,
                                                       std::span<std::byte> memory) {
  const auto address = reinterpret_cast<device::Address>(memory.data());
  device::AddressRange range;
  {
    const device::Current current(gpu);
    range = device::range_of(gpu, address);
  }
  std::shared_ptr<Live> live;
  {
    const std::lock_guard lock(mutex_);
    if (register_known(address, live)) return live;
  }
  const Shown shown{range.bytes, uuid_of(gpu), device::handle_of(gpu, range.begin)};
  auto made = std::make_shared<Live>();
  made->address = range.begin;
  made->bytes = range.bytes;
  made->registrations = 1;
  made->name = add_process_memory({ranks_[place_], range.begin, range.bytes, gpu.ordinal()});
  bool is_full = false;
  try {
    const std::lock_guard lock(mutex_);
    // Another thread may have registered the same allocation meanwhile.
    if (!register_known(address, live)) is_full = !insert(made, shown);
  } catch (...) {
    remove_process_memory(made->name);
    throw;
  }
  if (is_full) tell_full();
  if (!live) return made;
  remove_process_memory(made->name);
  return live;
}

// Whether the address lies in an export. Counts a registration of it, unless it is from allocate().
bool Exports::register_known(device::Address address, std::shared_ptr<Live>& live) noexcept {
  const auto after = live_after(address);
  if (after == live_.begin()) return false;
  const std::shared_ptr<Live>& before = *std::prev(after);
  if (address - before->address >= before->bytes) return false;
  if (before->memory) return true;
  ++before->registrations;
  live = before;
  return true;
}

// The end of a registration. After a failure the operations here have ended, and others may still
// use the memory: they let go of it once their operations have ended too.
void Exports::release(const std::shared_ptr<Live>& live) noexcept {
  std::unique_lock lock(mutex_);
  if (--live->registrations != 0) return;
  std::erase(live_, live);
  const base::TimePoint until = base::Clock::now() + release_time;
  const bool is_unused =
      live->slot == most_exports || news_.wait_until(lock, std::min(until, releases_end_), [&] {
        return live->uses == 0 || halted_ || windows_ == nullptr;
      });
  remove_process_memory(live->name);
  // Otherwise close() has withdrawn it.
  if (live->slot == most_exports || slots_[live->slot] != live) return;
  if (!is_unused) {
    // The table shows it until close(), so that nobody lets go of it under an operation.
    lock.unlock();
    return complain(*live, 0);
  }
  slots_[live->slot].reset();
  withdraw(*live);
  ++releasing_;
  lock.unlock();
  const std::uint64_t holders = await_released(*live, until);
  if (holders != 0) complain(*live, holders);
  lock.lock();
  --releasing_;
  news_.notify_all();
}

void Exports::withdraw(const Live& live) noexcept {
  if (live.uses != 0) tables_[place_]->unsettled.store(1, std::memory_order_relaxed);
  tables_[place_]->exports[live.slot].generation.store(0, std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// What the table shows of registered memory. Where there is no memory to remember it, close() does
// not wait for the others.
Exports::Lives Exports::withdraw_registered() noexcept {
  Lives withdrawn;
  for (std::shared_ptr<Live>& live : slots_) {
    if (!live || live->memory) continue;
    withdraw(*live);
    try {
      withdrawn.push_back(live);
    } catch (const std::bad_alloc&) {
    }
    live.reset();
  }
  return withdrawn;
}

// Returns the places of the ranks that still have it open at the end, a bit for each.
std::uint64_t Exports::await_released(const Live& live, base::TimePoint until) noexcept {
  std::uint64_t holders = 0;
  for (std::size_t place = 0; place < tables_.size(); ++place) {
    if (place == place_) continue;
    const base::WakeWord& word = tables_[place]->mapped[place_][live.slot];
    for (;;) {
      const std::uint32_t state = word.load(std::memory_order_acquire);
      if ((state & ~only_open) != live.generation || windows_->has_died(ranks_[place])) break;
      base::wake_sleepers(tables_[place]->news);
      {
        const std::lock_guard lock(mutex_);
        until = std::min(until, releases_end_);
      }
      if (base::Clock::now() >= until) {
        holders |= std::uint64_t{1} << place;
        break;
      }
      base::sleep_on(word, state, call_again);
    }
  }
  return holders;
}

// holders: none if an operation of this rank is what uses it.
void Exports::complain(const Live& live, std::uint64_t holders) const noexcept {
  try {
    std::vector<int> ranks;
    for (std::size_t place = 0; place < ranks_.size(); ++place)
      if ((holders >> place & 1) != 0) ranks.push_back(ranks_[place]);
    base::log_line(
        base::LogLevel::warning,
        fmt::format("rank {}: the registration of {} on a GPU at {:#x} has ended, but {}: do not "
                    "free this memory",
                    ranks_[place_], base::describe_bytes(live.bytes), live.address,
                    holders == 0 ? "an operation still uses it"
                                 : base::list_of_ranks(ranks) + " did not let go of it in time"));
  } catch (...) {  // no memory for the message
  }
}

// Of both.

// Shows memory to the others, while there is room. Under the lock. False: there is none for the
// first time.
bool Exports::insert(const std::shared_ptr<Live>& live, const Shown& shown) {
  live_.insert(live_after(live->address), live);
  if (windows_ == nullptr) return true;
  auto& entries = tables_[place_]->exports;
  const auto entry = std::ranges::find_if(entries, [](const ExportEntry& e) {
    return e.generation.load(std::memory_order_relaxed) == 0;
  });
  if (entry == entries.end()) return std::exchange(told_full_, true);
  live->slot = static_cast<std::uint32_t>(entry - entries.begin());
  last_generation_ = last_generation_ % (only_open - 1) + 1;
  live->generation = last_generation_;
  slots_[live->slot] = live->memory ? nullptr : live;
  entry->bytes.store(shown.bytes, std::memory_order_relaxed);
  store_words(entry->gpu, shown.gpu);
  store_words(entry->handle, shown.handle);
  entry->name.store(live->name, std::memory_order_relaxed);
  entry->generation.store(live->generation, std::memory_order_release);
  if (live->name != 0) tables_[place_]->registrations.fetch_add(1, std::memory_order_release);
  return true;
}

void Exports::tell_full() const {
  base::log_line(base::LogLevel::warning,
                 fmt::format("rank {} shares {} pieces of memory on GPUs already, the most: "
                             "operations on further ones go through the host; allocate fewer and "
                             "larger ones",
                             ranks_[place_], most_exports));
}

// No operation runs any more. Threads in release() look at releases_end_ and leave the tables.
void Exports::close(base::TimePoint until) noexcept {
  std::unique_lock lock(mutex_);
  if (windows_ == nullptr) return;
  releases_end_ = until;
  const Lives withdrawn = withdraw_registered();
  lock.unlock();
  for (const std::shared_ptr<Live>& live : withdrawn)
    if (const std::uint64_t holders = await_released(*live, until); holders != 0)
      complain(*live, holders);
  lock.lock();
  news_.wait(lock, [this] { return releasing_ == 0; });
  windows_ = nullptr;
  news_.notify_all();
}

void Exports::halt() noexcept {
  const std::lock_guard lock(mutex_);
  if (windows_ == nullptr || std::exchange(halted_, true)) return;
  news_.notify_all();
}

// The first live export behind the address.
Exports::Lives::iterator Exports::live_after(device::Address address) noexcept {
  return std::ranges::upper_bound(live_, address, {},
                                  [](const auto& live) { return live->address; });
}

// The last live export that begins at or before the address; null when there is none.
Exports::Live* Exports::live_at(device::Address address) noexcept {
  const auto after = live_after(address);
  return after == live_.begin() ? nullptr : std::prev(after)->get();
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
  const std::uint64_t offset = address - live->address;
  if (offset > live->bytes || bytes > live->bytes - offset) return {};
  if (is_everywhere(*live)) {
    if (!live->memory) ++live->uses;
    return {live->slot, live->generation, offset};
  }
  if (live->memory && live->told != everyone_else()) live->wanted = any_wanted_ = true;
  return {};
}

void Exports::ended(transports::WindowPlace place) noexcept {
  const std::lock_guard lock(mutex_);
  if (place.generation == 0 || place.slot >= slots_.size()) return;
  Live* const live = slots_[place.slot].get();
  if (live == nullptr || live->generation != place.generation) return;
  if (--live->uses == 0 && live->registrations == 0) news_.notify_all();
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
    Lives wanted;
    {
      const std::lock_guard lock(mutex_);
      if (!any_wanted_ || windows_ == nullptr) return {};
      any_wanted_ = false;
      for (const std::shared_ptr<Live>& live : live_)
        if (std::exchange(live->wanted, false)) wanted.push_back(live);
    }
    for (const std::shared_ptr<Live>& live : wanted) {
      const std::uint64_t told = send(*live);
      const std::lock_guard lock(mutex_);
      live->told = told;
    }
  } catch (const std::exception& error) {
    if (!std::exchange(told_why_, true)) return error.what();
  }
  return {};
}

}  // namespace rondo::cuda_ipc
