// SPDX-License-Identifier: Apache-2.0
#include "sharing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <stdexcept>

#include "handles.h"
#include "settings.h"

namespace fake {
namespace {

using rondo::device::AllocationHandle;
using rondo::device::out_of_memory;

// Physical memory; its own GPU counts it until nothing in this process holds it.
class Allocation {
 public:
  Allocation(std::shared_ptr<Storage> storage, int ordinal, int handle_types, bool is_counted)
      : storage_(std::move(storage)),
        ordinal_(ordinal),
        handle_types_(handle_types),
        is_counted_(is_counted) {}
  ~Allocation() {
    if (is_counted_) give_to_gpu(storage_->machine_gpu(), storage_->bytes());
  }
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  const std::shared_ptr<Storage>& storage() const { return storage_; }
  int ordinal() const { return ordinal_; }
  int handle_types() const { return handle_types_; }

 private:
  const std::shared_ptr<Storage> storage_;
  const int ordinal_, handle_types_;
  const bool is_counted_;
};

struct Sharing {
  std::mutex mutex;
  AllocationHandle last_handle = 0x1000;
  std::map<AllocationHandle, std::shared_ptr<Allocation>> allocations;
  std::map<Address, std::shared_ptr<Allocation>> mapped;  // by address
  std::map<Address, std::size_t> reservations;            // by address
};
Sharing& sharing() {
  static Sharing& all = *new Sharing;
  return all;
}

// The 64 bytes of a handle.
struct Handle {
  char magic[8];
  int process, descriptor;
  unsigned long inode;
};
constexpr char handle_magic[8] = {'f', 'a', 'k', 'e', ' ', 'i', 'p', 'c'};
static_assert(sizeof(Handle) <= sizeof(rondo::device::IpcMemoryHandle));

AllocationHandle keep(Sharing& all, std::shared_ptr<Allocation> allocation) {
  all.last_handle += 0x10;
  all.allocations[all.last_handle] = std::move(allocation);
  count_handle(rondo_fake_allocations, 1);
  return all.last_handle;
}

bool is_whole(Address at, std::size_t bytes) {
  return bytes != 0 && at % granularity == 0 && bytes % granularity == 0;
}

}  // namespace

Status create_allocation(AllocationHandle* handle, std::size_t bytes,
                         const rondo::device::AllocationProperties& properties) {
  if (handle == nullptr || properties.type != 1 || properties.location.type != 1 ||
      (properties.handle_types & ~rondo::device::posix_descriptor) != 0 || !is_whole(0, bytes))
    return invalid_value;
  if (context_of(properties.location.id) == nullptr) return no_such_device;
  if (properties.handle_types != 0 && !settings().can_export.load()) return not_supported;
  const int machine_gpu = settings().first + properties.location.id;
  if (!take_from_gpu(machine_gpu, bytes)) return out_of_memory;
  auto allocation =
      std::make_shared<Allocation>(std::make_shared<Storage>(machine_gpu, bytes),
                                   properties.location.id, properties.handle_types, true);
  const std::lock_guard lock(sharing().mutex);
  *handle = keep(sharing(), std::move(allocation));
  return 0;
}

Status release_allocation(AllocationHandle handle) {
  const std::lock_guard lock(sharing().mutex);
  if (sharing().allocations.erase(handle) == 0) return invalid_value;
  count_handle(rondo_fake_allocations, -1);
  return 0;
}

Status export_allocation(int* descriptor, AllocationHandle handle) {
  if (!settings().can_export.load()) return not_supported;
  const std::lock_guard lock(sharing().mutex);
  const auto found = sharing().allocations.find(handle);
  if (descriptor == nullptr || found == sharing().allocations.end() ||
      found->second->handle_types() == 0)
    return invalid_value;
  const int copy = ::fcntl(found->second->storage()->descriptor(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return out_of_memory;
  *descriptor = copy;
  return 0;
}

Status import_allocation(AllocationHandle* handle, int descriptor) {
  if (!settings().can_export.load()) return not_supported;
  const int copy = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (handle == nullptr || copy < 0) return invalid_value;
  std::shared_ptr<Storage> storage;
  try {
    storage = std::make_shared<Storage>(copy);
  } catch (const std::invalid_argument&) {
    ::close(copy);
    return invalid_value;
  }
  const int ordinal = storage->machine_gpu() - settings().first;
  const std::lock_guard lock(sharing().mutex);
  *handle = keep(sharing(), std::make_shared<Allocation>(std::move(storage), ordinal,
                                                         rondo::device::posix_descriptor, false));
  return 0;
}

Status reserve(Address* base, std::size_t bytes, std::size_t alignment) {
  if (base == nullptr || !is_whole(0, bytes) || (alignment & (alignment - 1)) != 0)
    return invalid_value;
  *base = reserve_addresses(bytes, std::max(alignment, granularity));
  const std::lock_guard lock(sharing().mutex);
  sharing().reservations[*base] = bytes;
  count_handle(rondo_fake_reservations, 1);
  return 0;
}

Status free_reservation(Address base, std::size_t bytes) {
  const std::lock_guard lock(sharing().mutex);
  Sharing& all = sharing();
  const auto found = all.reservations.find(base);
  if (found == all.reservations.end() || found->second != bytes) return invalid_value;
  const auto first = all.mapped.lower_bound(base);
  if (first != all.mapped.end() && first->first < base + bytes) return invalid_value;
  free_addresses(base, bytes);
  all.reservations.erase(found);
  count_handle(rondo_fake_reservations, -1);
  return 0;
}

Status map_allocation(Address at, std::size_t bytes, std::size_t offset, AllocationHandle handle) {
  const std::lock_guard lock(sharing().mutex);
  Sharing& all = sharing();
  const auto allocation = all.allocations.find(handle);
  // CUDA demands that the offset be 0.
  if (!is_whole(at, bytes) || offset != 0 || allocation == all.allocations.end() ||
      bytes > allocation->second->storage()->bytes())
    return invalid_value;
  auto reservation = all.reservations.upper_bound(at);
  if (reservation == all.reservations.begin()) return invalid_value;
  --reservation;
  if (at + bytes > reservation->first + reservation->second) return invalid_value;
  const auto next = all.mapped.lower_bound(at);
  Region before;
  if ((next != all.mapped.end() && next->first < at + bytes) || memory().find(at, &before))
    return invalid_value;
  Region region;
  region.origin = Origin::mapped;
  region.base = at;
  region.bytes = bytes;
  region.ordinal = allocation->second->ordinal();
  region.storage = allocation->second->storage();
  region.reservation = reservation->first;
  region.reservation_bytes = reservation->second;
  region.handle_types = allocation->second->handle_types();
  region.accessible = false;
  memory().map(region, offset);
  all.mapped[at] = allocation->second;
  count_handle(rondo_fake_mappings, 1);
  return 0;
}

Status unmap_range(Address at, std::size_t bytes) {
  const std::lock_guard lock(sharing().mutex);
  // The range must consist of whole mappings; it is checked before anything changes.
  for (Address next = at; next < at + bytes;) {
    Region region;
    if (!memory().find(next, &region) || region.origin != Origin::mapped || region.base != next ||
        next + region.bytes > at + bytes)
      return invalid_value;
    next += region.bytes;
  }
  if (bytes == 0) return invalid_value;
  for (Address next = at; next < at + bytes;) {
    Region region;
    memory().remove(next, Origin::mapped, &region);
    sharing().mapped.erase(next);
    count_handle(rondo_fake_mappings, -1);
    next += region.bytes;
  }
  return 0;
}

Status give_access(Address at, std::size_t bytes) {
  std::size_t found = 0;
  memory().for_each([&](Region& region) {
    if (region.origin != Origin::mapped || region.base < at ||
        region.base + region.bytes > at + bytes)
      return;
    region.accessible = true;
    found += region.bytes;
  });
  return bytes != 0 && found == bytes ? 0 : invalid_value;
}

Status make_handle(rondo::device::IpcMemoryHandle* handle, Address address) {
  if (!settings().ipc.load()) return not_supported;
  Region region;
  if (handle == nullptr || !memory().find(address, &region) || region.origin != Origin::allocated)
    return invalid_value;
  Handle made{};
  std::memcpy(made.magic, handle_magic, sizeof handle_magic);
  made.process = ::getpid();
  made.descriptor = region.storage->descriptor();
  made.inode = region.storage->inode();
  *handle = {};
  std::memcpy(handle->bytes, &made, sizeof made);
  return 0;
}

Status open_handle(Address* address, const rondo::device::IpcMemoryHandle& handle,
                   ContextHandle context) {
  if (!settings().ipc.load()) return not_supported;
  Handle given;
  std::memcpy(&given, handle.bytes, sizeof given);
  if (address == nullptr || std::memcmp(given.magic, handle_magic, sizeof handle_magic) != 0)
    return invalid_value;
  if (given.process == ::getpid()) return invalid_context;  // as CUDA does
  bool is_open = false;
  memory().for_each([&](Region& region) {
    if (region.origin != Origin::opened || region.storage->inode() != given.inode ||
        region.context != context)
      return;
    is_open = true;
    ++region.opened;
    *address = region.base;
  });
  if (is_open) return 0;
  const std::string path =
      "/proc/" + std::to_string(given.process) + "/fd/" + std::to_string(given.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return map_failed;
  std::shared_ptr<Storage> storage;
  try {
    storage = std::make_shared<Storage>(descriptor);
  } catch (const std::invalid_argument&) {
    ::close(descriptor);
    return map_failed;
  }
  if (storage->inode() != given.inode) return map_failed;
  storage->mark_opened();
  *address = memory().add(Origin::opened, context, std::move(storage)).base;
  count_handle(rondo_fake_mappings, 1);
  return 0;
}

Status close_handle(Address address) {
  bool is_used = false, is_known = false;
  memory().for_each([&](Region& region) {
    if (region.origin != Origin::opened || region.base != address) return;
    is_known = true;
    is_used = --region.opened != 0;
  });
  if (!is_known) return invalid_value;
  if (is_used) return 0;
  memory().remove(address, Origin::opened);
  count_handle(rondo_fake_mappings, -1);
  return 0;
}

}  // namespace fake
