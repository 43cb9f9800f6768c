// SPDX-License-Identifier: Apache-2.0
#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>

#include "quiet.h"
#include "settings.h"

namespace fake {
namespace {

constexpr std::size_t page = 4096;
constexpr const char* storage_name = "rondo-fake-gpu-";

std::byte* map_storage(const Storage& storage, std::size_t offset, std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                              storage.descriptor(), static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(mapped);
}

Address last_of(Address base, std::size_t bytes) {
  return base + bytes - 1;
}

}  // namespace

Storage::Storage(int machine_gpu, std::size_t bytes) : machine_gpu_(machine_gpu), bytes_(bytes) {
  const std::string name = storage_name + std::to_string(machine_gpu);
  descriptor_ = ::memfd_create(name.c_str(), MFD_CLOEXEC);
  struct stat state {};
  if (descriptor_ < 0) throw std::bad_alloc();
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0 ||
      ::fstat(descriptor_, &state) != 0) {
    ::close(descriptor_);
    throw std::bad_alloc();
  }
  inode_ = state.st_ino;
}

Storage::Storage(int descriptor) : descriptor_(descriptor) {
  std::array<char, 128> name{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  struct stat state {};
  const std::string wanted = std::string("/memfd:") + storage_name;
  if (::readlink(link.c_str(), name.data(), name.size() - 1) <= 0 ||
      std::strncmp(name.data(), wanted.c_str(), wanted.size()) != 0 ||
      ::fstat(descriptor, &state) != 0)
    throw std::invalid_argument("not memory of a fake GPU");
  machine_gpu_ = std::atoi(name.data() + wanted.size());
  bytes_ = static_cast<std::size_t>(state.st_size);
  inode_ = state.st_ino;
}

Storage::~Storage() {
  ::close(descriptor_);
}

// A lock on the file belongs to this opening of it, so another process sees it as long as the
// opening lives.
void Storage::mark_opened() {
  struct flock lock {};
  lock.l_type = F_RDLCK;
  if (::fcntl(descriptor_, F_OFD_SETLK, &lock) != 0) stop_test("memory that was opened: no lock");
}

// A process that was killed is lost for others as soon as one of its sockets is closed. Its locks
// go with its last descriptors, which may be later on a busy machine.
bool Storage::is_opened() const {
  constexpr std::chrono::milliseconds dying{1000}, pause{1};
  const auto until = std::chrono::steady_clock::now() + dying;
  for (;;) {
    struct flock lock {};
    lock.l_type = F_WRLCK;
    if (::fcntl(descriptor_, F_OFD_GETLK, &lock) != 0) stop_test("memory that was opened: no lock");
    if (lock.l_type == F_UNLCK) return false;
    if (std::chrono::steady_clock::now() >= until) return true;
    std::this_thread::sleep_for(pause);
  }
}

Region Memory::add(Origin origin, ContextHandle context, std::shared_ptr<Storage> storage) {
  Region region;
  region.origin = origin;
  region.bytes = storage->bytes();
  region.context = context;
  region.ordinal = context->ordinal;
  region.bytes_at = map_storage(*storage, 0, region.bytes);
  region.storage = std::move(storage);
  region.base = reserve_addresses(region.bytes, page);
  const std::lock_guard lock(mutex_);
  regions_[last_of(region.base, region.bytes)] = region;
  return region;
}

void Memory::map(const Region& at, std::size_t offset) {
  Region region = at;
  region.bytes_at = map_storage(*region.storage, offset, region.bytes);
  const std::lock_guard lock(mutex_);
  regions_[last_of(region.base, region.bytes)] = region;
}

bool Memory::pin(Origin origin, ContextHandle context, void* data, std::size_t bytes) {
  Region region;
  region.origin = origin;
  region.base = reinterpret_cast<Address>(data);
  region.bytes = bytes;
  region.bytes_at = static_cast<std::byte*>(data);
  region.context = context;
  region.ordinal = context->ordinal;
  const std::lock_guard lock(mutex_);
  const auto next = regions_.lower_bound(region.base);
  if (next != regions_.end() && next->second.base <= last_of(region.base, bytes)) return false;
  regions_[last_of(region.base, bytes)] = region;
  return true;
}

bool Memory::remove(Address base, Origin origin, Region* removed) {
  const std::lock_guard lock(mutex_);
  Region* const found = at(base);
  if (found == nullptr || found->base != base || found->origin != origin) return false;
  if (!found->on_host()) {
    ::munmap(found->bytes_at, found->bytes);
    if (origin != Origin::mapped) free_addresses(base, found->bytes);
  }
  if (removed != nullptr) *removed = *found;
  regions_.erase(last_of(base, found->bytes));
  return true;
}

Region* Memory::at(Address address) {
  const auto found = regions_.lower_bound(address);
  return found == regions_.end() || found->second.base > address ? nullptr : &found->second;
}

bool Memory::find(Address address, Region* found) {
  const std::lock_guard lock(mutex_);
  const Region* const region = at(address);
  if (region != nullptr) *found = *region;
  return region != nullptr;
}

bool Memory::covers(Address address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  for (bool first = true; bytes != 0; first = false) {
    const Region* const region = at(address);
    if (region == nullptr || !region->accessible) return false;
    const std::size_t here = std::min(bytes, region->bytes - (address - region->base));
    if ((here != bytes || !first) && region->origin != Origin::mapped) return false;
    address += here;
    bytes -= here;
  }
  return true;
}

bool Memory::is_pinned(const void* data, std::size_t bytes) {
  const auto address = reinterpret_cast<Address>(data);
  const std::lock_guard lock(mutex_);
  const Region* const region = at(address);
  return region != nullptr && region->on_host() &&
         bytes <= region->bytes - (address - region->base);
}

std::string Memory::describe(Address address) {
  static constexpr std::array names{"memory of cuMemAlloc", "memory of cuIpcOpenMemHandle",
                                    "memory of cuMemMap", "memory of cuMemHostAlloc",
                                    "memory of cuMemHostRegister"};
  std::array<char, 160> text;
  Region region;
  if (!find(address, &region)) {
    std::snprintf(text.data(), text.size(), "0x%llx, which is not memory of a GPU or pinned",
                  static_cast<unsigned long long>(address));
  } else {
    std::snprintf(text.data(), text.size(), "0x%llx, which is byte %llu of %zu of %s",
                  static_cast<unsigned long long>(address),
                  static_cast<unsigned long long>(address - region.base), region.bytes,
                  names[static_cast<std::size_t>(region.origin)]);
  }
  return text.data();
}

std::byte* Memory::reach(Address address, std::size_t* most) {
  Region* const region = at(address);
  if (region == nullptr || !region->accessible) return nullptr;
  const std::size_t offset = address - region->base;
  *most = std::min(*most, region->bytes - offset);
  return region->bytes_at + offset;
}

std::size_t Memory::copy(Address to, Address from, std::size_t most) {
  begin_quiet();
  std::unique_lock lock(mutex_);
  std::byte* const target = reach(to, &most);
  const std::byte* const source = reach(from, &most);
  const bool possible = target != nullptr && source != nullptr;
  end_quiet();
  if (possible) std::memmove(target, source, most);
  const Quiet quiet;
  lock.unlock();
  return possible ? most : 0;
}

std::size_t Memory::fill(Address to, unsigned char value, std::size_t most) {
  begin_quiet();
  std::unique_lock lock(mutex_);
  std::byte* const target = reach(to, &most);
  end_quiet();
  if (target != nullptr) std::memset(target, value, most);
  const Quiet quiet;
  lock.unlock();
  return target == nullptr ? 0 : most;
}

void* Memory::storage_of(Address address, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::size_t most = bytes;
  std::byte* const found = reach(address, &most);
  return most == bytes ? found : nullptr;
}

Memory& memory() {
  static Memory& all = *new Memory;
  return all;
}

// A page behind each range stays unused, so that memory of two calls never adjoins.
Address reserve_addresses(std::size_t bytes, std::size_t alignment) {
  const std::size_t kept = (bytes + page - 1) / page * page + page, more = kept + alignment;
  void* const mapped =
      ::mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  const auto begin = reinterpret_cast<Address>(mapped);
  const Address base = (begin + alignment - 1) / alignment * alignment;
  if (base != begin) ::munmap(mapped, base - begin);
  if (base + kept != begin + more)
    ::munmap(reinterpret_cast<void*>(base + kept), begin + more - (base + kept));
  return base;
}

void free_addresses(Address base, std::size_t bytes) {
  ::munmap(reinterpret_cast<void*>(base), (bytes + page - 1) / page * page + page);
}

namespace {
constexpr int most_gpus = 256;
std::array<std::atomic<std::size_t>, most_gpus> used;
}  // namespace

bool take_from_gpu(int machine_gpu, std::size_t bytes) {
  auto& here = used[static_cast<std::size_t>(machine_gpu % most_gpus)];
  if (here.fetch_add(bytes) + bytes <= settings().memory) return true;
  here.fetch_sub(bytes);
  return false;
}

void give_to_gpu(int machine_gpu, std::size_t bytes) {
  used[static_cast<std::size_t>(machine_gpu % most_gpus)].fetch_sub(bytes);
}

}  // namespace fake
