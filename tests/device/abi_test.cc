// SPDX-License-Identifier: Apache-2.0
//
// Compares the table of device/driver.h with <cuda.h>. Only builds that have the header have this
// file.
#include <cuda.h>
#include <dlfcn.h>

#include <cstddef>
#include <type_traits>

#include "catch.h"
#include "device/driver.h"

using namespace rondo::device;

namespace {

// Rondo's type for one of CUDA. An enum is an int, and types of 64 bits without a sign are one.
template <class T>
struct Ours {
  using type = std::conditional_t<std::is_enum_v<T>, int, T>;
};
template <class T>
using ours = typename Ours<T>::type;
template <class T>
struct Ours<T*> {
  using type = ours<T>*;
};
template <class T>
struct Ours<const T> {
  using type = const ours<T>;
};
template <class Result, class... Parameters>
struct Ours<Result(Parameters...)> {
  using type = ours<Result>(ours<Parameters>...);
};
// clang-format off
template <> struct Ours<unsigned long long> { using type = std::uint64_t; };
template <> struct Ours<CUctx_st> { using type = ContextObject; };
template <> struct Ours<CUstream_st> { using type = StreamObject; };
template <> struct Ours<CUevent_st> { using type = EventObject; };
template <> struct Ours<CUmod_st> { using type = ModuleObject; };
template <> struct Ours<CUfunc_st> { using type = FunctionObject; };
template <> struct Ours<CUuuid> { using type = Uuid; };
template <> struct Ours<CUipcMemHandle> { using type = IpcMemoryHandle; };
template <> struct Ours<CUmemAllocationProp> { using type = AllocationProperties; };
template <> struct Ours<CUmemAccessDesc> { using type = AccessDescription; };
// clang-format on

#define SAME_TYPE(field, function) \
  static_assert(std::is_same_v<ours<decltype(CudaDriver::field)>, ours<decltype(&function)>>)
// Expands the macros of cuda.h, which give a name its version.
#define TEXT(name) #name
#define TEXT_OF(name) TEXT(name)
#define FUNCTION(field, function) \
  SAME_TYPE(field, function);     \
  CHECK(reinterpret_cast<void*>(driver.field) == ::dlsym(library, TEXT_OF(function)))

#define SAME_PLACE(ours, our_field, theirs, their_field)                     \
  static_assert(offsetof(ours, our_field) == offsetof(theirs, their_field)); \
  static_assert(sizeof(ours::our_field) == sizeof(theirs::their_field))

static_assert(sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(IpcMemoryHandle) == sizeof(CUipcMemHandle));
static_assert(alignof(IpcMemoryHandle) == alignof(CUipcMemHandle));
static_assert(sizeof(Location) == sizeof(CUmemLocation));
SAME_PLACE(Location, type, CUmemLocation, type);
SAME_PLACE(Location, id, CUmemLocation, id);
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(alignof(AllocationProperties) == alignof(CUmemAllocationProp));
SAME_PLACE(AllocationProperties, type, CUmemAllocationProp, type);
SAME_PLACE(AllocationProperties, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(AllocationProperties, location, CUmemAllocationProp, location);
SAME_PLACE(AllocationProperties, win32, CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(AllocationProperties, flags, CUmemAllocationProp, allocFlags);
SAME_PLACE(AllocationProperties, flags.compression, CUmemAllocationProp,
           allocFlags.compressionType);
SAME_PLACE(AllocationProperties, flags.gpu_direct_rdma, CUmemAllocationProp,
           allocFlags.gpuDirectRDMACapable);
SAME_PLACE(AllocationProperties, flags.usage, CUmemAllocationProp, allocFlags.usage);
SAME_PLACE(AllocationProperties, flags.reserved, CUmemAllocationProp, allocFlags.reserved);
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
SAME_PLACE(AccessDescription, location, CUmemAccessDesc, location);
SAME_PLACE(AccessDescription, flags, CUmemAccessDesc, flags);
static_assert(sizeof(CUmemGenericAllocationHandle) == sizeof(AllocationHandle));

static_assert(success == CUDA_SUCCESS && out_of_memory == CUDA_ERROR_OUT_OF_MEMORY &&
              not_ready == CUDA_ERROR_NOT_READY);
static_assert(posix_descriptor == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(AllocationProperties{}.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
              Location{}.type == CU_MEM_LOCATION_TYPE_DEVICE &&
              AccessDescription{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
// Numbers in device/objects.cc.
static_assert(CU_EVENT_DISABLE_TIMING == 2 && CU_STREAM_NON_BLOCKING == 1 &&
              CU_MEMHOSTALLOC_PORTABLE == 1);

}  // namespace

TEST_CASE("device: the table has the functions of cuda.h") {
  const LoadedDriver loaded = load_driver();
  REQUIRE(loaded.driver != nullptr);
  const CudaDriver& driver = *loaded.driver;
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(legacy_stream == reinterpret_cast<StreamHandle>(CU_STREAM_LEGACY));
  CHECK(per_thread_stream == reinterpret_cast<StreamHandle>(CU_STREAM_PER_THREAD));
  FUNCTION(get_error_name, cuGetErrorName);
  FUNCTION(get_error_string, cuGetErrorString);
  FUNCTION(init, cuInit);
  FUNCTION(driver_get_version, cuDriverGetVersion);
  FUNCTION(device_get_count, cuDeviceGetCount);
  FUNCTION(device_get, cuDeviceGet);
  FUNCTION(device_get_name, cuDeviceGetName);
  FUNCTION(device_get_uuid, cuDeviceGetUuid);
  FUNCTION(device_get_pci_bus_id, cuDeviceGetPCIBusId);
  FUNCTION(device_total_memory, cuDeviceTotalMem);
  FUNCTION(device_get_attribute, cuDeviceGetAttribute);
  FUNCTION(device_can_access_peer, cuDeviceCanAccessPeer);
  FUNCTION(primary_context_retain, cuDevicePrimaryCtxRetain);
  FUNCTION(primary_context_release, cuDevicePrimaryCtxRelease);
  FUNCTION(context_push_current, cuCtxPushCurrent);
  FUNCTION(context_pop_current, cuCtxPopCurrent);
  FUNCTION(context_enable_peer_access, cuCtxEnablePeerAccess);
  FUNCTION(context_synchronize, cuCtxSynchronize);
  FUNCTION(stream_create_with_priority, cuStreamCreateWithPriority);
  FUNCTION(stream_destroy, cuStreamDestroy);
  FUNCTION(stream_wait_event, cuStreamWaitEvent);
  FUNCTION(stream_is_capturing, cuStreamIsCapturing);
  FUNCTION(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
  FUNCTION(event_create, cuEventCreate);
  FUNCTION(event_destroy, cuEventDestroy);
  FUNCTION(event_record, cuEventRecord);
  FUNCTION(event_query, cuEventQuery);
  FUNCTION(launch_host_function, cuLaunchHostFunc);
  FUNCTION(copy_to_host, cuMemcpyDtoHAsync);
  FUNCTION(copy_to_device, cuMemcpyHtoDAsync);
  FUNCTION(copy_on_device, cuMemcpyDtoDAsync);
  FUNCTION(set_bytes, cuMemsetD8Async);
  FUNCTION(host_allocate, cuMemHostAlloc);
  FUNCTION(host_free, cuMemFreeHost);
  FUNCTION(host_register, cuMemHostRegister);
  FUNCTION(host_unregister, cuMemHostUnregister);
  FUNCTION(memory_allocate, cuMemAlloc);
  FUNCTION(memory_free, cuMemFree);
  FUNCTION(pointer_get_attributes, cuPointerGetAttributes);
  FUNCTION(memory_get_address_range, cuMemGetAddressRange);
  FUNCTION(ipc_get_memory_handle, cuIpcGetMemHandle);
  FUNCTION(ipc_open_memory_handle, cuIpcOpenMemHandle);
  FUNCTION(ipc_close_memory_handle, cuIpcCloseMemHandle);
  FUNCTION(allocation_granularity, cuMemGetAllocationGranularity);
  FUNCTION(allocation_create, cuMemCreate);
  FUNCTION(allocation_release, cuMemRelease);
  FUNCTION(allocation_export, cuMemExportToShareableHandle);
  FUNCTION(allocation_import, cuMemImportFromShareableHandle);
  FUNCTION(address_reserve, cuMemAddressReserve);
  FUNCTION(address_free, cuMemAddressFree);
  FUNCTION(memory_map, cuMemMap);
  FUNCTION(memory_unmap, cuMemUnmap);
  FUNCTION(memory_set_access, cuMemSetAccess);
  FUNCTION(module_load_data, cuModuleLoadData);
  FUNCTION(module_unload, cuModuleUnload);
  FUNCTION(module_get_function, cuModuleGetFunction);
  FUNCTION(function_load, cuFuncLoad);
  FUNCTION(launch_kernel, cuLaunchKernel);
  static_assert(sizeof(CudaDriver) == 58 * sizeof(void*));  // none is missing above
}
