// SPDX-License-Identifier: Apache-2.0
//
// Memory of another rank is mapped in catch_up(), before the next call that may use it, and let go
// of when its owner has withdrawn it. CUDA may block in both, so neither happens under the engine's
// lock.
#include "transports/cuda_ipc/imports.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include <rondo/error.h>

#include "base/bytes.h"
#include "base/thread.h"

namespace rondo::cuda_ipc {

namespace {

constexpr milliseconds retry_interval{100};

template <class Value, class Words>
Value load_words(const Words& words) noexcept {
  std::array<std::uint64_t, std::tuple_size_v<Words>> values{};
  static_assert(sizeof values == sizeof(Value));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = words[i].load(std::memory_order_relaxed);
  Value value{};
  std::memcpy(&value, values.data(), sizeof value);
  return value;
}

device::Uuid uuid_in(const ExportEntry& entry) noexcept {
  return load_words<device::Uuid>(entry.gpu);
}

// The GPU as this process numbers it. Throws Error(unsupported).
device::Ordinal ordinal_of(const device::CudaDriver& driver, const device::Uuid& wanted) {
  const int count = device::gpu_count(driver);
  for (device::Ordinal ordinal = 0; ordinal < count; ++ordinal) {
    device::Uuid uuid{};
    if (driver.device_get_uuid(&uuid, ordinal) == device::success &&
        std::memcmp(uuid.bytes, wanted.bytes, sizeof uuid.bytes) == 0)
      return ordinal;
  }
  throw Error(Errc::unsupported,
              "it is on a GPU that this process does not see (check "
              "CUDA_VISIBLE_DEVICES)");
}

}  // namespace

device::OpenedMemory FarMemory::open_for(const device::Gpu& gpu) const {
  device::OpenedMemory opened(gpu, handle_);
  if (opened.bytes() >= bytes()) return opened;
  throw Error(Errc::system, "CUDA opens less of it for another GPU");
}

// Null: the first GPU for which it was opened.
device::Address FarMemory::address(const device::Gpu* gpu) const noexcept {
  if (gpu == nullptr) return opened_.front().address();
  const auto found = std::ranges::find_if(
      opened_, [gpu](const device::OpenedMemory& one) { return &one.gpu() == gpu; });
  return found == opened_.end() ? 0 : found->address();
}

Imports::Imports(int rank, const transports::Windows& below, std::shared_ptr<device::Gpus> gpus,
                 std::shared_ptr<Exports> exports)
    : gpus_(std::move(gpus)), exports_(std::move(exports)), ranks_(below.ranks()) {
  place_ = place_of(rank);
  for (const int each : ranks_) tables_.push_back(&table_in(below.area(each)));
  seen_.resize(tables_.size());
}

device::Address Imports::Import::address(const device::Gpu* gpu) const noexcept {
  if (const auto* const far = std::get_if<FarMemory>(&memory)) return far->address(gpu);
  if (const auto* const near = std::get_if<NearMemory>(&memory)) return near->address();
  return std::get<device::SharedMemory>(memory).address();
}

std::size_t Imports::place_of(int rank) const noexcept {
  const auto found = std::ranges::lower_bound(ranks_, rank);
  return found != ranks_.end() && *found == rank ? static_cast<std::size_t>(found - ranks_.begin())
                                                 : ranks_.size();
}

std::uint32_t Imports::generation_of(const Key& key) const noexcept {
  return tables_[key.first]->exports[key.second].generation.load(std::memory_order_acquire);
}

// Tells the owner which generation this rank has mapped. The owner may sleep until that changes.
void Imports::publish(const Key& key, std::uint32_t state) noexcept {
  mapped(key).store(state, std::memory_order_seq_cst);
  base::wake_sleepers(mapped(key));
}

void Imports::passed(int rank, std::span<const std::byte> message,
                     base::FileDescriptor descriptor) {
  const std::size_t place = place_of(rank);
  if (message.size() != export_message_bytes || place == tables_.size()) return;
  const auto slot = base::load_little<std::uint32_t>(message.data());
  const auto generation = base::load_little<std::uint32_t>(message.data() + 4);
  if (slot >= most_exports || generation == 0) return;
  const std::lock_guard lock(mutex_);
  arrived_.insert_or_assign(Key{place, slot}, Arrived{generation, std::move(descriptor)});
}

void Imports::catch_up(const device::Gpu& gpu) {
  drop_freed();
  const std::lock_guard lock(catching_up_);
  if (const std::string why = exports_->send_wanted(); !why.empty())
    complain("memory on a GPU cannot be shared with other ranks: " + why);
  use(gpu);
  take_arrived();
  take_registered();
}

// A GPU that this rank uses from now on must reach what has been mapped before. What does not is
// found no more; calls of other GPUs that are under way may still use it.
void Imports::use(const device::Gpu& gpu) {
  if (std::ranges::find(used_, &gpu) != used_.end()) return;
  used_.push_back(&gpu);
  // imports_ changes under catching_up_ alone, so no other lock is held while CUDA may block.
  for (auto& [key, import] : imports_) {
    try {
      give_access(import, gpu);
    } catch (const Error& error) {
      reaches_all_ = false;
      publish(key, import.generation | only_open);
      complain_of(key, import.is_registered(), error.what());
    }
  }
}

// map() looks at the import meanwhile, on another thread.
void Imports::give_access(Import& import, const device::Gpu& gpu) {
  if (auto* const far = std::get_if<FarMemory>(&import.memory)) {
    device::OpenedMemory opened = far->open_for(gpu);
    const std::lock_guard lock(mutex_);
    far->add(std::move(opened));
  } else if (auto* const near = std::get_if<NearMemory>(&import.memory)) {
    near->give_access(gpu);
  } else {
    std::get<device::SharedMemory>(import.memory).give_access(gpu);
  }
}

// An owner withdraws memory when its operations have ended, so no operation of this rank uses it.
// If they have failed, those of this rank must have ended too.
bool Imports::may_drop(const Key& key, const Import& import) const noexcept {
  if (generation_of(key) == import.generation) return false;
  return !import.is_registered() ||
         tables_[key.first]->unsettled.load(std::memory_order_relaxed) == 0 ||
         exports_->is_settled();
}

// One after the other, because to let go of memory may block. Meanwhile nothing is opened: an owner
// that shows other memory in the same place must not see that before this is closed.
void Imports::drop_freed() noexcept {
  for (;;) {
    const std::lock_guard catching_up(catching_up_);
    ByKey::node_type freed;
    {
      const std::lock_guard lock(mutex_);
      if (abandoned_) return;
      const auto found = std::ranges::find_if(
          imports_, [this](const auto& one) { return may_drop(one.first, one.second); });
      if (found == imports_.end()) return;
      freed = imports_.extract(found);
    }
    drop(std::move(freed));
  }
}

// At the end.
void Imports::drop_all() noexcept {
  for (;;) {
    ByKey::node_type freed;
    {
      const std::lock_guard lock(mutex_);
      if (abandoned_ || imports_.empty()) return;
      freed = imports_.extract(imports_.begin());
    }
    drop(std::move(freed));
  }
}

// The owner may free the memory once this rank says that it does not have it open.
void Imports::drop(ByKey::node_type freed) noexcept {
  const Key key = freed.key();
  const std::uint32_t generation = freed.mapped().generation;
  {
    const std::lock_guard lock(mutex_);
    ++in_cuda_;
    changed_.notify_all();
  }
  freed = {};
  const std::lock_guard lock(mutex_);
  --in_cuda_;
  if (abandoned_) return;
  for (std::uint32_t state : {generation, generation | only_open})
    if (mapped(key).compare_exchange_strong(state, 0)) base::wake_sleepers(mapped(key));
}

void Imports::run_releaser() noexcept {
  constexpr std::chrono::seconds longest_sleep{1};  // an owner may have called before the sleep
  const base::WakeWord& news = tables_[place_]->news;
  while (!closing_) {
    const std::uint32_t seen = news.load();
    drop_freed();
    if (!closing_) base::sleep_on(news, seen, longest_sleep);
  }
  if (drops_all_) drop_all();
  const std::lock_guard lock(mutex_);
  releaser_ended_ = true;
  changed_.notify_all();
}

// The thread leaves by itself, soon, unless CUDA blocks. Only there it is left behind, and when it
// comes back it touches no table.
bool Imports::close(bool idle, base::TimePoint until) noexcept {
  drops_all_ = idle;
  closing_ = true;
  if (!releaser_.joinable()) {
    if (idle) drop_all();
    return true;
  }
  base::wake_all(tables_[place_]->news);
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [this] { return releaser_ended_; });
    changed_.wait(lock, [this] { return releaser_ended_ || in_cuda_ != 0; });
    abandoned_ = !releaser_ended_;
    if (abandoned_) return false;
  }
  releaser_.join();
  return true;
}

void Imports::take_arrived() {
  std::map<Key, Arrived> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(arrived_);
  }
  for (const auto& one : arrived)
    add_import(one.first, one.second.generation, false,
               [&] { return open_allocated(one.first, one.second); });
}

void Imports::take_registered() {
  for (std::size_t place = 0; place < tables_.size(); ++place) {
    const Table& table = *tables_[place];
    Seen& seen = seen_[place];
    const std::uint32_t registrations = table.registrations.load(std::memory_order_acquire);
    const bool tries_again =
        seen.next_try != base::TimePoint::max() && base::Clock::now() >= seen.next_try;
    if (place == place_ || (registrations == seen.registrations && !tries_again)) continue;
    seen.registrations = registrations;
    seen.next_try = base::TimePoint::max();
    for (std::uint32_t slot = 0; slot < most_exports; ++slot) {
      const Key key{place, slot};
      const std::uint32_t generation = generation_of(key);
      if (generation == 0 || table.exports[slot].name.load(std::memory_order_relaxed) == 0)
        continue;
      const auto found = imports_.find(key);
      if (found == imports_.end() || found->second.generation != generation)
        add_import(key, generation, true, [&] { return open_registered(key); });
    }
  }
}

// Says that it is opening the memory before it looks whether there is such an export: see
// exports.cc. What the table says is read again afterwards: the peer may have withdrawn the memory
// and shown other.
template <class Open>
void Imports::add_import(const Key& key, std::uint32_t generation, bool is_registered, Open open) {
  if (generation_of(key) != generation || generation >= only_open) return;
  if (const auto before = imports_.find(key); before != imports_.end()) {
    if (!may_drop(key, before->second)) return;
    ByKey::node_type freed;
    {
      const std::lock_guard lock(mutex_);
      freed = imports_.extract(before);
    }
    drop(std::move(freed));
  }
  publish(key, generation | only_open);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  try {
    if (is_registered && !releaser_.joinable())
      releaser_ = base::start_thread("rondo-release", [this] { run_releaser(); });
    if (generation_of(key) == generation) {
      Import made{generation, open()};
      for (const device::Gpu* gpu : used_)
        if (gpu != used_.front()) give_access(made, *gpu);
      if (generation_of(key) == generation) {
        const std::lock_guard lock(mutex_);
        imports_.emplace(key, std::move(made));
        return publish(key, generation);
      }
    }
  } catch (const Error& error) {
    refused(key, generation, is_registered, error.code() == Errc::unsupported, error.what());
  } catch (const std::exception& error) {
    refused(key, generation, is_registered, false, error.what());
  }
  publish(key, 0);
}

// Memory that its owner has withdrawn meanwhile cannot be opened.
void Imports::refused(const Key& key, std::uint32_t generation, bool is_registered, bool is_lasting,
                      std::string_view why) {
  if (generation_of(key) != generation) return;
  if (!is_registered) return complain_of(key, is_registered, why);
  Seen& seen = seen_[key.first];
  if (!is_lasting) seen.next_try = base::Clock::now() + retry_interval;
  if (std::exchange(seen.refused[key.second], generation) != generation)
    complain_of(key, is_registered, why);
}

Imports::Opened Imports::open_allocated(const Key& key, const Arrived& arrived) const {
  const ExportEntry& entry = tables_[key.first]->exports[key.second];
  const device::Gpu& gpu = *used_.front();
  check_reach(gpu.driver(), ordinal_of(gpu.driver(), uuid_in(entry)));
  return device::SharedMemory(gpu, arrived.descriptor.get(),
                              entry.bytes.load(std::memory_order_relaxed));
}

Imports::Opened Imports::open_registered(const Key& key) const {
  const ExportEntry& entry = tables_[key.first]->exports[key.second];
  const device::Gpu& gpu = *used_.front();
  const Importer importer{ranks_[key.first], place_,
                          tables_[place_]->identity.load(std::memory_order_relaxed)};
  // A rank that shows a name which it has seen elsewhere does not wait until this rank has let go.
  if (const auto near = find_process_memory(entry.name.load(std::memory_order_relaxed), importer)) {
    check_reach(gpu.driver(), near->ordinal);
    const NearMemory memory(*gpus_, *near);
    memory.give_access(gpu);
    return memory;
  }
  check_reach(gpu.driver(), ordinal_of(gpu.driver(), uuid_in(entry)));
  return FarMemory(gpu, load_words<device::IpcMemoryHandle>(entry.handle));
}

void Imports::check_reach(const device::CudaDriver& driver, device::Ordinal owner) const {
  for (const device::Gpu* gpu : used_) {
    int can = 1;
    if (gpu->ordinal() != owner)
      gpu->check(driver.device_can_access_peer(&can, gpu->ordinal(), owner),
                 "cuDeviceCanAccessPeer");
    if (can == 0)
      throw Error(Errc::unsupported,
                  fmt::format("GPU {} has no access to GPU {}", gpu->ordinal(), owner));
  }
}

void Imports::complain_of(const Key& key, bool is_registered, std::string_view why) {
  complain(fmt::format("memory on a GPU that rank {} has {} cannot be mapped: {}",
                       ranks_[key.first], is_registered ? "registered" : "allocated", why));
}

void Imports::complain(const std::string& what) {
  log_.line(base::LogLevel::warning, what);
}

// Null for what is not mapped. A correct peer does not name it before this rank has told it that it
// is.
std::byte* Imports::map(const device::Gpu* gpu, int rank, transports::WindowPlace place,
                        std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = imports_.find(Key{place_of(rank), place.slot});
  if (found == imports_.end()) return nullptr;
  const Import& import = found->second;
  const std::size_t whole = import.bytes();
  if (import.generation != place.generation || place.offset > whole || bytes > whole - place.offset)
    return nullptr;
  const device::Address address = import.address(gpu);
  return address == 0 ? nullptr : reinterpret_cast<std::byte*>(address + place.offset);
}

}  // namespace rondo::cuda_ipc
