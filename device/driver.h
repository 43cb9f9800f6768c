// SPDX-License-Identifier: Apache-2.0
//
// CUDA's driver as a table of functions, looked up in libcuda.so.1 at run time: one binary serves
// machines with and without a GPU. The types are Rondo's own, so everything above compiles without
// CUDA's headers; tests/device/abi_test.cc compares them with <cuda.h>.
//
// Source of names and meanings: CUDA Driver API, version 13.0. The functions are those of CUDA 12
// and later. Thread-safe, as the driver is. Most functions need a current context on the calling
// thread (gpu.h, Current).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace rondo::device {

using Status = int;             // CUresult; 0: success
using Address = std::uint64_t;  // CUdeviceptr: in device memory, or pinned host memory
using Ordinal = int;            // CUdevice, from 0

struct ContextObject;
struct StreamObject;
struct EventObject;
struct ModuleObject;
struct FunctionObject;
using ContextHandle = ContextObject*;
using StreamHandle = StreamObject*;
using EventHandle = EventObject*;
using ModuleHandle = ModuleObject*;
using FunctionHandle = FunctionObject*;
using AllocationHandle = std::uint64_t;  // CUmemGenericAllocationHandle

// The values of CUresult that Rondo tells apart.
inline constexpr Status success = 0, out_of_memory = 2, not_ready = 600;
// While any thread of the program captures a stream, calls of other threads break the capture
// unless they have this mode.
inline constexpr int relaxed_capture = 2;
// The default streams: of the process, and of each thread.
inline const StreamHandle legacy_stream = reinterpret_cast<StreamHandle>(1);
inline const StreamHandle per_thread_stream = reinterpret_cast<StreamHandle>(2);

struct Uuid {
  char bytes[16];
};
struct IpcMemoryHandle {
  char bytes[64];
};
struct Location {
  int type = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};
// CUmemAllocationProp
struct AllocationProperties {
  int type = 1;  // CU_MEM_ALLOCATION_TYPE_PINNED
  int handle_types = 0;
  Location location;
  void* win32 = nullptr;
  struct {
    unsigned char compression = 0;
    unsigned char gpu_direct_rdma = 0;
    unsigned short usage = 0;
    unsigned char reserved[4] = {};
  } flags;
};
// CUmemAccessDesc
struct AccessDescription {
  Location location;
  int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};
inline constexpr int posix_descriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

struct CudaDriver {
  // Errors and the driver itself.
  Status (*get_error_name)(Status, const char**);
  Status (*get_error_string)(Status, const char**);
  Status (*init)(unsigned flags);
  Status (*driver_get_version)(int*);
  // Devices.
  Status (*device_get_count)(int*);
  Status (*device_get)(Ordinal*, int);
  Status (*device_get_name)(char*, int length, Ordinal);
  Status (*device_get_uuid)(Uuid*, Ordinal);
  Status (*device_get_pci_bus_id)(char*, int length, Ordinal);
  Status (*device_total_memory)(std::size_t*, Ordinal);
  Status (*device_get_attribute)(int*, int attribute, Ordinal);
  Status (*device_can_access_peer)(int*, Ordinal device, Ordinal peer);
  // Contexts.
  Status (*primary_context_retain)(ContextHandle*, Ordinal);
  Status (*primary_context_release)(Ordinal);
  Status (*context_push_current)(ContextHandle);
  Status (*context_pop_current)(ContextHandle*);
  Status (*context_enable_peer_access)(ContextHandle peer, unsigned flags);
  Status (*context_synchronize)();  // waits for all work of the current context
  // Streams and events.
  Status (*stream_create_with_priority)(StreamHandle*, unsigned flags, int priority);
  Status (*stream_destroy)(StreamHandle);
  Status (*stream_wait_event)(StreamHandle, EventHandle, unsigned flags);
  Status (*stream_is_capturing)(StreamHandle, int*);
  // Takes the mode of the thread, and gives back the one before: relaxed_capture, say.
  Status (*thread_exchange_capture_mode)(int* mode);
  Status (*event_create)(EventHandle*, unsigned flags);
  Status (*event_destroy)(EventHandle);
  Status (*event_record)(EventHandle, StreamHandle);
  Status (*event_query)(EventHandle);
  Status (*launch_host_function)(StreamHandle, void (*function)(void*), void* argument);
  // Copies, which are asynchronous where the host memory is pinned.
  Status (*copy_to_host)(void* to, Address from, std::size_t bytes, StreamHandle);
  Status (*copy_to_device)(Address to, const void* from, std::size_t bytes, StreamHandle);
  Status (*copy_on_device)(Address to, Address from, std::size_t bytes, StreamHandle);
  Status (*set_bytes)(Address to, unsigned char value, std::size_t bytes, StreamHandle);
  // Memory.
  Status (*host_allocate)(void**, std::size_t bytes, unsigned flags);
  Status (*host_free)(void*);
  Status (*host_register)(void*, std::size_t bytes, unsigned flags);
  Status (*host_unregister)(void*);
  Status (*memory_allocate)(Address*, std::size_t bytes);
  Status (*memory_free)(Address);
  Status (*pointer_get_attributes)(unsigned count, int* attributes, void** values, Address);
  Status (*memory_get_address_range)(Address* base, std::size_t* bytes, Address);
  // Memory that processes share.
  Status (*ipc_get_memory_handle)(IpcMemoryHandle*, Address);
  Status (*ipc_open_memory_handle)(Address*, IpcMemoryHandle, unsigned flags);
  Status (*ipc_close_memory_handle)(Address);
  Status (*allocation_granularity)(std::size_t*, const AllocationProperties*, int option);
  Status (*allocation_create)(AllocationHandle*, std::size_t bytes, const AllocationProperties*,
                              unsigned long long flags);
  Status (*allocation_release)(AllocationHandle);
  Status (*allocation_export)(void* shareable, AllocationHandle, int type,
                              unsigned long long flags);
  Status (*allocation_import)(AllocationHandle*, void* shareable, int type);
  Status (*address_reserve)(Address*, std::size_t bytes, std::size_t alignment, Address,
                            unsigned long long flags);
  Status (*address_free)(Address, std::size_t bytes);
  Status (*memory_map)(Address, std::size_t bytes, std::size_t offset, AllocationHandle,
                       unsigned long long flags);
  Status (*memory_unmap)(Address, std::size_t bytes);
  Status (*memory_set_access)(Address, std::size_t bytes, const AccessDescription*,
                              std::size_t count);
  // Kernels.
  Status (*module_load_data)(ModuleHandle*, const void* image);
  Status (*module_unload)(ModuleHandle);
  Status (*module_get_function)(FunctionHandle*, ModuleHandle, const char* name);
  Status (*function_load)(FunctionHandle);  // null before CUDA 12.4
  Status (*launch_kernel)(FunctionHandle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z,
                          unsigned shared_bytes, StreamHandle, void** parameters, void** extra);
};

// The result of load_driver(): the driver, or why there is none, with the remedy.
struct LoadedDriver {
  std::unique_ptr<const CudaDriver> driver;
  std::string obstacle;
};
// Looks up libcuda.so.1 and initializes it. Thread-safe. The library stays loaded until the process
// ends, because it has threads of its own.
LoadedDriver load_driver();

}  // namespace rondo::device
