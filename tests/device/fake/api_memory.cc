// SPDX-License-Identifier: Apache-2.0
//
// The driver's functions: memory, copies, and memory that processes share.
#include <cstdlib>
#include <new>

#include "call.h"
#include "executor.h"
#include "handles.h"
#include "settings.h"
#include "sharing.h"

namespace {

using namespace fake;
using rondo::device::AllocationHandle;
using rondo::device::AllocationProperties;
using rondo::device::out_of_memory;

// The body of a function that allocates; the system may refuse.
template <class Body>
auto allocating(Body body) {
  return [body](ContextHandle context) -> Status {
    try {
      return body(context);
    } catch (const std::bad_alloc&) {
      return out_of_memory;
    }
  };
}

Status enqueue(StreamHandle handle, ContextHandle context, std::unique_ptr<Work> work) {
  const StreamHandle stream = stream_of(handle, context);
  return stream == nullptr ? invalid_handle : executor().enqueue(stream, std::move(work));
}

// CUDA would copy at once, or wait for the stream. Rondo means to do neither.
void check_pinned(const char* function, const void* data, std::size_t bytes) {
  if (bytes != 0 && !memory().is_pinned(data, bytes))
    stop_test(std::string(function) + ": not all of " + std::to_string(bytes) +
              " bytes are pinned host memory at " +
              memory().describe(reinterpret_cast<Address>(data)));
}

// The attributes of cuda.h by number. False: this one is not known.
bool write_attribute(int attribute, void* value, const Region* region, Address address) {
  const auto flag = [&](bool on) { *static_cast<unsigned char*>(value) = on ? 1 : 0; };
  switch (attribute) {
    case 1:  // CONTEXT
      *static_cast<ContextHandle*>(value) = region == nullptr ? nullptr : region->context;
      return true;
    case 2:  // MEMORY_TYPE: 1 host, 2 device
      *static_cast<unsigned*>(value) = region == nullptr ? 0 : region->on_host() ? 1 : 2;
      return true;
    case 3:  // DEVICE_POINTER
      *static_cast<Address*>(value) = region == nullptr ? 0 : address;
      return true;
    case 4:  // HOST_POINTER
      *static_cast<void**>(value) =
          region == nullptr || !region->on_host() ? nullptr : reinterpret_cast<void*>(address);
      return true;
    case 8:  // IS_MANAGED
      flag(false);
      return true;
    case 9:  // DEVICE_ORDINAL
      *static_cast<int*>(value) = region == nullptr ? 0 : region->ordinal;
      return true;
    case 10:  // IS_LEGACY_CUDA_IPC_CAPABLE
      flag(region != nullptr && region->origin == Origin::allocated);
      return true;
    case 11:  // RANGE_START_ADDR
      *static_cast<Address*>(value) = region == nullptr          ? 0
                                      : region->reservation != 0 ? region->reservation
                                                                 : region->base;
      return true;
    case 12:  // RANGE_SIZE
      *static_cast<std::size_t*>(value) = region == nullptr          ? 0
                                          : region->reservation != 0 ? region->reservation_bytes
                                                                     : region->bytes;
      return true;
    case 13:  // MAPPED
      flag(region != nullptr);
      return true;
    case 14:  // ALLOWED_HANDLE_TYPES
      *static_cast<std::uint64_t*>(value) =
          region == nullptr ? 0 : static_cast<std::uint64_t>(region->handle_types);
      return true;
    default:
      return false;
  }
}

}  // namespace

FAKE_EXPORT Status cuMemAlloc_v2(Address* address, std::size_t bytes) {
  return call("cuMemAlloc", current | blocks, allocating([&](ContextHandle context) -> Status {
                if (address == nullptr || bytes == 0) return invalid_value;
                const int machine_gpu = settings().first + context->ordinal;
                if (!take_from_gpu(machine_gpu, bytes)) return out_of_memory;
                auto storage = std::make_shared<Storage>(machine_gpu, bytes);
                *address = memory().add(Origin::allocated, context, std::move(storage)).base;
                count_handle(rondo_fake_device_memory, 1);
                return 0;
              }));
}

FAKE_EXPORT Status cuMemFree_v2(Address address) {
  return call("cuMemFree", current | blocks | releases, [&](ContextHandle) {
    if (address == 0) return 0;
    executor().drain("cuMemFree", nullptr);
    Region removed;
    if (!memory().remove(address, Origin::allocated, &removed)) return invalid_value;
    if (removed.storage->is_opened())
      stop_test("cuMemFree of memory that another process has opened by its handle");
    give_to_gpu(removed.storage->machine_gpu(), removed.bytes);
    count_handle(rondo_fake_device_memory, -1);
    return 0;
  });
}

FAKE_EXPORT Status cuMemHostAlloc(void** data, std::size_t bytes, unsigned flags) {
  return call("cuMemHostAlloc", current | blocks, [&](ContextHandle context) {
    if (data == nullptr || bytes == 0 || flags > 7) return invalid_value;
    *data = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (*data == nullptr) return out_of_memory;
    memory().pin(Origin::host_allocated, context, *data, bytes);
    count_handle(rondo_fake_host_memory, 1);
    return 0;
  });
}

FAKE_EXPORT Status cuMemFreeHost(void* data) {
  return call("cuMemFreeHost", current | blocks | releases, [&](ContextHandle) {
    executor().drain("cuMemFreeHost", nullptr);
    if (!memory().remove(reinterpret_cast<Address>(data), Origin::host_allocated))
      return invalid_value;
    std::free(data);
    count_handle(rondo_fake_host_memory, -1);
    return 0;
  });
}

FAKE_EXPORT Status cuMemHostRegister_v2(void* data, std::size_t bytes, unsigned flags) {
  return call("cuMemHostRegister", current | blocks, [&](ContextHandle context) {
    if (data == nullptr || bytes == 0 || flags > 15) return invalid_value;
    if (!memory().pin(Origin::host_registered, context, data, bytes)) return already_registered;
    count_handle(rondo_fake_host_memory, 1);
    return 0;
  });
}

FAKE_EXPORT Status cuMemHostUnregister(void* data) {
  return call("cuMemHostUnregister", current | blocks | releases, [&](ContextHandle) {
    if (!memory().remove(reinterpret_cast<Address>(data), Origin::host_registered))
      return not_registered;
    count_handle(rondo_fake_host_memory, -1);
    return 0;
  });
}

FAKE_EXPORT Status cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes,
                                        StreamHandle stream) {
  return call("cuMemcpyDtoHAsync", current, [&](ContextHandle context) {
    if (!memory().covers(from, bytes)) return invalid_value;
    check_pinned("cuMemcpyDtoHAsync", to, bytes);
    return enqueue(stream, context,
                   std::make_unique<CopyWork>("cuMemcpyDtoHAsync", reinterpret_cast<Address>(to),
                                              from, bytes));
  });
}

FAKE_EXPORT Status cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes,
                                        StreamHandle stream) {
  return call("cuMemcpyHtoDAsync", current, [&](ContextHandle context) {
    if (!memory().covers(to, bytes)) return invalid_value;
    check_pinned("cuMemcpyHtoDAsync", from, bytes);
    return enqueue(stream, context,
                   std::make_unique<CopyWork>("cuMemcpyHtoDAsync", to,
                                              reinterpret_cast<Address>(from), bytes));
  });
}

FAKE_EXPORT Status cuMemcpyDtoDAsync_v2(Address to, Address from, std::size_t bytes,
                                        StreamHandle stream) {
  return call("cuMemcpyDtoDAsync", current, [&](ContextHandle context) {
    if (!memory().covers(to, bytes) || !memory().covers(from, bytes)) return invalid_value;
    return enqueue(stream, context,
                   std::make_unique<CopyWork>("cuMemcpyDtoDAsync", to, from, bytes));
  });
}

FAKE_EXPORT Status cuMemsetD8Async(Address to, unsigned char value, std::size_t bytes,
                                   StreamHandle stream) {
  return call("cuMemsetD8Async", current, [&](ContextHandle context) {
    if (!memory().covers(to, bytes)) return invalid_value;
    return enqueue(stream, context, std::make_unique<FillWork>(to, value, bytes));
  });
}

// Needs no current context, as in CUDA.
FAKE_EXPORT Status cuPointerGetAttributes(unsigned count, int* attributes, void** values,
                                          Address address) {
  return call("cuPointerGetAttributes", plain, [&](ContextHandle) {
    Region region;
    const bool is_known = memory().find(address, &region);
    for (unsigned at = 0; at < count; ++at)
      if (!write_attribute(attributes[at], values[at], is_known ? &region : nullptr, address))
        return invalid_value;
    return 0;
  });
}

FAKE_EXPORT Status cuMemGetAddressRange_v2(Address* base, std::size_t* bytes, Address address) {
  return call("cuMemGetAddressRange", current, [&](ContextHandle) {
    Region region;
    if (!memory().find(address, &region)) return not_found;
    if (base != nullptr) *base = region.base;
    if (bytes != nullptr) *bytes = region.bytes;
    return 0;
  });
}

FAKE_EXPORT Status cuIpcGetMemHandle(rondo::device::IpcMemoryHandle* handle, Address address) {
  return call("cuIpcGetMemHandle", current | blocks,
              [&](ContextHandle) { return make_handle(handle, address); });
}

FAKE_EXPORT Status cuIpcOpenMemHandle_v2(Address* address, rondo::device::IpcMemoryHandle handle,
                                         unsigned flags) {
  return call("cuIpcOpenMemHandle", current | blocks,
              allocating([&](ContextHandle context) -> Status {
                constexpr unsigned lazy_enable_peer_access = 1;
                if (flags != lazy_enable_peer_access) return invalid_value;
                return open_handle(address, handle, context);
              }));
}

FAKE_EXPORT Status cuIpcCloseMemHandle(Address address) {
  return call("cuIpcCloseMemHandle", current | blocks | releases,
              [&](ContextHandle) { return close_handle(address); });
}

// The functions of virtual memory need no current context, as in CUDA.
FAKE_EXPORT Status cuMemGetAllocationGranularity(std::size_t* bytes,
                                                 const AllocationProperties* properties, int) {
  return call("cuMemGetAllocationGranularity", plain, [&](ContextHandle) {
    if (bytes == nullptr || properties == nullptr) return invalid_value;
    *bytes = granularity;
    return 0;
  });
}

FAKE_EXPORT Status cuMemCreate(AllocationHandle* handle, std::size_t bytes,
                               const AllocationProperties* properties, unsigned long long flags) {
  return call("cuMemCreate", blocks, allocating([&](ContextHandle) -> Status {
                if (properties == nullptr || flags != 0) return invalid_value;
                if (!settings().vmm) return not_supported;
                return create_allocation(handle, bytes, *properties);
              }));
}

FAKE_EXPORT Status cuMemRelease(AllocationHandle handle) {
  return call("cuMemRelease", blocks | releases,
              [&](ContextHandle) { return release_allocation(handle); });
}

FAKE_EXPORT Status cuMemExportToShareableHandle(void* shareable, AllocationHandle handle, int type,
                                                unsigned long long flags) {
  return call("cuMemExportToShareableHandle", blocks, [&](ContextHandle) {
    if (type != rondo::device::posix_descriptor || flags != 0) return invalid_value;
    return export_allocation(static_cast<int*>(shareable), handle);
  });
}

FAKE_EXPORT Status cuMemImportFromShareableHandle(AllocationHandle* handle, void* shareable,
                                                  int type) {
  return call("cuMemImportFromShareableHandle", blocks, [&](ContextHandle) {
    if (type != rondo::device::posix_descriptor) return invalid_value;
    return import_allocation(handle, static_cast<int>(reinterpret_cast<std::intptr_t>(shareable)));
  });
}

FAKE_EXPORT Status cuMemAddressReserve(Address* base, std::size_t bytes, std::size_t alignment,
                                       Address, unsigned long long flags) {
  return call("cuMemAddressReserve", blocks, allocating([&](ContextHandle) -> Status {
                return flags != 0 ? invalid_value : reserve(base, bytes, alignment);
              }));
}

FAKE_EXPORT Status cuMemAddressFree(Address base, std::size_t bytes) {
  return call("cuMemAddressFree", blocks | releases,
              [&](ContextHandle) { return free_reservation(base, bytes); });
}

FAKE_EXPORT Status cuMemMap(Address at, std::size_t bytes, std::size_t offset,
                            AllocationHandle handle, unsigned long long flags) {
  return call("cuMemMap", blocks, allocating([&](ContextHandle) -> Status {
                return flags != 0 ? invalid_value : map_allocation(at, bytes, offset, handle);
              }));
}

FAKE_EXPORT Status cuMemUnmap(Address at, std::size_t bytes) {
  return call("cuMemUnmap", blocks | releases,
              [&](ContextHandle) { return unmap_range(at, bytes); });
}

FAKE_EXPORT Status cuMemSetAccess(Address at, std::size_t bytes,
                                  const rondo::device::AccessDescription* access,
                                  std::size_t count) {
  return call("cuMemSetAccess", blocks, [&](ContextHandle) {
    for (std::size_t each = 0; each < count; ++each)
      if (access[each].location.type != 1 || context_of(access[each].location.id) == nullptr ||
          access[each].flags != 3)
        return invalid_value;
    return count == 0 ? invalid_value : give_access(at, bytes);
  });
}
