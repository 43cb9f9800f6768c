// SPDX-License-Identifier: Apache-2.0
//
// A CUDA driver for tests, without a GPU. It is a shared object with the name libcuda.so.1 and the
// functions of device/driver.h. A program that finds it through LD_LIBRARY_PATH uses it as it would
// use the real one; nothing of Rondo is replaced.
//
// It does as a real driver does:
// - Device memory cannot be touched by the host: its addresses have no access rights, and the bytes
//   are mapped elsewhere.
// - Work on streams runs later, on a thread of the fake. It takes the heads of all streams in an
//   order drawn by a seed, and large copies in pieces, so work of several streams interleaves.
// - A thread without a current context gets CUDA_ERROR_INVALID_CONTEXT, a forked child
//   CUDA_ERROR_NOT_INITIALIZED, a host function that calls the driver CUDA_ERROR_NOT_PERMITTED.
// - An error of work is sticky: each later call that needs the context returns it. Functions that
//   release something release it all the same. Work that has not begun is dropped.
// - Memory is shared between processes by descriptors (cuMemCreate) and by handles
//   (cuIpcGetMemHandle).
// Instead of undefined behaviour it prints "fake CUDA: ..." and aborts. So it does when host memory
// of a copy is not pinned, when memory goes away before work that uses it, and when memory is freed
// that another process has opened by its handle. What it leaves out: streams do not wait for the
// legacy stream, nor it for them; nothing is captured; a kernel may reach every GPU's memory;
// priorities have no effect.
//
// TSan sees the ordering that CUDA promises and no other: a call that enqueues happens before its
// work; work of a stream happens in order; an event happens before the cuEventQuery that returns
// success, and before work that waits for it. Each stream counts as a thread of its own. The locks
// and the memory of the fake itself are hidden from TSan.
//
// FAKE_CUDA holds settings for a process: "gpus=2,seed=7".
//
// clang-format off
//   gpus=N         GPUs that the process sees (1)
//   first=N        the machine's number of its GPU 0, which names it in the UUID and PCI address (0)
//   host=N         the number of the machine, for the UUID (0)
//   mode=N         the compute mode of each GPU (0)
//   seed=N         draws the order and the delays of work (1)
//   delay_us=N     each work waits up to so long at the head of its stream (20)
//   piece=N        copies run in pieces of so many bytes (262144)
//   memory_mib=N   memory of each GPU (4096)
//   peers=0, export=0, ipc=0, vmm=0    as rondo_fake_allow(); with ipc=0 a GPU is integrated
//   helper=N       1: cuInit starts a thread, as a real driver does; 2: which takes all signals
//   init=S         cuInit fails with this status
//   fail=F:N:S     as rondo_fake_fail(F, N, 1, S); may be repeated
//   leaks=fail     a process that exits with objects alive prints them and has exit status 97
//   hang_s=N       a function that waits for streams aborts after so long (30)
// clang-format on
//
// Tests use FakeCuda, below, which finds the control functions. All are thread-safe.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
// The kinds of objects that are counted.
enum RondoFakeKind {
  rondo_fake_contexts,       // cuDevicePrimaryCtxRetain
  rondo_fake_streams,        // cuStreamCreateWithPriority
  rondo_fake_events,         // cuEventCreate
  rondo_fake_host_memory,    // cuMemHostAlloc and cuMemHostRegister
  rondo_fake_device_memory,  // cuMemAlloc
  rondo_fake_allocations,    // cuMemCreate and cuMemImportFromShareableHandle
  rondo_fake_reservations,   // cuMemAddressReserve
  rondo_fake_mappings,       // cuMemMap and cuIpcOpenMemHandle
  rondo_fake_modules,        // cuModuleLoadData
  rondo_fake_kinds
};
// One launch of a kernel that was compiled for the host. parameters[i] points to a copy of the i-th
// parameter.
struct RondoFakeLaunch {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void** parameters;
};
// A kernel runs once for a launch, with loops over the grid. Returns 0, or the status that becomes
// the sticky error of the context.
typedef int RondoFakeKernel(const RondoFakeLaunch*);
}

class FakeCuda {
 public:
  using Address = std::uint64_t;

  // Whether libcuda.so.1 is the fake. Loads it. With RONDO_TEST_REAL_CUDA it passes for a real one.
  static bool here() { return std::getenv("RONDO_TEST_REAL_CUDA") == nullptr && needs_kernels(); }
  // Whether kernels must be registered: it is the fake, even if it passes for a real one.
  static bool needs_kernels() { return look_up("rondo_fake_alive") != nullptr; }
  // The first line of a test case that uses the functions below: "if (FakeCuda::missing())
  // return;". Over a real driver it prints why the case is skipped; ./dev gpu counts these lines.
  static bool missing() {
    if (here()) return false;
    std::puts("skipped: it controls the fake CUDA driver, and this driver is a real one");
    return true;
  }

  // Memory of a GPU. Aborts where there is none.
  void write(Address to, const void* from, std::size_t bytes) const {
    find<void(Address, const void*, std::size_t)>("rondo_fake_write")(to, from, bytes);
  }
  void read(void* to, Address from, std::size_t bytes) const {
    find<void(void*, Address, std::size_t)>("rondo_fake_read")(to, from, bytes);
  }
  // Where the host reaches memory of a GPU, for kernels. Valid while the memory lives.
  void* storage(Address address, std::size_t bytes) const {
    return find<void*(Address, std::size_t)>("rondo_fake_storage")(address, bytes);
  }
  // name: in the image of every module. parameter_bytes: the size of each parameter.
  void register_kernel(const char* name, RondoFakeKernel* run, unsigned parameters,
                       const std::size_t* parameter_bytes) const {
    find<void(const char*, RondoFakeKernel*, unsigned, const std::size_t*)>(
        "rondo_fake_register_kernel")(name, run, parameters, parameter_bytes);
  }

  // The nth call of the function from now (1: the next) and the times - 1 calls after it return
  // status. times -1: all calls after it. function: as in "cuMemAlloc", without _v2, or "any". A
  // function that releases something releases it and returns status.
  void fail(const char* function, unsigned nth, int times, int status) const {
    find<void(const char*, unsigned, int, int)>("rondo_fake_fail")(function, nth, times, status);
  }
  // While on, calls of the function do not return. Only for functions that may block.
  void stall(const char* function, bool on) const {
    find<void(const char*, int)>("rondo_fake_stall")(function, on);
  }
  // The nth work that runs from now breaks its GPU instead.
  void fail_work(unsigned nth, int status) const {
    find<void(unsigned, int)>("rondo_fake_fail_work")(nth, status);
  }
  // Makes status the sticky error of the GPU's context; 0: it has none, as after a new start.
  void break_gpu(int ordinal, int status = 700) const {
    find<void(int, int)>("rondo_fake_break")(ordinal, status);
  }
  // Allows or forbids a feature: "peers", "export" (otherwise 801), "ipc" (otherwise 801), "vmm"
  // (the attribute of virtual memory, and cuMemCreate).
  void allow(const char* what, bool on) const {
    find<void(const char*, int)>("rondo_fake_allow")(what, on);
  }
  // Forgets fail() and fail_work(), allows everything again, and lets all streams run.
  void clear() const { find<void()>("rondo_fake_clear")(); }

  // The stream (null: every stream) does not run until it is let go. Work that has begun goes on to
  // the end of its piece; hold() waits for that. A stream that is held by its own handle is let go
  // by it only. What ran comes before hold() returns, and what runs later after let_go().
  void hold(void* stream = nullptr) const { find<void(void*)>("rondo_fake_hold")(stream); }
  void let_go(void* stream = nullptr) const { find<void(void*)>("rondo_fake_let_go")(stream); }
  // Waits until all streams are empty, as cuCtxSynchronize does.
  void settle() const { find<void()>("rondo_fake_settle")(); }
  // The stream says that it is capturing, and enqueues nothing.
  void capture(void* stream, bool on) const {
    find<void(void*, int)>("rondo_fake_capture")(stream, on);
  }

  // While on, this thread aborts in a function that may block in CUDA.
  void forbid_blocking(bool on) const { find<void(int)>("rondo_fake_forbid_blocking")(on); }
  // How many calls of functions that may block this thread has made.
  unsigned long blocking_calls() const {
    return find<unsigned long()>("rondo_fake_blocking_calls")();
  }
  // How many calls of a function, or of "any", this process has made.
  unsigned long calls(const char* function) const {
    return find<unsigned long(const char*)>("rondo_fake_calls")(function);
  }
  // A function that says whether this thread runs code of the fake itself. It allocates nothing.
  using Inside = int();
  Inside* inside() const { return find<Inside>("rondo_fake_is_inside"); }
  // How many objects of this kind are alive.
  long alive(RondoFakeKind kind) const { return find<long(int)>("rondo_fake_alive")(kind); }

 private:
  static void* library() {
    static void* const handle = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return handle;
  }
  static void* look_up(const char* name) { return ::dlsym(library(), name); }
  template <class Function>
  static Function* find(const char* name) {
    void* const found = look_up(name);
    if (found == nullptr) {
      std::fprintf(stderr, "libcuda.so.1 has no %s: LD_LIBRARY_PATH does not name the fake\n",
                   name);
      std::abort();
    }
    return reinterpret_cast<Function*>(found);
  }
};
