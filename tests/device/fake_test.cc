// SPDX-License-Identifier: Apache-2.0
//
// The fake driver itself, where tests rely on what it does.
#include <atomic>
#include <csignal>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "catch.h"
#include "one_gpu.h"
#include "own_program.h"

using namespace rondo::device;
using Catch::Contains;

namespace {

constexpr int aborted = 128 + SIGABRT;

// Letters in the order in which work of streams appended them.
struct Letters {
  std::mutex mutex;
  std::string text;
};
struct Letter {
  Letters* to;
  char letter;
  static void append(void* self) {
    const auto* const letter = static_cast<Letter*>(self);
    const std::lock_guard lock(letter->to->mutex);
    letter->to->text += letter->letter;
  }
};

}  // namespace

TEST_CASE("fake: a copy is late, and what it reads is read late") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const PinnedMemory from(one.gpu, 4), to(one.gpu, 4);
  const DeviceMemory memory(one.gpu, 4);
  const Stream stream(one.gpu);
  Event ended(one.gpu);
  std::memcpy(from.data(), "one", 4);
  std::memcpy(to.data(), "___", 4);
  one.fake.write(memory.address(), "...", 4);

  one.fake.hold(stream.get());
  REQUIRE(one.driver.copy_to_device(memory.address(), from.data(), 4, stream.get()) == success);
  REQUIRE(one.driver.copy_to_host(to.data(), memory.address(), 4, stream.get()) == success);
  REQUIRE(ended.record(stream.get()) == success);
  std::memcpy(from.data(), "two", 4);
  // Work that did not wait would be done by then.
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  char seen[4];
  one.fake.read(seen, memory.address(), 4);
  CHECK(std::string(seen) == "...");
  CHECK(std::memcmp(to.data(), "___", 4) == 0);
  CHECK(ended.query() == not_ready);

  one.fake.let_go(stream.get());
  REQUIRE(one.wait(ended) == success);
  CHECK(std::memcmp(to.data(), "two", 4) == 0);
}

TEST_CASE("fake: streams interleave in an order that the seed draws") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream first(one.gpu), second(one.gpu);
  Letters order;
  Letter a{&order, 'a'}, b{&order, 'b'};
  one.fake.hold();
  for (int each = 0; each < 40; ++each) {
    REQUIRE(one.driver.launch_host_function(first.get(), Letter::append, &a) == success);
    REQUIRE(one.driver.launch_host_function(second.get(), Letter::append, &b) == success);
  }
  one.fake.let_go();
  one.fake.settle();
  REQUIRE(order.text.size() == 80);
  int changes = 0;
  for (std::size_t at = 1; at < order.text.size(); ++at)
    changes += order.text[at] != order.text[at - 1] ? 1 : 0;
  CHECK(changes > 5);
  CHECK(changes < 79);
}

TEST_CASE("fake: a large copy or fill runs in pieces, between which other streams run") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const std::size_t bytes = 64 * 262144;
  const DeviceMemory memory(one.gpu, bytes), other(one.gpu, bytes);
  const Stream large(one.gpu), small(one.gpu);
  struct Seen {
    std::atomic<bool> copying{false};
    std::atomic<int> between{0};
  } seen;
  const auto begin = [](void* self) { static_cast<Seen*>(self)->copying = true; };
  const auto end = [](void* self) { static_cast<Seen*>(self)->copying = false; };
  const auto look = [](void* self) {
    if (static_cast<Seen*>(self)->copying) ++static_cast<Seen*>(self)->between;
  };
  const bool copies = GENERATE(true, false);
  INFO(copies);
  one.fake.hold();
  REQUIRE(one.driver.launch_host_function(large.get(), begin, &seen) == success);
  REQUIRE((copies ? one.driver.copy_on_device(memory.address(), other.address(), bytes, large.get())
                  : one.driver.set_bytes(memory.address(), 1, bytes, large.get())) == success);
  REQUIRE(one.driver.launch_host_function(large.get(), end, &seen) == success);
  for (int each = 0; each < 30; ++each)
    REQUIRE(one.driver.launch_host_function(small.get(), look, &seen) == success);
  one.fake.let_go();
  one.fake.settle();
  CHECK(seen.between > 10);  // about 2 while the work waits to begin
}

TEST_CASE("fake: an event is about its most recent record, at the time of the call") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream first(one.gpu), second(one.gpu);
  Stream third(one.gpu);
  Event event(one.gpu), waited(one.gpu);
  CHECK(event.query() == success);  // never recorded
  REQUIRE(third.wait(event) == success);

  one.fake.hold(first.get());
  one.fake.hold(second.get());
  REQUIRE(event.record(first.get()) == success);
  REQUIRE(third.wait(event) == success);
  REQUIRE(waited.record(third.get()) == success);
  REQUIRE(event.record(second.get()) == success);
  one.fake.let_go(second.get());
  REQUIRE(one.wait(event) == success);  // the second record, though the first has not ended
  // Work that did not wait would be done by then.
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  CHECK(waited.query() == not_ready);  // third waits for the first record
  one.fake.let_go(first.get());
  CHECK(one.wait(waited) == success);
}

TEST_CASE("fake: an event may be destroyed before its record has ended") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream first(one.gpu);
  Stream second(one.gpu);
  Event ended(one.gpu);
  one.fake.hold(first.get());
  {
    Event event(one.gpu);
    REQUIRE(event.record(first.get()) == success);
    REQUIRE(second.wait(event) == success);
  }
  REQUIRE(ended.record(second.get()) == success);
  CHECK(ended.query() == not_ready);
  one.fake.let_go(first.get());
  CHECK(one.wait(ended) == success);
}

TEST_CASE("fake: a destroyed stream ends its work") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  Event ended(one.gpu);
  Letters order;
  Letter a{&order, 'a'};
  StreamHandle late = nullptr;
  one.fake.hold();
  {
    const Stream stream(one.gpu);
    late = stream.get();
    REQUIRE(one.driver.launch_host_function(late, Letter::append, &a) == success);
    REQUIRE(ended.record(late) == success);
  }
  CHECK(ended.record(late) == 400);
  CHECK(ended.query() == not_ready);
  one.fake.let_go();
  REQUIRE(one.wait(ended) == success);
  CHECK(order.text.size() == 1);
}

TEST_CASE("fake: freeing memory waits for work, without letting TSan see an order") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream stream(one.gpu);
  Event ended(one.gpu);
  const PinnedMemory to(one.gpu, 1 << 20);
  {
    const DeviceMemory memory(one.gpu, 1 << 20);
    REQUIRE(one.driver.set_bytes(memory.address(), 1, 1 << 20, stream.get()) == success);
    REQUIRE(one.driver.copy_to_host(to.data(), memory.address(), 1 << 20, stream.get()) == success);
    REQUIRE(ended.record(stream.get()) == success);
  }
  CHECK(ended.query() == success);
}

TEST_CASE("fake: a stream that captures enqueues nothing") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream stream(one.gpu);
  Event event(one.gpu);
  StreamHandle blocking = nullptr;
  REQUIRE(one.driver.stream_create_with_priority(&blocking, 0, 0) == success);
  int is_capturing = -1;
  CHECK(one.driver.stream_is_capturing(stream.get(), &is_capturing) == success);
  CHECK(is_capturing == 0);
  one.fake.capture(stream.get(), true);
  CHECK(one.driver.stream_is_capturing(stream.get(), &is_capturing) == success);
  CHECK(is_capturing == 1);
  CHECK(event.record(stream.get()) == 900);
  CHECK(event.query() == success);
  CHECK(event.record(nullptr) == success);
  one.fake.capture(blocking, true);
  CHECK(event.record(nullptr) == 906);
  CHECK(one.driver.stream_is_capturing(legacy_stream, &is_capturing) == 906);
  CHECK(event.record(per_thread_stream) == success);
  one.fake.clear();
  CHECK(event.record(stream.get()) == success);
  CHECK(one.driver.stream_destroy(blocking) == success);
}

TEST_CASE("fake: calls fail when tests ask for it") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream stream(one.gpu);
  Event event(one.gpu);
  const unsigned long before = one.fake.calls("cuEventRecord");
  one.fake.fail("cuEventRecord", 2, 2, 999);
  CHECK(event.record(stream.get()) == success);
  CHECK(event.record(stream.get()) == 999);
  CHECK(event.record(stream.get()) == 999);
  CHECK(event.record(stream.get()) == success);
  CHECK(one.fake.calls("cuEventRecord") == before + 4);
  one.fake.fail("any", 1, -1, 2);
  CHECK(event.query() == 2);
  CHECK(event.record(stream.get()) == 2);
  one.fake.clear();
  CHECK(event.record(stream.get()) == success);

  // Calls that release something do so all the same.
  EventHandle handle = nullptr;
  REQUIRE(one.driver.event_create(&handle, 2) == success);
  const long alive = one.fake.alive(rondo_fake_events);
  one.fake.fail("cuEventDestroy", 1, 1, 700);
  CHECK(one.driver.event_destroy(handle) == 700);
  CHECK(one.fake.alive(rondo_fake_events) == alive - 1);
}

TEST_CASE("fake: an error of work is sticky for its GPU and drops what follows") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Gpu other(one.driver, 1);
  const Stream stream(one.gpu);
  Event event(one.gpu);
  Letters order;
  Letter a{&order, 'a'};
  one.fake.hold();
  REQUIRE(one.driver.launch_host_function(stream.get(), Letter::append, &a) == success);
  REQUIRE(one.driver.launch_host_function(stream.get(), Letter::append, &a) == success);
  REQUIRE(event.record(stream.get()) == success);
  one.fake.fail_work(2, 719);
  one.fake.let_go();
  CHECK(one.wait(event) == 719);
  CHECK(order.text.size() == 1);
  CHECK(one.driver.launch_host_function(stream.get(), Letter::append, &a) == 719);
  {
    const Current current(other);
    Event there(other);
    CHECK(there.query() == success);
  }
  one.fake.break_gpu(0, 0);
  CHECK(event.record(stream.get()) == success);
}

TEST_CASE("fake: a kernel that reaches beyond memory breaks the GPU") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const DeviceMemory memory(one.gpu, 100);
  const Stream stream(one.gpu);
  Event event(one.gpu);
  const Module module(one.gpu, "fake module");
  const FunctionHandle fill = module.function("fake_fill");
  Address address = memory.address();
  std::uint64_t bytes = 101;
  unsigned char value = 9;
  void* parameters[] = {&address, &bytes, &value};
  CHECK(one.driver.launch_kernel(fill, 1, 1, 1, 1025, 1, 1, 0, stream.get(), parameters, nullptr) ==
        1);
  one.fake.hold();
  REQUIRE(one.driver.launch_kernel(fill, 1, 1, 1, 32, 1, 1, 0, stream.get(), parameters, nullptr) ==
          success);
  REQUIRE(event.record(stream.get()) == success);
  one.fake.let_go();
  CHECK(one.wait(event) == 700);
  one.fake.break_gpu(0, 0);
}

TEST_CASE("fake: host functions must not call the driver") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream stream(one.gpu);
  struct Call {
    const Event event;
    Status status = -1;
  } inside{Event(one.gpu)};
  REQUIRE(one.driver.launch_host_function(
              stream.get(),
              [](void* self) {
                auto* const here = static_cast<Call*>(self);
                here->status = here->event.query();
              },
              &inside) == success);
  one.fake.settle();
  CHECK(inside.status == 800);
}

TEST_CASE("fake: the driver knows what an address is") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const PinnedMemory pinned(one.gpu, 100);
  const DeviceMemory memory(one.gpu, 1000);
  struct Answers {
    ContextHandle context = nullptr;
    unsigned type = 9;
    Address device = 9;
    void* host = nullptr;
    unsigned char managed = 9;
    int ordinal = 9;
    Address start = 9;
    std::size_t bytes = 9;
    unsigned char mapped = 9;
  };
  const auto ask = [&](Address address) {
    Answers to;
    int attributes[] = {1, 2, 3, 4, 8, 9, 11, 12, 13};
    void* values[] = {&to.context, &to.type,  &to.device, &to.host,  &to.managed,
                      &to.ordinal, &to.start, &to.bytes,  &to.mapped};
    CHECK(one.driver.pointer_get_attributes(9, attributes, values, address) == success);
    return to;
  };
  const Answers device = ask(memory.address() + 10);
  CHECK(device.context == one.gpu.context());
  CHECK(device.type == 2);
  CHECK(device.device == memory.address() + 10);
  CHECK(device.host == nullptr);
  CHECK(device.managed == 0);
  CHECK(device.ordinal == 0);
  CHECK(device.start == memory.address());
  CHECK(device.bytes == 1000);
  CHECK(device.mapped == 1);

  const Answers host = ask(reinterpret_cast<Address>(pinned.data() + 99));
  CHECK(host.type == 1);
  CHECK(host.host == pinned.data() + 99);
  CHECK(host.device == reinterpret_cast<Address>(pinned.data() + 99));

  int local = 0;
  for (const Address address : {reinterpret_cast<Address>(&local), memory.address() + 1000,
                                reinterpret_cast<Address>(pinned.data() + 100)}) {
    const Answers unknown = ask(address);
    CHECK(unknown.context == nullptr);
    CHECK(unknown.type == 0);
    CHECK(unknown.device == 0);
    CHECK(unknown.mapped == 0);
  }

  Address base = 0;
  std::size_t bytes = 0;
  CHECK(one.driver.memory_get_address_range(&base, &bytes, memory.address() + 999) == success);
  CHECK(base == memory.address());
  CHECK(bytes == 1000);
  CHECK(one.driver.memory_get_address_range(&base, &bytes, memory.address() + 1000) == 500);
}

TEST_CASE("fake: copies beyond an allocation fail at the call") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const PinnedMemory pinned(one.gpu, 1000);
  const DeviceMemory memory(one.gpu, 1000), other(one.gpu, 1000);
  const Stream stream(one.gpu);
  const Address end = memory.address() + 1000;
  CHECK(one.driver.copy_to_host(pinned.data(), end - 10, 11, stream.get()) == 1);
  CHECK(one.driver.copy_to_device(end, pinned.data(), 1, stream.get()) == 1);
  CHECK(one.driver.copy_on_device(other.address(), end - 10, 11, stream.get()) == 1);
  CHECK(one.driver.copy_on_device(end - 10, other.address(), 11, stream.get()) == 1);
  CHECK(one.driver.set_bytes(end - 10, 0, 11, stream.get()) == 1);
  CHECK(one.driver.copy_to_host(pinned.data(), end - 10, 10, stream.get()) == success);
  // Two allocations that adjoin are not one.
  std::vector<char> bytes(200);
  REQUIRE(one.driver.host_register(bytes.data(), 100, 0) == success);
  REQUIRE(one.driver.host_register(bytes.data() + 100, 100, 0) == success);
  const auto host = reinterpret_cast<Address>(bytes.data());
  CHECK(one.driver.copy_on_device(memory.address(), host, 100, stream.get()) == success);
  CHECK(one.driver.copy_on_device(memory.address(), host, 101, stream.get()) == 1);
  one.fake.settle();
  CHECK(one.driver.host_unregister(bytes.data()) == success);
  CHECK(one.driver.host_unregister(bytes.data() + 100) == success);
  CHECK(one.driver.memory_free(memory.address() + 1) == 1);
}

TEST_CASE("fake: a GPU has only so much memory") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  std::size_t total = 0;
  REQUIRE(one.driver.device_total_memory(&total, 0) == success);
  CHECK(total == std::size_t{4096} << 20);
  const DeviceMemory half(one.gpu, total / 2);
  CHECK_THROWS_WITH(DeviceMemory(one.gpu, total / 2 + 1), Contains("CUDA_ERROR_OUT_OF_MEMORY"));
  const Gpu other(one.driver, 1);
  CHECK_NOTHROW(DeviceMemory(other, total / 2 + 1));
}

TEST_CASE("fake: peers reach each other unless a test says no") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Gpu other(one.driver, 1);
  int can = 0;
  CHECK(one.driver.device_can_access_peer(&can, 0, 1) == success);
  CHECK(can == 1);
  one.fake.allow("peers", false);
  CHECK(one.driver.device_can_access_peer(&can, 0, 1) == success);
  CHECK(can == 0);
  CHECK(one.driver.context_enable_peer_access(other.context(), 0) == 217);
  one.fake.allow("peers", true);
  CHECK(one.driver.context_enable_peer_access(other.context(), 0) == success);
  CHECK(one.driver.context_enable_peer_access(other.context(), 0) == 704);
}

TEST_CASE("fake: calls that may block are counted, and forbidden where a test says so") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream stream(one.gpu);
  Event event(one.gpu);
  const unsigned long before = one.fake.blocking_calls();
  CHECK(event.record(stream.get()) == success);
  CHECK(one.wait(event) == success);
  CHECK(one.fake.blocking_calls() == before);
  { const DeviceMemory memory(one.gpu, 1); }
  CHECK(one.fake.blocking_calls() == before + 2);

  const Ended ended = run_own("fake child: blocks where it must not");
  CHECK(ended.status == aborted);
  CHECK_THAT(ended.output, Contains("fake CUDA: cuMemFree may block, and this thread must not"));
}

TEST_CASE("fake child: blocks where it must not", "[.child]") {
  leave_signals_alone();
  const OneGpu one;
  Event event(one.gpu);
  const DeviceMemory memory(one.gpu, 1);
  one.fake.forbid_blocking(true);
  CHECK(event.query() == success);
}

TEST_CASE("fake: a copy of memory that is not pinned is an error of the test") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("fake child: copies to memory that is not pinned");
  CHECK(ended.status == aborted);
  CHECK_THAT(ended.output, Contains("fake CUDA: cuMemcpyDtoHAsync: not all of 101 bytes are pinned "
                                    "host memory at 0x"));
}

TEST_CASE("fake child: copies to memory that is not pinned", "[.child]") {
  leave_signals_alone();
  const OneGpu one;
  const DeviceMemory memory(one.gpu, 200);
  std::vector<char> bytes(200);
  REQUIRE(one.driver.host_register(bytes.data(), 100, 0) == success);
  REQUIRE(one.driver.host_register(bytes.data() + 99, 1, 0) == 712);
  REQUIRE(one.driver.copy_to_host(bytes.data(), memory.address(), 100, nullptr) == success);
  one.driver.copy_to_host(bytes.data(), memory.address(), 101, nullptr);
}

TEST_CASE("fake: memory that goes away before its copy is an error of the test") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("fake child: unregisters memory too early");
  CHECK(ended.status == aborted);
  CHECK_THAT(ended.output,
             Contains("fake CUDA: cuMemcpyDtoHAsync: memory went away before the work "
                      "that uses it: 0x"));
}

TEST_CASE("fake child: unregisters memory too early", "[.child]") {
  leave_signals_alone();
  const OneGpu one;
  const DeviceMemory memory(one.gpu, 200);
  std::vector<char> bytes(200);
  REQUIRE(one.driver.host_register(bytes.data(), 200, 0) == success);
  one.fake.hold();
  REQUIRE(one.driver.copy_to_host(bytes.data(), memory.address(), 100, nullptr) == success);
  REQUIRE(one.driver.host_unregister(bytes.data()) == success);
  one.fake.let_go();
  one.fake.settle();
}

TEST_CASE("fake: waiting for a stream that a test holds does not hang for ever") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("fake child: frees memory of a stream that is held", "hang_s=1");
  CHECK(ended.status == aborted);
  CHECK_THAT(ended.output, Contains("fake CUDA: cuMemFree has waited 1 s for stream 1 of GPU 0, "
                                    "which a test holds"));
}

TEST_CASE("fake child: frees memory of a stream that is held", "[.child]") {
  leave_signals_alone();
  const OneGpu one;
  const Stream stream(one.gpu);
  one.fake.hold(stream.get());
  const DeviceMemory memory(one.gpu, 200);
  REQUIRE(one.driver.set_bytes(memory.address(), 0, 200, stream.get()) == success);
}

TEST_CASE("fake: the host cannot touch memory of a GPU") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("fake child: touches memory of a GPU");
  CHECK(ended.status == 128 + SIGSEGV);
}

TEST_CASE("fake child: touches memory of a GPU", "[.child]") {
  leave_signals_alone();
  const OneGpu one;
  const DeviceMemory memory(one.gpu, 200);
  *reinterpret_cast<volatile char*>(memory.address()) = 1;
}

TEST_CASE("fake: objects that are alive at the end are told") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("fake child: keeps objects");
  CHECK(ended.status == 97);
  CHECK_THAT(ended.output, Contains("fake CUDA: the process ends with 2 contexts alive"));
  CHECK_THAT(ended.output, Contains("fake CUDA: the process ends with 1 events alive"));
  CHECK(run_own("fake child: keeps objects", "leaks=ignore").status == 0);
}

TEST_CASE("fake child: keeps objects", "[.child]") {
  const OneGpu one;
  ContextHandle context = nullptr;
  EventHandle event = nullptr;
  REQUIRE(one.driver.primary_context_retain(&context, 0) == success);
  REQUIRE(one.driver.primary_context_retain(&context, 0) == success);
  REQUIRE(one.driver.event_create(&event, 2) == success);
}

TEST_CASE("fake: settings that are wrong are told") {
  if (FakeCuda::missing()) return;
  CHECK_THAT(run_own("fake child: keeps objects", "gpus").output, Contains("is not KEY=VALUE"));
  CHECK_THAT(run_own("fake child: keeps objects", "gpu=1").output,
             Contains("there is no setting gpu"));
  CHECK_THAT(run_own("fake child: keeps objects", "gpus=x").output, Contains("needs a number"));
  CHECK_THAT(run_own("fake child: keeps objects", "fail=cuEventCreate:1:2").output,
             Contains("2 == 0"));
}
