// SPDX-License-Identifier: Apache-2.0
//
// device/ over the fake driver.
#include "device/objects.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "catch.h"
#include "one_gpu.h"
#include "own_program.h"

using namespace rondo::device;
using Catch::Contains;

namespace {

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr char image[] = "fake module";

long objects_alive(const FakeCuda& fake) {
  long sum = 0;
  for (int kind = 0; kind < rondo_fake_kinds; ++kind)
    sum += fake.alive(static_cast<RondoFakeKind>(kind));
  return sum;
}

}  // namespace

TEST_CASE("device: each object of the driver is released once, also after a move") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  REQUIRE(one.fake.alive(rondo_fake_contexts) == 1);
  const long before = objects_alive(one.fake);
  {
    Event event(one.gpu);
    Stream stream(one.gpu), urgent(one.gpu, true);
    PinnedMemory pinned(one.gpu, 100);
    DeviceMemory memory(one.gpu, mebibyte);
    Module module(one.gpu, image);
    CHECK(objects_alive(one.fake) == before + 6);
    CHECK(pinned.bytes() == 100);
    CHECK(memory.bytes() == mebibyte);

    const Event other_event(std::move(event));
    const Stream other_stream(std::move(stream));
    const PinnedMemory other_pinned(std::move(pinned));
    const DeviceMemory other_memory(std::move(memory));
    const Module other_module(std::move(module));
    CHECK(other_pinned.data() != nullptr);
    CHECK(other_memory.address() != 0);
    CHECK(other_memory.bytes() == mebibyte);
    CHECK(objects_alive(one.fake) == before + 6);
  }
  CHECK(objects_alive(one.fake) == before);
}

TEST_CASE("device: shared memory is released once, also after a move and when it cannot be made") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  CHECK(why_not_shared(one.gpu).empty());
  const long before = objects_alive(one.fake);
  {
    SharedMemory memory(one.gpu, 1);
    CHECK(memory.bytes() == 2 * mebibyte);
    CHECK(objects_alive(one.fake) == before + 3);
    const SharedMemory other(std::move(memory));
    const int descriptor = other.export_descriptor();
    const SharedMemory imported(one.gpu, descriptor, other.bytes());
    ::close(descriptor);
    CHECK(imported.address() != other.address());
    CHECK(objects_alive(one.fake) == before + 6);
  }
  CHECK(objects_alive(one.fake) == before);
  for (const char* const function : {"cuMemGetAllocationGranularity", "cuMemCreate",
                                     "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    one.fake.fail(function, 1, 1, 2);
    CHECK_THROWS_WITH(SharedMemory(one.gpu, 1), Contains(function) && Contains("OUT_OF_MEMORY"));
    CHECK(objects_alive(one.fake) == before);
  }
  one.fake.allow("export", false);
  CHECK(why_not_shared(one.gpu) == "its driver exports no memory as descriptors");
  one.fake.allow("vmm", false);
  CHECK(why_not_shared(one.gpu) == "its driver has no virtual memory management");
}

TEST_CASE("device: objects make the context current themselves, and only for the call") {
  if (FakeCuda::missing()) return;
  const LoadedDriver loaded = load_driver();
  REQUIRE(loaded.driver != nullptr);
  const Gpu gpu(*loaded.driver, 1);
  Event event(gpu);
  {
    const Stream stream(gpu);
    const PinnedMemory pinned(gpu, 1);
    const DeviceMemory memory(gpu, 1);
    const Module module(gpu, image);
    CHECK(module.function("fake_fill") != nullptr);
  }
  ContextHandle context = nullptr;
  CHECK(gpu.driver().context_pop_current(&context) == 201);
  CHECK(event.query() == 201);
  const Current current(gpu);
  CHECK(event.query() == success);
}

TEST_CASE("device: bytes go to a GPU, on it and back") {
  const OneGpu one;
  const std::size_t bytes = 3 * mebibyte + 17;
  const PinnedMemory from(one.gpu, bytes), to(one.gpu, bytes);
  const DeviceMemory first(one.gpu, bytes), second(one.gpu, bytes);
  Stream stream(one.gpu), back(one.gpu, true);
  Event copied(one.gpu), ended(one.gpu);
  for (std::size_t at = 0; at < bytes; ++at) from.data()[at] = static_cast<std::byte>(at * 7 / 3);
  std::memset(to.data(), 0, bytes);

  const CudaDriver& driver = one.driver;
  REQUIRE(driver.copy_to_device(first.address(), from.data(), bytes, stream.get()) == success);
  REQUIRE(driver.copy_on_device(second.address(), first.address(), bytes, stream.get()) == success);
  REQUIRE(driver.set_bytes(second.address() + 5, 0xee, 3, stream.get()) == success);
  REQUIRE(copied.record(stream.get()) == success);
  REQUIRE(back.wait(copied) == success);
  REQUIRE(driver.copy_to_host(to.data(), second.address(), bytes, back.get()) == success);
  REQUIRE(ended.record(back.get()) == success);
  REQUIRE(one.wait(ended) == success);
  std::memset(from.data() + 5, 0xee, 3);
  CHECK(std::memcmp(from.data(), to.data(), bytes) == 0);
}

TEST_CASE("device: a kernel runs after what its stream held before it") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const PinnedMemory to(one.gpu, 100);
  const DeviceMemory memory(one.gpu, 100);
  const Module module(one.gpu, image);
  const Stream stream(one.gpu);
  Event ended(one.gpu);
  const FunctionHandle fill = module.function("fake_fill");

  Address address = memory.address();
  std::uint64_t bytes = 50;
  unsigned char value = 9;
  void* parameters[] = {&address, &bytes, &value};
  REQUIRE(one.driver.set_bytes(address, 3, 100, stream.get()) == success);
  REQUIRE(one.driver.launch_kernel(fill, 1, 1, 1, 32, 1, 1, 0, stream.get(), parameters, nullptr) ==
          success);
  address = bytes = value = 0;  // the launch has copied them
  REQUIRE(one.driver.copy_to_host(to.data(), memory.address(), 100, stream.get()) == success);
  REQUIRE(ended.record(stream.get()) == success);
  REQUIRE(one.wait(ended) == success);
  CHECK(std::count(to.data(), to.data() + 50, std::byte{9}) == 50);
  CHECK(std::count(to.data() + 50, to.data() + 100, std::byte{3}) == 50);

  CHECK_THROWS_WITH(module.function("no_such_kernel"),
                    "cuModuleGetFunction of no_such_kernel on GPU 0: CUDA_ERROR_NOT_FOUND (named "
                    "symbol not found)");
}

TEST_CASE("device: errors name the function, the GPU and the driver's words") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  CHECK(gpu_count(one.driver) == 2);
  CHECK_THROWS_WITH(Gpu(one.driver, 2),
                    "there is no GPU 2: this process sees 2 GPUs, numbered from 0 to 1; check "
                    "CUDA_VISIBLE_DEVICES");
  CHECK_THROWS_WITH(Gpu(one.driver, -1), Contains("there is no GPU -1"));
  CHECK(one.gpu.text(700, "cuEventQuery") ==
        "cuEventQuery on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was "
        "encountered)");
  CHECK(describe(one.driver, 12345) == "CUDA error 12345, which this driver does not know");

  const long before = objects_alive(one.fake);
  one.fake.fail("cuMemAlloc", 1, 1, out_of_memory);
  CHECK_THROWS_WITH(DeviceMemory(one.gpu, mebibyte),
                    "cuMemAlloc of 1 MiB on GPU 0: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  one.fake.fail("cuMemHostAlloc", 1, 1, out_of_memory);
  CHECK_THROWS_WITH(PinnedMemory(one.gpu, 100), Contains("cuMemHostAlloc of 100 B on GPU 0"));
  one.fake.fail("cuEventCreate", 1, 1, 999);
  CHECK_THROWS_WITH(Event(one.gpu), Contains("cuEventCreate on GPU 0: CUDA_ERROR_UNKNOWN"));
  one.fake.fail("cuStreamCreateWithPriority", 1, 1, 999);
  CHECK_THROWS_WITH(Stream(one.gpu), Contains("cuStreamCreateWithPriority on GPU 0"));
  CHECK_THROWS_WITH(Module(one.gpu, "text"), Contains("CUDA_ERROR_INVALID_IMAGE"));
  one.fake.fail("cuDevicePrimaryCtxRetain", 1, 1, out_of_memory);
  CHECK_THROWS_WITH(Gpu(one.driver, 1), Contains("cuDevicePrimaryCtxRetain on GPU 1"));
  one.fake.fail("cuCtxPushCurrent", 1, 1, 201);
  CHECK_THROWS_WITH(Current(one.gpu), Contains("cuCtxPushCurrent on GPU 0"));
  one.fake.fail("cuDeviceGetCount", 1, 1, 999);
  CHECK_THROWS_WITH(gpu_count(one.driver), Contains("cuDeviceGetCount: CUDA_ERROR_UNKNOWN"));
  CHECK(objects_alive(one.fake) == before);
}

TEST_CASE("device: objects of a broken GPU are released without a word") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const long before = objects_alive(one.fake);
  {
    Event event(one.gpu);
    const Stream stream(one.gpu);
    const PinnedMemory pinned(one.gpu, 1);
    const DeviceMemory memory(one.gpu, 1);
    const Module module(one.gpu, image);
    one.fake.break_gpu(0, 700);
    CHECK(event.query() == 700);
    CHECK_THROWS_WITH(Event(one.gpu), Contains("CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  CHECK(objects_alive(one.fake) == before);
  one.fake.break_gpu(0, 0);
}

TEST_CASE("device: in a forked child nothing calls the driver") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  std::optional<Event> event(one.gpu);
  std::optional<PinnedMemory> pinned(std::in_place, one.gpu, 1);
  std::optional<Gpu> gpu(std::in_place, one.driver, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const unsigned long before = one.fake.calls("any");
    if (gpu->here()) ::_exit(1);
    event.reset();
    pinned.reset();
    try {
      const Current current(*gpu);
      ::_exit(2);
    } catch (const rondo::Error& error) {
      if (std::strstr(error.what(), "forked child") == nullptr) ::_exit(3);
    }
    gpu.reset();
    ::_exit(one.fake.calls("any") == before ? 0 : 4);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("device: a driver that does not start says why") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("device child: says the obstacle", "init=100");
  CHECK_THAT(ended.output,
             Contains("the CUDA driver does not start: cuInit: CUDA_ERROR_NO_DEVICE (no "
                      "CUDA-capable device is detected); nvidia-smi shows whether the driver "
                      "finds the GPU"));
}

TEST_CASE("device: without a driver the obstacle names the library and the remedy") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("device child: says the obstacle", "", "LD_LIBRARY_PATH=");
  if (ended.output.find("there is a driver") != std::string::npos) return;  // the real one
  CHECK_THAT(ended.output,
             Contains("no CUDA driver here: libcuda.so.1: cannot open shared object"));
  CHECK_THAT(ended.output, Contains("; install the driver of the GPU"));
}

TEST_CASE("device: a driver that lacks a function is too old") {
  if (FakeCuda::missing()) return;
  const Ended ended =
      run_own("device child: says the obstacle", "", "LD_LIBRARY_PATH=\"$RONDO_TEST_OLD_CUDA\"");
  CHECK_THAT(ended.output, Contains("libcuda.so.1 has no cuGetErrorName: it is older than CUDA 12; "
                                    "install a newer driver of the GPU"));
}

TEST_CASE("device child: says the obstacle", "[.child]") {
  const LoadedDriver loaded = load_driver();
  CHECK((loaded.driver == nullptr) == !loaded.obstacle.empty());
  std::puts(loaded.driver != nullptr ? "there is a driver" : loaded.obstacle.c_str());
}
