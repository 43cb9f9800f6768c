// SPDX-License-Identifier: Apache-2.0
#include "device/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "base/signals.h"
#include "device/gpu.h"

namespace rondo::device {
namespace {

constexpr const char* library_name = "libcuda.so.1";

// Looks functions up and remembers the first that is missing.
class Lookup {
 public:
  explicit Lookup(void* library) noexcept : library_(library) {}
  template <class Function>
  void find(Function& function, const char* name) noexcept {
    find_newer(function, name);
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  // Leaves a null where the driver is older than the function.
  template <class Function>
  void find_newer(Function& function, const char* name) noexcept {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
  }
  const char* missing() const noexcept { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

// Returns the name of a function that is missing, or null. Each name carries the version that
// cuda.h gives it by a macro: the one without a version takes other types.
const char* look_up(void* library, CudaDriver& driver) noexcept {
  Lookup lookup(library);
  lookup.find(driver.get_error_name, "cuGetErrorName");
  lookup.find(driver.get_error_string, "cuGetErrorString");
  lookup.find(driver.init, "cuInit");
  lookup.find(driver.driver_get_version, "cuDriverGetVersion");
  lookup.find(driver.device_get_count, "cuDeviceGetCount");
  lookup.find(driver.device_get, "cuDeviceGet");
  lookup.find(driver.device_get_name, "cuDeviceGetName");
  lookup.find(driver.device_get_uuid, "cuDeviceGetUuid_v2");
  lookup.find(driver.device_get_pci_bus_id, "cuDeviceGetPCIBusId");
  lookup.find(driver.device_total_memory, "cuDeviceTotalMem_v2");
  lookup.find(driver.device_get_attribute, "cuDeviceGetAttribute");
  lookup.find(driver.device_can_access_peer, "cuDeviceCanAccessPeer");
  lookup.find(driver.primary_context_retain, "cuDevicePrimaryCtxRetain");
  lookup.find(driver.primary_context_release, "cuDevicePrimaryCtxRelease_v2");
  lookup.find(driver.context_push_current, "cuCtxPushCurrent_v2");
  lookup.find(driver.context_pop_current, "cuCtxPopCurrent_v2");
  lookup.find(driver.context_enable_peer_access, "cuCtxEnablePeerAccess");
  lookup.find(driver.context_synchronize, "cuCtxSynchronize");
  lookup.find(driver.stream_create_with_priority, "cuStreamCreateWithPriority");
  lookup.find(driver.stream_destroy, "cuStreamDestroy_v2");
  lookup.find(driver.stream_wait_event, "cuStreamWaitEvent");
  lookup.find(driver.stream_is_capturing, "cuStreamIsCapturing");
  lookup.find(driver.thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  lookup.find(driver.event_create, "cuEventCreate");
  lookup.find(driver.event_destroy, "cuEventDestroy_v2");
  lookup.find(driver.event_record, "cuEventRecord");
  lookup.find(driver.event_query, "cuEventQuery");
  lookup.find(driver.launch_host_function, "cuLaunchHostFunc");
  lookup.find(driver.copy_to_host, "cuMemcpyDtoHAsync_v2");
  lookup.find(driver.copy_to_device, "cuMemcpyHtoDAsync_v2");
  lookup.find(driver.copy_on_device, "cuMemcpyDtoDAsync_v2");
  lookup.find(driver.set_bytes, "cuMemsetD8Async");
  lookup.find(driver.host_allocate, "cuMemHostAlloc");
  lookup.find(driver.host_free, "cuMemFreeHost");
  lookup.find(driver.host_register, "cuMemHostRegister_v2");
  lookup.find(driver.host_unregister, "cuMemHostUnregister");
  lookup.find(driver.memory_allocate, "cuMemAlloc_v2");
  lookup.find(driver.memory_free, "cuMemFree_v2");
  lookup.find(driver.pointer_get_attributes, "cuPointerGetAttributes");
  lookup.find(driver.memory_get_address_range, "cuMemGetAddressRange_v2");
  lookup.find(driver.ipc_get_memory_handle, "cuIpcGetMemHandle");
  lookup.find(driver.ipc_open_memory_handle, "cuIpcOpenMemHandle_v2");
  lookup.find(driver.ipc_close_memory_handle, "cuIpcCloseMemHandle");
  lookup.find(driver.allocation_granularity, "cuMemGetAllocationGranularity");
  lookup.find(driver.allocation_create, "cuMemCreate");
  lookup.find(driver.allocation_release, "cuMemRelease");
  lookup.find(driver.allocation_export, "cuMemExportToShareableHandle");
  lookup.find(driver.allocation_import, "cuMemImportFromShareableHandle");
  lookup.find(driver.address_reserve, "cuMemAddressReserve");
  lookup.find(driver.address_free, "cuMemAddressFree");
  lookup.find(driver.memory_map, "cuMemMap");
  lookup.find(driver.memory_unmap, "cuMemUnmap");
  lookup.find(driver.memory_set_access, "cuMemSetAccess");
  lookup.find(driver.module_load_data, "cuModuleLoadData");
  lookup.find(driver.module_unload, "cuModuleUnload");
  lookup.find(driver.module_get_function, "cuModuleGetFunction");
  lookup.find_newer(driver.function_load, "cuFuncLoad");
  lookup.find(driver.launch_kernel, "cuLaunchKernel");
  return lookup.missing();
}

}  // namespace

LoadedDriver load_driver() {
  void* const library = ::dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    return {nullptr, fmt::format("no CUDA driver here: {}; install the driver of the GPU",
                                 reason != nullptr ? reason : library_name)};
  }
  auto driver = std::make_unique<CudaDriver>();
  const char* const missing = look_up(library, *driver);
  // Gives back the count of dlopen(). RTLD_NODELETE keeps the library loaded.
  ::dlclose(library);
  if (missing != nullptr)
    return {nullptr,
            fmt::format("{} has no {}: it is older than CUDA 12; install a newer driver of "
                        "the GPU",
                        library_name, missing)};
  const Status status = [&] {
    const base::BlockedSignals blocked;  // cuInit starts threads
    return driver->init(0);
  }();
  if (status != success)
    return {nullptr,
            fmt::format("the CUDA driver does not start: cuInit: {}; nvidia-smi shows whether the "
                        "driver finds the GPU",
                        describe(*driver, status))};
  return {std::move(driver), {}};
}

}  // namespace rondo::device
