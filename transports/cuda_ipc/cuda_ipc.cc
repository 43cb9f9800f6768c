// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda_ipc/cuda_ipc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <rondo/error.h>

#include "base/bytes.h"

namespace rondo::cuda_ipc {

namespace {

device::Uuid uuid_in(const ExportEntry& entry) noexcept {
  std::array<std::uint64_t, 2> words{};
  for (std::size_t i = 0; i < words.size(); ++i)
    words[i] = entry.gpu[i].load(std::memory_order_relaxed);
  device::Uuid uuid{};
  std::memcpy(uuid.bytes, words.data(), sizeof uuid.bytes);
  return uuid;
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

CudaWindows::CudaWindows(int rank, transports::Windows& host, std::shared_ptr<device::Gpus> gpus)
    : host_(host), gpus_(std::move(gpus)), exports_(std::make_shared<Exports>(host, rank)) {
  place_ = place_of(rank);
  for (const int each : host.ranks()) tables_.push_back(&table_in(host.area(each)));
  host_.set_sink(this);
}

CudaWindows::~CudaWindows() {
  close();
}

void CudaWindows::close() noexcept {
  if (std::exchange(closed_, true)) return;
  host_.set_sink(nullptr);
  exports_->close();
}

std::size_t CudaWindows::place_of(int rank) const noexcept {
  const std::span<const int> ranks = host_.ranks();
  const auto found = std::ranges::lower_bound(ranks, rank);
  return found != ranks.end() && *found == rank ? static_cast<std::size_t>(found - ranks.begin())
                                                : ranks.size();
}

std::uint32_t CudaWindows::generation_of(const Key& key) const noexcept {
  return tables_[key.first]->exports[key.second].generation.load(std::memory_order_acquire);
}

// Tells the owner which generation this rank has mapped.
void CudaWindows::publish(const Key& key, std::uint32_t generation) noexcept {
  tables_[place_]->mapped[key.first][key.second].store(generation, std::memory_order_release);
}

void CudaWindows::passed(int rank, std::span<const std::byte> message,
                         base::FileDescriptor descriptor) {
  const std::size_t place = place_of(rank);
  if (message.size() != export_message_bytes || place == tables_.size()) return;
  const auto slot = base::load_little<std::uint32_t>(message.data());
  const auto generation = base::load_little<std::uint32_t>(message.data() + 4);
  if (slot >= most_exports || generation == 0) return;
  const std::lock_guard lock(mutex_);
  arrived_.insert_or_assign(Key{place, slot}, Arrived{generation, std::move(descriptor)});
}

void CudaWindows::catch_up(const device::Gpu& gpu) {
  const std::lock_guard lock(catching_up_);
  if (const std::string why = exports_->send_wanted(); !why.empty()) complain(place_, why);
  use(gpu);
  drop_freed();
  take_arrived();
}

// A GPU that this rank uses from now on must reach what has been mapped before. What does not is
// found no more; calls of other GPUs that are under way may still use it.
void CudaWindows::use(const device::Gpu& gpu) {
  if (std::ranges::find(used_, &gpu) != used_.end()) return;
  used_.push_back(&gpu);
  // Only this function and those after it change imports_, so no lock is held while CUDA may block.
  for (auto& [key, import] : imports_) {
    try {
      import.memory.give_access(gpu.ordinal());
    } catch (const Error& error) {
      reaches_all_ = false;
      publish(key, 0);
      complain(key.first, error.what());
    }
  }
}

// A peer frees memory when its operations have ended, so no operation of this rank uses it. To let
// go of it may block.
void CudaWindows::drop_freed() {
  std::vector<Imports::node_type> freed;
  const std::lock_guard lock(mutex_);
  for (auto one = imports_.begin(); one != imports_.end();) {
    const auto next = std::next(one);
    if (generation_of(one->first) != one->second.generation) {
      publish(one->first, 0);
      freed.push_back(imports_.extract(one));
    }
    one = next;
  }
}

void CudaWindows::take_arrived() {
  std::map<Key, Arrived> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(arrived_);
  }
  for (const auto& [key, one] : arrived) {
    try {
      import(key, one);
    } catch (const std::exception& error) {
      complain(key.first, error.what());
    }
  }
}

// What the table says is read again afterwards: the peer may have freed the memory and made other.
void CudaWindows::import(const Key& key, const Arrived& arrived) {
  if (generation_of(key) != arrived.generation) return;
  const ExportEntry& entry = tables_[key.first]->exports[key.second];
  const device::Gpu& gpu = *used_.front();
  check_reach(gpu.driver(), ordinal_of(gpu.driver(), uuid_in(entry)));
  device::SharedMemory memory(gpu, arrived.descriptor.get(),
                              entry.bytes.load(std::memory_order_relaxed));
  for (const device::Gpu* other : used_)
    if (other != &gpu) memory.give_access(other->ordinal());
  if (generation_of(key) != arrived.generation) return;
  Imports::node_type before;
  {
    const std::lock_guard lock(mutex_);
    before = imports_.extract(key);
    imports_.emplace(key, Import{arrived.generation, std::move(memory)});
  }
  publish(key, arrived.generation);
}

void CudaWindows::check_reach(const device::CudaDriver& driver, device::Ordinal owner) const {
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

void CudaWindows::complain(std::size_t place, std::string_view why) {
  log_.line(base::LogLevel::warning,
            place == place_
                ? fmt::format("memory on a GPU cannot be shared with other ranks: {}", why)
                : fmt::format("memory on a GPU that rank {} has allocated cannot be mapped: {}",
                              host_.ranks()[place], why));
}

// Null for what is not mapped. A correct peer does not name it before this rank has told it that it
// is.
std::byte* CudaWindows::map(int rank, transports::WindowPlace place, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = imports_.find(Key{place_of(rank), place.slot});
  if (found == imports_.end()) return nullptr;
  const Import& import = found->second;
  const std::size_t whole = import.memory.bytes();
  if (import.generation != place.generation || place.offset > whole || bytes > whole - place.offset)
    return nullptr;
  return reinterpret_cast<std::byte*>(import.memory.address() + place.offset);
}

}  // namespace rondo::cuda_ipc
