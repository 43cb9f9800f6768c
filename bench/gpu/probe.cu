// SPDX-License-Identifier: Apache-2.0
//
// Measures what one GPU does when processes share it, without Rondo: what the design of buffers on
// GPUs rests on. It needs the CUDA driver only.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 bench/gpu/probe.cu -o probe && ./probe [latency]
//
// Prints one JSON object for each experiment:
//   latency   how soon the host sees that work on a stream is done, by 1, 2, 4 and 8 processes
//   turns     copies and sums of large memory, by 1, 2, 4 and 8 processes at once
//   killed    a process dies in a kernel on memory of another one, and the other way round
#include <cuda.h>
#include <cuda_runtime.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  std::_Exit(1);
}
void check(CUresult status, const char* what) {
  if (status == CUDA_SUCCESS) return;
  std::fprintf(stderr, "%s: CUresult %d\n", what, static_cast<int>(status));
  std::_Exit(1);
}

// The driver is looked up at run time, as the library of CUDA does.
template <class Function>
Function* driver(const char* name, unsigned version = 12000) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  check(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result), name);
  if (found == nullptr) {
    std::fprintf(stderr, "%s: the driver has none\n", name);
    std::_Exit(1);
  }
  return reinterpret_cast<Function*>(found);
}

__global__ void nothing() {}
__global__ void raise_flag(volatile std::uint32_t* flag, std::uint32_t value) {
  *flag = value;
  __threadfence_system();
}
__global__ void fill(std::uint32_t* to, std::size_t count, std::uint32_t value) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x)
    to[i] = value + static_cast<std::uint32_t>(i);
}
// 2 reads and one store of 16 bytes.
__global__ void sum(float4* to, const float4* a, const float4* b, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const float4 x = a[i], y = b[i];
    to[i] = {x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
  }
}
// Writes again and again for so many nanoseconds.
__global__ void write_for(std::uint32_t* to, std::size_t count, std::uint64_t nanoseconds) {
  std::uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  std::uint32_t round = 0;
  do {
    ++round;
    for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
         i += std::size_t{gridDim.x} * blockDim.x)
      to[i] = round;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

// Shared by the processes of an experiment.
struct Board {
  std::atomic<int> arrived[64];
  double values[16][32];
};

Board* new_board() {
  void* const memory =
      ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  return new (memory) Board{};
}

// Ends the process if another one does not come.
void meet(Board& board, int point, int processes) {
  board.arrived[point].fetch_add(1);
  const Clock::time_point begin = Clock::now();
  while (board.arrived[point].load() < processes) {
    if (seconds_since(begin) > 20) {
      std::fprintf(stderr, "another process has not come to point %d\n", point);
      std::_Exit(1);
    }
    ::sched_yield();
  }
}

// Runs body(index) in so many processes, none of which has used CUDA. Returns whether all ended
// well.
bool in_processes(int processes, const std::function<void(int)>& body) {
  std::fflush(stdout);
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      body(i);
      std::fflush(stdout);
      std::_Exit(0);
    }
    children.push_back(child);
  }
  bool good = true;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// ---- latency ----

constexpr const char* ways[] = {"kernel, event asked",
                                "kernel that writes to the host",
                                "8 B to the host, event",
                                "16 KiB to the host, event",
                                "16 KiB to the GPU, event",
                                "stream write value",
                                "kernel, event that sleeps",
                                "kernel, host function",
                                "8 B to the GPU, event",
                                "128 KiB to the GPU, event",
                                "16 KiB by cuMemcpyDtoDAsync from the host, event",
                                "16 KiB in rows to the GPU, event",
                                "stream write value on the GPU, event",
                                "16 KiB on the GPU, event",
                                "kernel that reads the host, event",
                                "16 KiB to the GPU in a batch beside kernels, event",
                                "8 B to the GPU in a batch beside kernels, event",
                                "16 KiB to the GPU, even and odd rows, event",
                                "16 KiB to the GPU, rows without gaps, event",
                                "64 KiB to the GPU, event",
                                "65 KiB to the GPU, event"};
constexpr int way_count = 21, rounds = 200;

class Latency {
 public:
  // The median in microseconds, from before the first call until the host has seen the end.
  double measure(int way) {
    std::vector<double> times;
    for (int i = 0; i < rounds + 20; ++i) {
      const Clock::time_point begin = Clock::now();
      once(way, static_cast<std::uint32_t>(i + 1));
      if (i >= 20) times.push_back(1e6 * seconds_since(begin));
    }
    return median(times);
  }

 private:
  void once(int way, std::uint32_t number) {
    switch (way) {
      case 0:
        nothing<<<1, 32, 0, stream_>>>();
        return ask();
      case 1:
        raise_flag<<<1, 1, 0, stream_>>>(flag_, number);
        return see(number);
      case 2:
        check(cudaMemcpyAsync(pinned_, memory_, 8, cudaMemcpyDeviceToHost, stream_), "copy");
        return ask();
      case 3:
        check(cudaMemcpyAsync(pinned_, memory_, 16384, cudaMemcpyDeviceToHost, stream_), "copy");
        return ask();
      case 4:
        check(cudaMemcpyAsync(memory_, pinned_, 16384, cudaMemcpyHostToDevice, stream_), "copy");
        return ask();
      case 5:
        check(write_value_(stream_, reinterpret_cast<CUdeviceptr>(flag_), number, 0),
              "write value");
        return see(number);
      case 6:
        nothing<<<1, 32, 0, stream_>>>();
        check(cudaEventRecord(sleeping_, stream_), "record");
        return check(cudaEventSynchronize(sleeping_), "wait");
      case 8:
        check(cudaMemcpyAsync(memory_, pinned_, 8, cudaMemcpyHostToDevice, stream_), "copy");
        return ask();
      case 9:
        check(cudaMemcpyAsync(memory_, pinned_, most, cudaMemcpyHostToDevice, stream_), "copy");
        return ask();
      case 10:
        check(copy_on_device_(address(memory_), address(pinned_), 16384, stream_), "copy");
        return ask();
      case 11:
        check(cudaMemcpy2DAsync(memory_, 1024, pinned_, 1024, 512, 32, cudaMemcpyHostToDevice,
                                stream_),
              "copy");
        return ask();
      case 12:
        check(write_value_(stream_, address(memory_), number, 0), "write value");
        return ask();
      case 13:
        check(cudaMemcpyAsync(memory_, static_cast<char*>(memory_) + 65536, 16384,
                              cudaMemcpyDeviceToDevice, stream_),
              "copy");
        return ask();
      case 14:
        sum<<<4, 256, 0, stream_>>>(static_cast<float4*>(memory_), static_cast<float4*>(pinned_),
                                    static_cast<float4*>(pinned_), 1024);
        return ask();
      case 15:
        return copy_in_batch(16384);
      case 16:
        return copy_in_batch(8);
      case 17:
        for (const std::size_t at : {0, 4096})
          check(cudaMemcpy2DAsync(static_cast<char*>(memory_) + at, 8192,
                                  static_cast<char*>(pinned_) + at, 8192, 4096, 2,
                                  cudaMemcpyHostToDevice, stream_),
                "copy");
        return ask();
      case 18:
        check(
            cudaMemcpy2DAsync(memory_, 512, pinned_, 512, 512, 32, cudaMemcpyHostToDevice, stream_),
            "copy");
        return ask();
      case 19:
        check(cudaMemcpyAsync(memory_, pinned_, 65536, cudaMemcpyHostToDevice, stream_), "copy");
        return ask();
      case 20:
        check(cudaMemcpyAsync(memory_, pinned_, 66560, cudaMemcpyHostToDevice, stream_), "copy");
        return ask();
      default:
        nothing<<<1, 32, 0, stream_>>>();
        called_.store(0);
        check(cudaLaunchHostFunc(
                  stream_, [](void* called) { static_cast<std::atomic<int>*>(called)->store(1); },
                  &called_),
              "host function");
        while (called_.load() == 0) {
        }
    }
  }
  void copy_in_batch(std::size_t bytes) {
    CUdeviceptr to = address(memory_), from = address(pinned_);
    CUmemcpyAttributes how{};
    how.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    how.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    std::size_t first = 0;
    check(copy_batch_(&to, &from, &bytes, 1, &how, &first, 1, stream_), "batch");
    ask();
  }
  void ask() {
    check(cudaEventRecord(event_, stream_), "record");
    for (;;) {
      const cudaError_t status = cudaEventQuery(event_);
      if (status == cudaSuccess) return;
      if (status != cudaErrorNotReady) check(status, "query");
    }
  }
  void see(std::uint32_t number) const {
    while (*const_cast<volatile std::uint32_t*>(flag_) != number) {
    }
  }

  template <class T>
  static T* make_pinned(std::size_t bytes) {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped), "pinned memory");
    std::memset(memory, 0, bytes);
    return static_cast<T*>(memory);
  }
  static cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    return stream;
  }
  static cudaEvent_t make_event(unsigned flags) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, flags), "event");
    return event;
  }
  static void* make_memory(std::size_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "memory");
    return memory;
  }

  // The process ends soon and gives it all back.
  cudaStream_t stream_ = make_stream();
  cudaEvent_t event_ = make_event(cudaEventDisableTiming);
  cudaEvent_t sleeping_ = make_event(cudaEventDisableTiming | cudaEventBlockingSync);
  std::uint32_t* flag_ = make_pinned<std::uint32_t>(64);
  static constexpr std::size_t most = 131072;
  static CUdeviceptr address(void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

  void* pinned_ = make_pinned<void>(most);
  void* memory_ = make_memory(most);
  std::atomic<int> called_{0};
  CUresult (*write_value_)(CUstream, CUdeviceptr, cuuint32_t, unsigned) =
      driver<CUresult(CUstream, CUdeviceptr, cuuint32_t, unsigned)>("cuStreamWriteValue32");
  CUresult (*copy_on_device_)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) =
      driver<CUresult(CUdeviceptr, CUdeviceptr, std::size_t, CUstream)>("cuMemcpyDtoDAsync");
  CUresult (*copy_batch_)(const CUdeviceptr*, const CUdeviceptr*, const std::size_t*, std::size_t,
                          CUmemcpyAttributes*, std::size_t*, std::size_t, CUstream) =
      driver<CUresult(const CUdeviceptr*, const CUdeviceptr*, const std::size_t*, std::size_t,
                      CUmemcpyAttributes*, std::size_t*, std::size_t, CUstream)>(
          "cuMemcpyBatchAsync", 13000);
};

void latency(int processes) {
  Board& board = *new_board();
  const bool good = in_processes(processes, [&](int index) {
    Latency latency;
    for (int way = 0; way < way_count; ++way) {
      meet(board, way, processes);
      board.values[index][way] = latency.measure(way);
    }
  });
  std::printf("{\"experiment\": \"latency\", \"processes\": %d, \"complete\": %s", processes,
              good ? "true" : "false");
  for (int way = 0; way < way_count; ++way) {
    double worst = 0;
    for (int i = 0; i < processes; ++i) worst = std::max(worst, board.values[i][way]);
    std::printf(", \"%s us\": %.2f", ways[way], worst);
  }
  std::printf("}\n");
}

// ---- turns ----

constexpr std::size_t large = std::size_t{256} << 20;

// All at once for about a second: GB/s of loads and stores, together.
void turns(int processes) {
  Board& board = *new_board();
  const bool good = in_processes(processes, [&](int index) {
    float4* memory[3] = {};
    for (float4*& one : memory) {
      check(cudaMalloc(&one, large), "memory");
      fill<<<1024, 256>>>(reinterpret_cast<std::uint32_t*>(one), large / 4, 0x3f000000);
    }
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    check(cudaDeviceSynchronize(), "fill");
    for (int kind = 0; kind < 4; ++kind) {
      // 0: copies; 1: sums; 2: sums of 16 MiB, waited for one by one; 3: as 2, longest of all
      const std::size_t bytes = kind < 2 ? large : std::size_t{16} << 20;
      std::vector<double> times;
      meet(board, kind, processes);
      const Clock::time_point begin = Clock::now();
      double moved = 0;
      while (seconds_since(begin) < 0.4) {
        const Clock::time_point start = Clock::now();
        if (kind == 0)
          check(cudaMemcpyAsync(memory[0], memory[1], bytes, cudaMemcpyDeviceToDevice, stream),
                "copy");
        else
          sum<<<1056, 256, 0, stream>>>(memory[0], memory[1], memory[2], bytes / sizeof(float4));
        check(cudaStreamSynchronize(stream), "work");
        times.push_back(1e6 * seconds_since(start));
        moved += static_cast<double>(bytes) * (kind == 0 ? 2 : 3);
      }
      board.values[index][kind] =
          kind == 3 ? *std::ranges::max_element(times) : moved / seconds_since(begin) / 1e9;
      board.values[index][kind + 4] = median(times);
    }
  });
  double totals[8] = {};
  for (int i = 0; i < processes; ++i)
    for (int kind = 0; kind < 8; ++kind)
      totals[kind] = kind < 3 ? totals[kind] + board.values[i][kind]
                              : std::max(totals[kind], board.values[i][kind]);
  std::printf(
      "{\"experiment\": \"turns\", \"processes\": %d, \"complete\": %s, \"copies GB/s\": %.0f, "
      "\"copy p50 us\": %.1f, "
      "\"sums GB/s\": %.0f, \"sum p50 us\": %.1f, \"sums of 16 MiB GB/s\": %.0f, \"sum of 16 MiB "
      "p50 us\": %.1f, "
      "\"longest us\": %.1f}\n",
      processes, good ? "true" : "false", totals[0], totals[4], totals[1], totals[5], totals[2],
      totals[6], totals[3]);
}

// ---- killed ----

constexpr std::size_t shared_bytes = std::size_t{64} << 20;

void send_descriptor(int socket, int descriptor) {
  char byte = 'd';
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (::sendmsg(socket, &message, 0) != 1) std::_Exit(1);
}

int receive_descriptor(int socket) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(socket, &message, 0) != 1) std::_Exit(1);
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof descriptor);
  return descriptor;
}

CUmemAllocationProp properties() {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = 0;
  return wanted;
}

std::uint32_t* map(CUmemGenericAllocationHandle handle) {
  CUdeviceptr address = 0;
  check(driver<CUresult(CUdeviceptr*, std::size_t, std::size_t, CUdeviceptr, unsigned long long)>(
            "cuMemAddressReserve")(&address, shared_bytes, 0, 0, 0),
        "cuMemAddressReserve");
  check(driver<CUresult(CUdeviceptr, std::size_t, std::size_t, CUmemGenericAllocationHandle,
                        unsigned long long)>("cuMemMap")(address, shared_bytes, 0, handle, 0),
        "cuMemMap");
  CUmemAccessDesc access{};
  access.location = properties().location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(driver<CUresult(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t)>(
            "cuMemSetAccess")(address, shared_bytes, &access, 1),
        "cuMemSetAccess");
  return reinterpret_cast<std::uint32_t*>(address);
}

std::uint32_t* own(int socket) {
  check(cudaFree(nullptr), "context");
  const CUmemAllocationProp wanted = properties();
  CUmemGenericAllocationHandle handle = 0;
  check(driver<CUresult(CUmemGenericAllocationHandle*, std::size_t, const CUmemAllocationProp*,
                        unsigned long long)>("cuMemCreate")(&handle, shared_bytes, &wanted, 0),
        "cuMemCreate");
  int descriptor = -1;
  check(driver<CUresult(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                        unsigned long long)>("cuMemExportToShareableHandle")(
            &descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle");
  send_descriptor(socket, descriptor);
  return map(handle);
}

std::uint32_t* import(int socket) {
  check(cudaFree(nullptr), "context");
  const auto descriptor = static_cast<std::intptr_t>(receive_descriptor(socket));
  CUmemGenericAllocationHandle handle = 0;
  check(driver<CUresult(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType)>(
            "cuMemImportFromShareableHandle")(&handle, reinterpret_cast<void*>(descriptor),
                                              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle");
  return map(handle);
}

// One process runs a kernel of two seconds on the memory of the other; one of both is killed after
// half a second. The other must then be able to use the GPU and the memory.
void killed(bool owner_dies) {
  int sockets[2] = {};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) std::abort();
  Board& board = *new_board();
  std::fflush(stdout);
  pid_t children[2] = {};
  for (int i = 0; i < 2; ++i) {
    children[i] = ::fork();
    if (children[i] != 0) continue;
    const bool owner = i == 0;
    std::uint32_t* const memory = owner ? own(sockets[0]) : import(sockets[1]);
    nothing<<<1, 1>>>();
    check(cudaDeviceSynchronize(), "the first kernel");
    meet(board, 0, 3);
    cudaStream_t long_one = nullptr;
    check(cudaStreamCreateWithFlags(&long_one, cudaStreamNonBlocking), "stream");
    if (!owner) write_for<<<1024, 256, 0, long_one>>>(memory, shared_bytes / 4, 2'000'000'000);
    meet(board, 1, 3);
    if (owner == owner_dies)
      for (;;) ::pause();
    // Until the parent has killed the other.
    while (board.arrived[2].load() == 0) ::sched_yield();
    const Clock::time_point begin = Clock::now();
    if (!owner) {
      const cudaError_t status = cudaStreamSynchronize(long_one);
      board.values[0][0] = seconds_since(begin);
      board.values[0][1] = status;
    }
    fill<<<1024, 256>>>(memory, shared_bytes / 4, 7);
    std::uint32_t value = 0;
    cudaError_t status = cudaMemcpy(&value, memory + 1000, sizeof value, cudaMemcpyDeviceToHost);
    board.values[0][2] = seconds_since(begin);
    board.values[0][3] = status;
    board.values[0][4] = value == 1007;
    void* more = nullptr;
    status = cudaMalloc(&more, large);
    if (status == cudaSuccess) status = cudaMemset(more, 1, large);
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    board.values[0][5] = status;
    std::_Exit(0);
  }
  meet(board, 0, 3);
  meet(board, 1, 3);
  // Both kernels run by then; nothing tells the host when a kernel has begun.
  ::usleep(500'000);
  ::kill(children[owner_dies ? 0 : 1], SIGKILL);
  const Clock::time_point begin = Clock::now();
  board.arrived[2].store(1);
  int status = 0;
  ::waitpid(children[owner_dies ? 0 : 1], nullptr, 0);
  const double gone = seconds_since(begin);
  ::waitpid(children[owner_dies ? 1 : 0], &status, 0);
  const double(&v)[32] = board.values[0];
  std::printf(
      "{\"experiment\": \"killed\", \"who\": \"%s\", \"complete\": %s, \"gone after s\": %.3f, "
      "\"kernel of the other s\": %.3f, "
      "\"its status\": %.0f, \"memory used after s\": %.3f, \"status\": %.0f, \"value\": %s, "
      "\"status of new memory\": %.0f}\n",
      owner_dies ? "the owner of the memory" : "who runs a kernel on it",
      WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "true" : "false", gone, v[0], v[1], v[2],
      v[3], v[4] != 0 ? "true" : "false", v[5]);
}

}  // namespace

int main(int count, char**) {
  ::alarm(100);
  for (const int processes : {1, 2, 4, 8}) latency(processes);
  if (count > 1) return 0;
  for (const int processes : {1, 2, 4, 8}) turns(processes);
  killed(false);
  killed(true);
}
