// SPDX-License-Identifier: Apache-2.0
//
// A descriptor comes with a message of 8 bytes:
//   export = slot generation           ; 32 bits each, little endian
//
// Registered memory needs no message: its handle stands in the table (own_table.cc).
#include "transports/cuda_ipc/exports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
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

device::Uuid uuid_of(const device::Gpu& gpu) {
  device::Uuid uuid{};
  gpu.check(gpu.driver().device_get_uuid(&uuid, gpu.ordinal()), "cuDeviceGetUuid");
  return uuid;
}

}  // namespace

// The CPU must not touch the memory: the span only says where it lies.
class Exports::Owned final : public transports::Allocation {
 public:
  Owned(std::shared_ptr<Exports> exports, std::shared_ptr<device::Gpus> gpus,
        std::shared_ptr<Live> live)
      : Allocation({reinterpret_cast<std::byte*>(live->address), live->bytes}),
        exports_(std::move(exports)),
        gpus_(std::move(gpus)),
        live_(std::move(live)) {}
  ~Owned() override { exports_->remove(live_); }

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

Exports::Exports(const transports::Windows& windows, host::DescriptorPassing& passing, int rank)
    : passing_(&passing), table_(windows, passing, rank) {}

// Memory that is allocated.

std::unique_ptr<transports::Allocation> Exports::allocate(const std::shared_ptr<Exports>& exports,
                                                          std::shared_ptr<device::Gpus> gpus,
                                                          int ordinal, std::size_t bytes) {
  const device::Gpu& gpu = gpus->gpu(ordinal);
  auto live = std::make_shared<Live>();
  live->memory = std::make_shared<const device::SharedMemory>(gpu, bytes);
  live->address = live->memory->address();
  live->bytes = bytes;
  device::set_to_zero(gpu, live->address, live->memory->bytes());
  auto owned = std::make_unique<Owned>(exports, std::move(gpus), live);
  const OwnTable::Shown shown{live->memory->bytes(), uuid_of(gpu), {}, 0};
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
  if (passing_ != nullptr && live->place.slot != most_exports && !halted_) withdraw(*live);
}

// Memory that is registered.

std::unique_ptr<transports::Registration> Exports::register_memory(
    const std::shared_ptr<Exports>& exports, std::shared_ptr<device::Gpus> gpus, int ordinal,
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
  OwnTable::Shown shown{range.bytes, uuid_of(gpu), device::handle_of(gpu, range.begin), 0};
  auto made = std::make_shared<Live>();
  made->address = range.begin;
  made->bytes = range.bytes;
  made->registrations = 1;
  made->name = add_process_memory(
      {table_.ranks()[table_.place()], range.begin, range.bytes, gpu.ordinal(), table_.tables()});
  shown.name = made->name;
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

// The end of a registration. After a failure others may still use the memory, also when the
// operations here have ended: they let go of it once theirs have ended too.
void Exports::release(const std::shared_ptr<Live>& live) noexcept {
  std::unique_lock lock(mutex_);
  if (--live->registrations != 0) return;
  std::erase(live_, live);
  const base::TimePoint until = base::Clock::now() + release_time;
  const bool is_unused = news_.wait_until(lock, until, [&] {
    return passing_ == nullptr || (halted_ ? holds_ == 0 : live->uses == 0);
  });
  remove_process_memory(live->name);
  const bool is_shown = live->place.slot != most_exports && slots_[live->place.slot] == live;
  if (!is_unused) {
    // The table shows it until close(), so that nobody lets go of it under an operation.
    lock.unlock();
    return complain(*live, 0);
  }
  if (!is_shown) return;  // or close() has withdrawn it
  slots_[live->place.slot].reset();
  withdraw(*live);
  ++releasing_;
  lock.unlock();
  const std::uint64_t holders = table_.await_released(live->place, until);
  if (holders != 0) complain(*live, holders);
  lock.lock();
  --releasing_;
  news_.notify_all();
}

void Exports::withdraw(const Live& live) noexcept {
  table_.withdraw(live.place, live.uses != 0);
}

// Returns what the table shows of registered memory. Where there is no memory to remember it,
// close() does not wait for the others.
Exports::Lives Exports::withdraw_registered() noexcept {
  Lives withdrawn;
  for (std::shared_ptr<Live>& live : slots_) {
    if (!live || live->memory) continue;
    remove_process_memory(live->name);
    withdraw(*live);
    try {
      withdrawn.push_back(live);
    } catch (const std::bad_alloc&) {
    }
    live.reset();
  }
  return withdrawn;
}

// holders: none if an operation of this rank is what uses it.
void Exports::complain(const Live& live, std::uint64_t holders) const noexcept {
  try {
    std::vector<int> ranks;
    for (std::size_t place = 0; place < table_.ranks().size(); ++place)
      if ((holders >> place & 1) != 0) ranks.push_back(table_.ranks()[place]);
    base::log_line(
        base::LogLevel::warning,
        fmt::format("rank {}: the registration of {} on a GPU at {:#x} has ended, but {}: do not "
                    "free this memory",
                    table_.ranks()[table_.place()], base::describe_bytes(live.bytes), live.address,
                    holders == 0 ? "an operation still uses it"
                                 : base::list_of_ranks(ranks) + " did not let go of it in time"));
  } catch (...) {  // no memory for the message
  }
}

// Counts both.

// Shows memory to the others, while there is room. Under the lock. False: there is none for the
// first time.
bool Exports::insert(const std::shared_ptr<Live>& live, const OwnTable::Shown& shown) {
  live_.insert(live_after(live->address), live);
  if (passing_ == nullptr) return true;
  live->place = table_.show(shown);
  if (live->place.slot == most_exports) return std::exchange(told_full_, true);
  slots_[live->place.slot] = live->memory ? nullptr : live;
  return true;
}

void Exports::tell_full() const {
  base::log_line(base::LogLevel::warning,
                 fmt::format("rank {} shares {} pieces of memory on GPUs already, the most: "
                             "operations on further ones go through the host; allocate fewer and "
                             "larger ones",
                             table_.ranks()[table_.place()], most_exports));
}

// No operation runs any more. Threads in release() see the end of waits and leave the table.
void Exports::close(bool idle, base::TimePoint until) noexcept {
  std::unique_lock lock(mutex_);
  if (passing_ == nullptr) return;
  table_.end_waits(until);
  for (const std::shared_ptr<Live>& live : live_) remove_process_memory(live->name);
  const Lives withdrawn = withdraw_registered();
  lock.unlock();
  for (const std::shared_ptr<Live>& live : withdrawn) {
    const std::uint64_t holders = table_.await_released(live->place, until);
    if (holders != 0 || (!idle && live->uses != 0)) complain(*live, holders);
  }
  lock.lock();
  news_.wait(lock, [this] { return releasing_ == 0; });
  passing_ = nullptr;
  news_.notify_all();
}

void Exports::halt() noexcept {
  const std::lock_guard lock(mutex_);
  if (passing_ == nullptr || halted_.exchange(true)) return;
  news_.notify_all();
}

// Without the lock, a waiter that has looked would miss it.
void Exports::release() noexcept {
  if (holds_.fetch_sub(1) != 1 || !halted_) return;
  const std::lock_guard lock(mutex_);
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
  return (UINT64_MAX >> (most_ranks - table_.ranks().size())) &
         ~(std::uint64_t{1} << table_.place());
}

transports::WindowPlace Exports::find(const void* data, std::size_t bytes) noexcept {
  const auto address = reinterpret_cast<device::Address>(data);
  const std::lock_guard lock(mutex_);
  Live* const live = passing_ == nullptr ? nullptr : live_at(address);
  if (live == nullptr || live->place.slot == most_exports) return {};
  const std::uint64_t offset = address - live->address;
  if (offset > live->bytes || bytes > live->bytes - offset) return {};
  if (table_.is_everywhere(live->place)) {
    if (!live->memory) ++live->uses;
    return {live->place.slot, live->place.generation, offset};
  }
  if (live->memory && live->told != everyone_else()) live->wanted = any_wanted_ = true;
  return {};
}

void Exports::ended(transports::WindowPlace place) noexcept {
  const std::lock_guard lock(mutex_);
  if (place.generation == 0 || place.slot >= slots_.size()) return;
  Live* const live = slots_[place.slot].get();
  if (live == nullptr || live->place.generation != place.generation) return;
  if (--live->uses == 0 && live->registrations == 0) news_.notify_all();
}

// Returns the places of the ranks that have the descriptor now.
std::uint64_t Exports::send(const Live& live) const {
  const base::FileDescriptor descriptor(live.memory->export_descriptor());
  std::array<std::byte, export_message_bytes> message{};
  base::store_little(message.data(), live.place.slot);
  base::store_little(message.data() + 4, live.place.generation);
  std::uint64_t told = live.told;
  const std::vector<int>& ranks = table_.ranks();
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    const std::uint64_t bit = std::uint64_t{1} << place;
    if (place == table_.place() || (told & bit) != 0) continue;
    const int error = passing_->pass_descriptor(ranks[place], message, descriptor.get());
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
      if (!any_wanted_ || passing_ == nullptr) return {};
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
