// SPDX-License-Identifier: Apache-2.0
//
// rondo/gpu.h: memory, copies and their rates for programs without CUDA.
#include <rondo/gpu.h>
#include <rondo/info.h>

#include <numeric>

#include "catch.h"
#include "gpu/gpu_ranks.h"

namespace rondo::testing {
namespace {

using Catch::Matchers::Contains;

// Below, at and above the slots through which copies go.
TEST_CASE("copies between host memory and a GPU bring every byte") {
  GpuStream stream(gpus_of_tests() - 1);
  CHECK(stream.device() == gpus_of_tests() - 1);
  CHECK(stream.get() != nullptr);
  constexpr std::size_t slot = std::size_t{4} << 20;
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, slot - 1, slot, slot + 1, 2 * slot, 3 * slot + 17}) {
    INFO(bytes);
    const Memory memory = allocate_on_gpu(stream.device(), bytes + 2);
    std::vector<unsigned char> sent(bytes), back(bytes + 2, 1);
    std::iota(sent.begin(), sent.end(), static_cast<unsigned char>(bytes + 3));
    auto* const inner = static_cast<std::byte*>(memory.data()) + 1;
    stream.copy_to_gpu(inner, sent.data(), bytes);
    stream.copy_to_host(back.data(), memory.data(), bytes + 2);
    // The memory around was zeroed.
    CHECK(back.front() == 0);
    CHECK(back.back() == 0);
    CHECK(std::equal(sent.begin(), sent.end(), back.begin() + 1));
  }
}

TEST_CASE("a stream of a program without CUDA orders operations") {
  run_communicators(Setup{}, "stream", [](Communicator& c, int rank) {
    GpuStream stream(rank % gpus_of_tests());
    constexpr std::size_t count = 10'000;
    const Memory memory = c.allocate(count * sizeof(float), stream.device());
    std::vector<float> values(count, static_cast<float>(rank + 1));
    stream.copy_to_gpu(memory.data(), values.data(), memory.bytes());
    const Buffer buffer{memory.data(), count, DType::f32, stream.device()};
    const Work work = c.all_reduce(buffer, buffer, ReduceOp::sum, {.stream = stream.get()});
    work.join(stream.get());
    stream.copy_to_host(values.data(), memory.data(), memory.bytes());
    expect(std::ranges::all_of(values, [](float v) { return v == 3; }), "wrong sum");
    work.wait();
  });
}

TEST_CASE("copies have a rate") {
  GpuStream stream(0);
  for (const GpuCopy copy : {GpuCopy::on_gpu, GpuCopy::to_gpu, GpuCopy::to_host})
    CHECK(stream.measure(copy, 1 << 20) > 1e6);
  CHECK_THROWS_WITH(stream.measure(GpuCopy::on_gpu, 0), Contains("0 bytes"));
}

TEST_CASE("a stream says why it cannot copy") {
  CHECK_THROWS_WITH(GpuStream(999), Contains("there is no GPU 999"));
  CHECK_THROWS_WITH(allocate_on_gpu(999, 1), Contains("there is no GPU 999"));
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  GpuStream stream(0);
  const Memory memory = allocate_on_gpu(0, 100);
  std::array<char, 100> host{};
  fake.fail("cuMemcpyHtoDAsync", 1, 1, 700);
  CHECK_THROWS_WITH(stream.copy_to_gpu(memory.data(), host.data(), host.size()),
                    Contains("cuMemcpyHtoDAsync of 100 B on GPU 0: CUDA_ERROR_ILLEGAL_ADDRESS"));
  fake.fail("cuMemcpyDtoHAsync", 1, 1, 700);
  CHECK_THROWS_WITH(stream.copy_to_host(host.data(), memory.data(), host.size()),
                    Contains("cuMemcpyDtoHAsync of 100 B on GPU 0"));
  fake.fail("cuMemcpyDtoDAsync", 1, 1, 700);
  CHECK_THROWS_WITH(stream.measure(GpuCopy::on_gpu, 100), Contains("on GPU 0"));
  fake.clear();
  stream.copy_to_gpu(memory.data(), host.data(), host.size());
}

// A context would take memory of each GPU, and would keep an exclusive one busy.
TEST_CASE("the GPUs are described without a context") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const long contexts = fake.alive(rondo_fake_contexts);
  const unsigned long retained = fake.calls("cuDevicePrimaryCtxRetain");
  const GpuReport report = gather_gpus();
  CHECK(fake.alive(rondo_fake_contexts) == contexts);
  CHECK(fake.calls("cuDevicePrimaryCtxRetain") == retained);
  CHECK(report.why.empty());
  CHECK(report.driver_version == "13.0");
  REQUIRE(report.gpus.size() == 2);
  const GpuInfo& gpu = report.gpus[1];
  CHECK(gpu.device == 1);
  CHECK(gpu.name == "Fake GPU");
  CHECK(gpu.pci_address == "0000:02:00.0");
  CHECK(gpu.uuid == "GPU-726f6e64-6f20-6661-6b65-206770750001");
  CHECK(gpu.memory_bytes == std::uint64_t{4} << 30);
  CHECK(gpu.capability_major == 9);
  CHECK(gpu.peers == std::vector{0});
  CHECK(gpu.why_no_descriptors.empty());
  CHECK(gpu.why_no_handles.empty());
  CHECK(gpu.why_exclusive.empty());
  CHECK(gpu.error.empty());
}

TEST_CASE("what a driver does not allow or tell is in the description") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  fake.allow("peers", false);
  fake.allow("export", false);
  fake.allow("ipc", false);
  CHECK(gather_gpus().gpus.front().peers.empty());
  CHECK_THAT(gather_gpus().gpus.front().why_no_descriptors, Contains("exports no memory"));
  CHECK_THAT(gather_gpus().gpus.front().why_no_handles, Contains("memory of the processor"));
  fake.allow("vmm", false);
  CHECK_THAT(gather_gpus().gpus.front().why_no_descriptors, Contains("no virtual memory"));
  fake.fail("cuDeviceGetName", 1, 1, 999);
  const GpuInfo nameless = gather_gpus().gpus.front();
  CHECK(nameless.name.empty());
  CHECK_THAT(nameless.error, Contains("cuDeviceGetName: CUDA_ERROR_UNKNOWN"));
  fake.fail("cuDeviceGetCount", 1, 1, 999);
  const GpuReport none = gather_gpus();
  CHECK(none.gpus.empty());
  CHECK_THAT(none.why, Contains("cuDeviceGetCount: CUDA_ERROR_UNKNOWN"));
  fake.clear();
}

}  // namespace
}  // namespace rondo::testing
