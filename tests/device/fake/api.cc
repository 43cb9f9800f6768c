// SPDX-License-Identifier: Apache-2.0
//
// The driver's functions: GPUs, contexts, streams, events, modules and kernels.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "call.h"
#include "events.h"
#include "executor.h"
#include "handles.h"
#include "modules.h"
#include "settings.h"

namespace {

using namespace fake;
using rondo::device::Ordinal;
using rondo::device::Uuid;

struct Error {
  Status status;
  const char *name, *text;
};
constexpr std::array errors{
    Error{0, "CUDA_SUCCESS", "no error"},
    Error{1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    Error{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    Error{3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    Error{100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    Error{101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    Error{200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    Error{201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    Error{205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed"},
    Error{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
          "peer access is not supported between these two devices"},
    Error{400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    Error{500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    Error{600, "CUDA_ERROR_NOT_READY", "device not ready"},
    Error{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    Error{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    Error{712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
          "part or all of the requested memory range is already mapped"},
    Error{713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
          "pointer does not correspond to a registered memory region"},
    Error{719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    Error{800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    Error{801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    Error{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
          "operation not permitted when stream is capturing"},
    Error{906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
          "operation would make the legacy stream depend on a capturing blocking stream"},
    Error{999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

const Error* find_error(Status status) {
  const auto found = std::find_if(errors.begin(), errors.end(),
                                  [&](const Error& each) { return each.status == status; });
  return found == errors.end() ? nullptr : &*found;
}

// The attributes of cuda.h by number. Those that are left out are 0.
int attribute_of(int attribute, int ordinal) {
  switch (attribute) {
    case 1:  // MAX_THREADS_PER_BLOCK
      return 1024;
    case 10:  // WARP_SIZE
      return 32;
    case 16:  // MULTIPROCESSOR_COUNT
      return 16;
    case 18:  // INTEGRATED: such a GPU has no legacy IPC
      return settings().ipc ? 0 : 1;
    case 19:  // CAN_MAP_HOST_MEMORY
    case 41:  // UNIFIED_ADDRESSING
    case 91:  // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
      return 1;
    case 20:  // COMPUTE_MODE
      return settings().mode;
    case 33:  // PCI_BUS_ID
      return settings().first + ordinal + 1;
    case 40:  // ASYNC_ENGINE_COUNT
      return 2;
    case 75:  // COMPUTE_CAPABILITY_MAJOR
      return 9;
    case 102:  // VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
      return settings().vmm ? 1 : 0;
    case 103:  // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
      return settings().vmm && settings().can_export ? 1 : 0;
    default:
      return 0;
  }
}

// It lives until the process ends.
void start_helper() {
  pthread_t thread;
  const int failed = ::pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        sigset_t none;
        ::sigemptyset(&none);
        if (settings().helper == 2) ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
        for (;;) ::pause();
      },
      nullptr);
  if (failed == 0) ::pthread_detach(thread);
}

bool has_peer_access(int ordinal, int peer) {
  return ordinal != peer && settings().peers;
}

// Runs body(stream) for a handle of the API.
template <class Body>
Status with_stream(StreamHandle handle, ContextHandle context, Body body) {
  const StreamHandle stream = stream_of(handle, context);
  return stream == nullptr ? invalid_handle : body(stream);
}

}  // namespace

FAKE_EXPORT Status cuGetErrorName(Status status, const char** name) {
  const Error* const error = find_error(status);
  *name = error == nullptr ? nullptr : error->name;
  return error == nullptr ? invalid_value : 0;
}

FAKE_EXPORT Status cuGetErrorString(Status status, const char** text) {
  const Error* const error = find_error(status);
  *text = error == nullptr ? nullptr : error->text;
  return error == nullptr ? invalid_value : 0;
}

FAKE_EXPORT Status cuInit(unsigned flags) {
  const Quiet quiet;
  if (in_forked_child()) return not_initialized;
  if (flags != 0) return invalid_value;
  if (settings().init != 0) return settings().init;
  if (settings().gpus == 0) return 100;
  static std::once_flag once;
  if (settings().helper != 0) std::call_once(once, start_helper);
  set_initialized();
  return 0;
}

FAKE_EXPORT Status cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

FAKE_EXPORT Status cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", plain, [&](ContextHandle) {
    *count = settings().gpus;
    return 0;
  });
}

FAKE_EXPORT Status cuDeviceGet(Ordinal* device, int ordinal) {
  return call("cuDeviceGet", plain, [&](ContextHandle) {
    if (context_of(ordinal) == nullptr) return no_such_device;
    *device = ordinal;
    return 0;
  });
}

FAKE_EXPORT Status cuDeviceGetName(char* name, int length, Ordinal device) {
  return call("cuDeviceGetName", plain, [&](ContextHandle) {
    if (context_of(device) == nullptr) return no_such_device;
    std::snprintf(name, static_cast<std::size_t>(length), "Fake GPU");
    return 0;
  });
}

FAKE_EXPORT Status cuDeviceGetUuid_v2(Uuid* uuid, Ordinal device) {
  return call("cuDeviceGetUuid", plain, [&](ContextHandle) {
    if (context_of(device) == nullptr) return no_such_device;
    std::memcpy(uuid->bytes, "rondo fake gpu\0", sizeof uuid->bytes);
    uuid->bytes[14] = static_cast<char>(settings().host);
    uuid->bytes[15] = static_cast<char>(settings().first + device);
    return 0;
  });
}

FAKE_EXPORT Status cuDeviceGetPCIBusId(char* id, int length, Ordinal device) {
  return call("cuDeviceGetPCIBusId", plain, [&](ContextHandle) {
    if (context_of(device) == nullptr) return no_such_device;
    std::snprintf(id, static_cast<std::size_t>(length), "0000:%02X:00.0",
                  static_cast<unsigned>(settings().first + device + 1));
    return 0;
  });
}

FAKE_EXPORT Status cuDeviceTotalMem_v2(std::size_t* bytes, Ordinal device) {
  return call("cuDeviceTotalMem", plain, [&](ContextHandle) {
    if (context_of(device) == nullptr) return no_such_device;
    *bytes = settings().memory;
    return 0;
  });
}

FAKE_EXPORT Status cuDeviceGetAttribute(int* value, int attribute, Ordinal device) {
  return call("cuDeviceGetAttribute", plain, [&](ContextHandle) {
    if (context_of(device) == nullptr) return no_such_device;
    *value = attribute_of(attribute, device);
    return 0;
  });
}

FAKE_EXPORT Status cuDeviceCanAccessPeer(int* can, Ordinal device, Ordinal peer) {
  return call("cuDeviceCanAccessPeer", plain, [&](ContextHandle) {
    if (context_of(device) == nullptr || context_of(peer) == nullptr) return no_such_device;
    *can = has_peer_access(device, peer) ? 1 : 0;
    return 0;
  });
}

FAKE_EXPORT Status cuDevicePrimaryCtxRetain(ContextHandle* context, Ordinal device) {
  return call("cuDevicePrimaryCtxRetain", blocks, [&](ContextHandle) {
    const ContextHandle found = context_of(device);
    if (found == nullptr) return no_such_device;
    found->retained.fetch_add(1);
    count_handle(rondo_fake_contexts, 1);
    *context = found;
    return 0;
  });
}

FAKE_EXPORT Status cuDevicePrimaryCtxRelease_v2(Ordinal device) {
  return call("cuDevicePrimaryCtxRelease", blocks | releases, [&](ContextHandle) {
    const ContextHandle found = context_of(device);
    if (found == nullptr) return no_such_device;
    if (found->retained.load() == 0) return invalid_context;
    if (found->retained.load() == 1) executor().drain("cuDevicePrimaryCtxRelease", found);
    found->retained.fetch_sub(1);
    count_handle(rondo_fake_contexts, -1);
    return 0;
  });
}

FAKE_EXPORT Status cuCtxPushCurrent_v2(ContextHandle context) {
  return call("cuCtxPushCurrent", plain, [&](ContextHandle) {
    if (!is_context(context) || context->retained.load() == 0) return invalid_context;
    push_context(context);
    return 0;
  });
}

FAKE_EXPORT Status cuCtxPopCurrent_v2(ContextHandle* context) {
  return call("cuCtxPopCurrent", releases, [&](ContextHandle here) {
    if (here == nullptr) return invalid_context;
    if (context != nullptr) *context = here;
    pop_context();
    return 0;
  });
}

FAKE_EXPORT Status cuCtxEnablePeerAccess(ContextHandle peer, unsigned flags) {
  return call("cuCtxEnablePeerAccess", current | blocks, [&](ContextHandle context) {
    if (flags != 0) return invalid_value;
    if (!is_context(peer)) return invalid_context;
    if (!has_peer_access(context->ordinal, peer->ordinal)) return peer_access_unsupported;
    const std::lock_guard lock(context->mutex);
    return context->peers.insert(peer->ordinal).second ? 0 : peer_access_already_enabled;
  });
}

FAKE_EXPORT Status cuCtxSynchronize() {
  return call("cuCtxSynchronize", current | blocks, [](ContextHandle context) {
    executor().drain("cuCtxSynchronize", context);
    return 0;
  });
}

FAKE_EXPORT Status cuStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int) {
  return call("cuStreamCreateWithPriority", current | blocks, [&](ContextHandle context) {
    if (stream == nullptr || flags > 1) return invalid_value;
    *stream = executor().add_stream(context, flags, false);
    count_handle(rondo_fake_streams, 1);
    return 0;
  });
}

FAKE_EXPORT Status cuStreamDestroy_v2(StreamHandle stream) {
  return call("cuStreamDestroy", current | blocks | releases, [&](ContextHandle) {
    if (!executor().is_stream(stream)) return invalid_handle;
    count_handle(rondo_fake_streams, -1);
    return executor().destroy_stream(stream);
  });
}

FAKE_EXPORT Status cuStreamWaitEvent(StreamHandle handle, EventHandle event, unsigned) {
  return call("cuStreamWaitEvent", current, [&](ContextHandle context) {
    return with_stream(handle, context,
                       [&](StreamHandle stream) { return wait_for_event(stream, event); });
  });
}

FAKE_EXPORT Status cuStreamIsCapturing(StreamHandle handle, int* is_capturing) {
  return call("cuStreamIsCapturing", current, [&](ContextHandle context) {
    return with_stream(handle, context, [&](StreamHandle stream) {
      bool found = false;
      const Status status = executor().capture_status(stream, &found);
      *is_capturing = found ? 1 : 0;
      return status;
    });
  });
}

FAKE_EXPORT Status cuThreadExchangeStreamCaptureMode(int* mode) {
  return call("cuThreadExchangeStreamCaptureMode", plain, [&](ContextHandle) -> Status {
    if (*mode < 0 || *mode > rondo::device::relaxed_capture) return invalid_value;
    std::swap(*mode, capture_mode());
    return 0;
  });
}

FAKE_EXPORT Status cuEventCreate(EventHandle* event, unsigned flags) {
  return call("cuEventCreate", current | blocks, [&](ContextHandle context) {
    return flags > 7 ? invalid_value : create_event(event, context);
  });
}

FAKE_EXPORT Status cuEventDestroy_v2(EventHandle event) {
  return call("cuEventDestroy", current | blocks | releases,
              [&](ContextHandle) { return destroy_event(event); });
}

FAKE_EXPORT Status cuEventRecord(EventHandle event, StreamHandle handle) {
  return call("cuEventRecord", current, [&](ContextHandle context) {
    return with_stream(handle, context,
                       [&](StreamHandle stream) { return record_event(event, stream); });
  });
}

FAKE_EXPORT Status cuEventQuery(EventHandle event) {
  return call("cuEventQuery", current, [&](ContextHandle) { return query_event(event); });
}

FAKE_EXPORT Status cuLaunchHostFunc(StreamHandle handle, void (*function)(void*), void* argument) {
  return call("cuLaunchHostFunc", current, [&](ContextHandle context) {
    if (function == nullptr) return invalid_value;
    return with_stream(handle, context, [&](StreamHandle stream) {
      return executor().enqueue(stream, std::make_unique<HostFunctionWork>(function, argument));
    });
  });
}

FAKE_EXPORT Status cuModuleLoadData(ModuleHandle* module, const void* image) {
  return call("cuModuleLoadData", current | blocks,
              [&](ContextHandle context) { return load_module(module, image, context); });
}

FAKE_EXPORT Status cuModuleUnload(ModuleHandle module) {
  return call("cuModuleUnload", current | blocks | releases, [&](ContextHandle) {
    executor().drain("cuModuleUnload", nullptr);
    return unload_module(module);
  });
}

FAKE_EXPORT Status cuModuleGetFunction(FunctionHandle* function, ModuleHandle module,
                                       const char* name) {
  return call("cuModuleGetFunction", current | blocks,
              [&](ContextHandle) { return find_function(function, module, name); });
}

FAKE_EXPORT Status cuFuncLoad(FunctionHandle function) {
  return call("cuFuncLoad", current | blocks,
              [&](ContextHandle) { return function == nullptr ? invalid_value : 0; });
}

FAKE_EXPORT Status cuLaunchKernel(FunctionHandle function, unsigned grid_x, unsigned grid_y,
                                  unsigned grid_z, unsigned block_x, unsigned block_y,
                                  unsigned block_z, unsigned shared_bytes, StreamHandle handle,
                                  void** parameters, void** extra) {
  return call("cuLaunchKernel", current, [&](ContextHandle context) {
    const std::uint64_t threads = std::uint64_t{block_x} * block_y * block_z;
    if (grid_x == 0 || grid_y == 0 || grid_z == 0 || threads == 0 || threads > 1024 ||
        grid_y > 65535 || grid_z > 65535 || extra != nullptr)
      return invalid_value;
    return with_stream(handle, context, [&](StreamHandle stream) {
      if (stream->context != context) return invalid_handle;
      auto work = make_kernel_work(
          function,
          {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, parameters},
          context);
      return work == nullptr ? invalid_handle : executor().enqueue(stream, std::move(work));
    });
  });
}
