// SPDX-License-Identifier: Apache-2.0
//
// Under TSan the fake driver orders what CUDA orders, and nothing else: missing waits are found.
// Only the build for TSan has this file.
#include <cstring>
#include <thread>

#include "catch.h"
#include "one_gpu.h"
#include "own_program.h"

using namespace rondo::device;
using Catch::Contains;

namespace {

constexpr std::size_t bytes = 64;

// Two streams that have each copied memory of the GPU to their own pinned memory.
struct TwoCopies {
  explicit TwoCopies(const OneGpu& one)
      : memory(one.gpu, bytes),
        first(one.gpu, bytes),
        second(one.gpu, bytes),
        first_stream(one.gpu),
        second_stream(one.gpu),
        first_ended(one.gpu),
        second_ended(one.gpu) {
    one.fake.write(memory.address(), "text", 5);
    copy(one, first, first_stream, first_ended);
    copy(one, second, second_stream, second_ended);
  }
  void copy(const OneGpu& one, const PinnedMemory& to, const Stream& stream, Event& ended) const {
    REQUIRE(one.driver.copy_to_host(to.data(), memory.address(), bytes, stream.get()) == success);
    REQUIRE(ended.record(stream.get()) == success);
  }

  const DeviceMemory memory;
  const PinnedMemory first, second;
  Stream first_stream, second_stream;
  Event first_ended, second_ended;
};

// Long enough for all that the executor has, and no order for TSan.
void wait_without_order() {
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
}

void expect(const char* test_case, bool race) {
  INFO(test_case);
  // Names of functions would take seconds.
  const Ended ended =
      run_own(test_case, "leaks=fail", "TSAN_OPTIONS=\"$TSAN_OPTIONS:symbolize=0\"");
  INFO(ended.output);
  const bool found = ended.output.find("ThreadSanitizer: data race") != std::string::npos;
  CHECK(found == race);
  CHECK((ended.status == 0) == !race);
}

}  // namespace

TEST_CASE("fake: TSan finds what no event orders, and only that") {
  if (FakeCuda::missing()) return;
  expect("race child: reads what an event orders", false);
  expect("race child: reads what two streams order", false);
  expect("race child: reads after settle", false);
  expect("race child: reads too early", true);
  expect("race child: writes too early", true);
  expect("race child: waits for the other stream", true);
  expect("race child: a free is no wait", true);
  expect("race child: two threads have only the driver in common", true);
  expect("race child: two streams without a wait", true);
}

TEST_CASE("race child: reads what an event orders", "[.child]") {
  const OneGpu one;
  const TwoCopies copies(one);
  REQUIRE(one.wait(copies.first_ended) == success);
  CHECK(std::strcmp(reinterpret_cast<char*>(copies.first.data()), "text") == 0);
  REQUIRE(one.wait(copies.second_ended) == success);
  copies.second.data()[0] = std::byte{1};
}

TEST_CASE("race child: reads what two streams order", "[.child]") {
  const OneGpu one;
  TwoCopies copies(one);
  REQUIRE(copies.second_stream.wait(copies.first_ended) == success);
  REQUIRE(copies.second_ended.record(copies.second_stream.get()) == success);
  REQUIRE(one.wait(copies.second_ended) == success);
  copies.first.data()[0] = copies.second.data()[0] = std::byte{1};
  char seen[5];
  one.fake.read(seen, copies.memory.address(), sizeof seen);
}

TEST_CASE("race child: reads after settle", "[.child]") {
  const OneGpu one;
  const TwoCopies copies(one);
  one.fake.settle();
  copies.first.data()[0] = copies.second.data()[0] = std::byte{1};
}

TEST_CASE("race child: reads too early", "[.child]") {
  const OneGpu one;
  const TwoCopies copies(one);
  wait_without_order();
  CHECK(copies.first.data()[0] == std::byte{'t'});
}

TEST_CASE("race child: writes too early", "[.child]") {
  const OneGpu one;
  const PinnedMemory from(one.gpu, bytes);
  const DeviceMemory memory(one.gpu, bytes);
  const Stream stream(one.gpu);
  REQUIRE(one.driver.copy_to_device(memory.address(), from.data(), bytes, stream.get()) == success);
  wait_without_order();
  from.data()[0] = std::byte{1};
}

TEST_CASE("race child: waits for the other stream", "[.child]") {
  const OneGpu one;
  const TwoCopies copies(one);
  wait_without_order();
  REQUIRE(one.wait(copies.second_ended) == success);
  CHECK(copies.first.data()[0] == std::byte{'t'});
}

TEST_CASE("race child: a free is no wait", "[.child]") {
  const OneGpu one;
  const TwoCopies copies(one);
  { const DeviceMemory memory(one.gpu, bytes); }
  CHECK(copies.first.data()[0] == std::byte{'t'});
}

TEST_CASE("race child: two threads have only the driver in common", "[.child]") {
  const OneGpu one;
  const TwoCopies copies(one);
  int shared = 0;
  std::thread writer([&] {
    const Current current(one.gpu);
    shared = 1;
    REQUIRE(one.wait(copies.first_ended) == success);
    const DeviceMemory memory(one.gpu, bytes);
  });
  wait_without_order();
  REQUIRE(one.wait(copies.first_ended) == success);
  const DeviceMemory memory(one.gpu, bytes);
  CHECK(shared == 1);
  writer.join();
}

TEST_CASE("race child: two streams without a wait", "[.child]") {
  const OneGpu one;
  const DeviceMemory memory(one.gpu, bytes);
  const Stream first(one.gpu), second(one.gpu);
  REQUIRE(one.driver.set_bytes(memory.address(), 1, bytes, first.get()) == success);
  REQUIRE(one.driver.set_bytes(memory.address(), 2, bytes, second.get()) == success);
  one.fake.settle();
}
