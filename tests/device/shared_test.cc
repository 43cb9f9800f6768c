// SPDX-License-Identifier: Apache-2.0
//
// Memory of the fake driver that two processes share.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "catch.h"
#include "one_gpu.h"
#include "own_program.h"

using namespace rondo::device;
using Catch::Contains;

namespace {

constexpr std::size_t mebibytes_2 = std::size_t{2} << 20;

// An allocation that is mapped at addresses of its own.
class Mapped {
 public:
  // Takes over the handle.
  Mapped(const OneGpu& one, AllocationHandle handle) : one_(one), handle_(handle) {
    REQUIRE(one.driver.address_reserve(&address_, mebibytes_2, 0, 0, 0) == success);
    REQUIRE(one.driver.memory_map(address_, mebibytes_2, 0, handle, 0) == success);
    const AccessDescription access;
    REQUIRE(one.driver.memory_set_access(address_, mebibytes_2, &access, 1) == success);
  }
  ~Mapped() {
    CHECK(one_.driver.memory_unmap(address_, mebibytes_2) == success);
    CHECK(one_.driver.allocation_release(handle_) == success);
    CHECK(one_.driver.address_free(address_, mebibytes_2) == success);
  }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;

  Address address() const { return address_; }
  std::string text() const {
    std::array<char, 16> seen{};
    one_.fake.read(seen.data(), address_, seen.size() - 1);
    return seen.data();
  }
  void write(const std::string& text) const {
    one_.fake.write(address_, text.c_str(), text.size() + 1);
  }

 private:
  const OneGpu& one_;
  AllocationHandle handle_;
  Address address_ = 0;
};

AllocationHandle create(const OneGpu& one) {
  AllocationProperties properties;
  properties.handle_types = posix_descriptor;
  AllocationHandle handle = 0;
  REQUIRE(one.driver.allocation_create(&handle, mebibytes_2, &properties, 0) == success);
  return handle;
}

int export_descriptor(const OneGpu& one, AllocationHandle handle) {
  int descriptor = -1;
  REQUIRE(one.driver.allocation_export(&descriptor, handle, posix_descriptor, 0) == success);
  return descriptor;
}

std::string as_text(const IpcMemoryHandle& handle) {
  std::string text;
  for (const char each : handle.bytes) {
    std::array<char, 3> byte{};
    std::snprintf(byte.data(), byte.size(), "%02x", static_cast<unsigned char>(each));
    text += byte.data();
  }
  return text;
}

IpcMemoryHandle handle_of(const std::string& text) {
  IpcMemoryHandle handle{};
  for (std::size_t at = 0; at < sizeof handle.bytes; ++at)
    handle.bytes[at] = static_cast<char>(std::stoi(text.substr(2 * at, 2), nullptr, 16));
  return handle;
}

}  // namespace

TEST_CASE("fake: an allocation that is exported is the same memory after import") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  std::size_t granularity = 0;
  const AllocationProperties properties;
  CHECK(one.driver.allocation_granularity(&granularity, &properties, 0) == success);
  CHECK(granularity == mebibytes_2);
  const AllocationHandle handle = create(one);
  const int descriptor = export_descriptor(one, handle);
  AllocationHandle imported = 0;
  REQUIRE(one.driver.allocation_import(
              &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
              posix_descriptor) == success);
  ::close(descriptor);
  const Mapped second(one, imported);
  {
    const Mapped first(one, handle);
    first.write("first");
    CHECK(second.text() == "first");
    second.write("second");
    CHECK(first.text() == "second");
  }
  CHECK(second.text() == "second");  // it lives until the last one lets go
}

TEST_CASE("fake: an allocation reaches another process as a descriptor") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const AllocationHandle handle = create(one);
  const int descriptor = export_descriptor(one, handle);
  ::fcntl(descriptor, F_SETFD, 0);
  const Mapped mapped(one, handle);
  mapped.write("parent");
  const Ended ended =
      run_own("fake child: imports", "leaks=fail", "TEST_DESCRIPTOR=" + std::to_string(descriptor));
  ::close(descriptor);
  INFO(ended.output);
  CHECK(ended.status == 0);
  CHECK(mapped.text() == "child");
}

TEST_CASE("fake child: imports", "[.child]") {
  const OneGpu one;
  const std::intptr_t descriptor = std::atoi(std::getenv("TEST_DESCRIPTOR"));
  AllocationHandle handle = 0;
  REQUIRE(one.driver.allocation_import(&handle, reinterpret_cast<void*>(descriptor),
                                       posix_descriptor) == success);
  const Mapped mapped(one, handle);
  CHECK(mapped.text() == "parent");
  mapped.write("child");
}

TEST_CASE("fake: a handle opens in another process and not in its own") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const DeviceMemory memory(one.gpu, 5000);
  one.fake.write(memory.address(), "parent", 7);
  IpcMemoryHandle handle{};
  REQUIRE(one.driver.ipc_get_memory_handle(&handle, memory.address() + 10) == success);
  Address opened = 0;
  CHECK(one.driver.ipc_open_memory_handle(&opened, handle, 1) == 201);

  const Ended ended =
      run_own("fake child: opens a handle", "leaks=fail,gpus=2", "TEST_HANDLE=" + as_text(handle));
  INFO(ended.output);
  CHECK(ended.status == 0);
  std::array<char, 7> seen{};
  one.fake.read(seen.data(), memory.address(), seen.size());
  CHECK(std::string(seen.data()) == "child");
}

TEST_CASE("fake child: opens a handle", "[.child]") {
  const OneGpu one;
  IpcMemoryHandle handle = handle_of(std::getenv("TEST_HANDLE"));
  Address address = 0, again = 0, base = 0;
  std::size_t bytes = 0;
  REQUIRE(one.driver.ipc_open_memory_handle(&address, handle, 1) == success);
  REQUIRE(one.driver.ipc_open_memory_handle(&again, handle, 1) == success);
  CHECK(again == address);
  CHECK(one.driver.memory_get_address_range(&base, &bytes, address) == success);
  CHECK(bytes == 5000);
  std::array<char, 7> seen{};
  one.fake.read(seen.data(), address, seen.size());
  CHECK(std::string(seen.data()) == "parent");

  const PinnedMemory pinned(one.gpu, 6);
  const Stream stream(one.gpu);
  Event ended(one.gpu);
  std::memcpy(pinned.data(), "child", 6);
  REQUIRE(one.driver.copy_to_device(address, pinned.data(), 6, stream.get()) == success);
  REQUIRE(ended.record(stream.get()) == success);
  REQUIRE(one.wait(ended) == success);
  // Another GPU has an address of its own.
  const Gpu second(one.driver, 1);
  Address other = 0;
  {
    const Current current(second);
    REQUIRE(one.driver.ipc_open_memory_handle(&other, handle, 1) == success);
    CHECK(other != address);
    CHECK(one.driver.ipc_close_memory_handle(other) == success);
  }
  CHECK(one.driver.memory_free(address) == 1);
  CHECK(one.driver.ipc_close_memory_handle(address) == success);
  CHECK(one.driver.ipc_close_memory_handle(address) == success);
  CHECK(one.driver.ipc_close_memory_handle(address) == 1);
  handle.bytes[0] = 'x';
  CHECK(one.driver.ipc_open_memory_handle(&address, handle, 1) == 1);
}

TEST_CASE("fake: a test that frees what another process has open ends") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("fake child: frees what another process has open");
  CHECK_THAT(ended.output, Contains("cuMemFree of memory that another process has opened"));
  CHECK(ended.status == 128 + SIGABRT);
}

TEST_CASE("fake child: frees what another process has open", "[.child]") {
  leave_signals_alone();
  const OneGpu one;
  DeviceMemory memory(one.gpu, 5000);
  one.fake.write(memory.address(), "parent", 7);
  IpcMemoryHandle handle{};
  REQUIRE(one.driver.ipc_get_memory_handle(&handle, memory.address()) == success);
  std::thread other([&] {
    run_own("fake child: leaves a handle open", "leaks=ignore", "TEST_HANDLE=" + as_text(handle));
  });
  std::array<char, 7> seen{};
  while (std::string(seen.data()) != "opened")
    one.fake.read(seen.data(), memory.address(), seen.size());
  const DeviceMemory freed(std::move(memory));
  CHECK(one.driver.memory_free(freed.address()) == success);
  other.join();
}

TEST_CASE("fake child: leaves a handle open", "[.child]") {
  const OneGpu one;
  const ::pid_t parent = ::getppid();
  Address address = 0;
  REQUIRE(one.driver.ipc_open_memory_handle(&address, handle_of(std::getenv("TEST_HANDLE")), 1) ==
          success);
  one.fake.write(address, "opened", 7);
  while (::getppid() == parent) std::this_thread::yield();
}

TEST_CASE("fake: memory may not be shared where a test says so") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const DeviceMemory memory(one.gpu, 5000);
  const Mapped mapped(one, create(one));
  IpcMemoryHandle handle{};
  CHECK(one.driver.ipc_get_memory_handle(&handle, mapped.address()) == 1);
  one.fake.allow("ipc", false);
  CHECK(one.driver.ipc_get_memory_handle(&handle, memory.address()) == 801);
  one.fake.allow("export", false);
  AllocationProperties properties;
  AllocationHandle allocation = 0;
  properties.handle_types = posix_descriptor;
  CHECK(one.driver.allocation_create(&allocation, mebibytes_2, &properties, 0) == 801);
  int value = -1;
  CHECK(one.driver.device_get_attribute(&value, 103, 0) == success);
  CHECK(value == 0);
  one.fake.allow("vmm", false);
  CHECK(one.driver.device_get_attribute(&value, 102, 0) == success);
  CHECK(value == 0);
  properties.handle_types = 0;
  CHECK(one.driver.allocation_create(&allocation, mebibytes_2, &properties, 0) == 801);
}

TEST_CASE("fake: mapped memory is used as other memory is, once access is given") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  const Stream stream(one.gpu);
  const CudaDriver& driver = one.driver;
  Address base = 0;
  REQUIRE(driver.address_reserve(&base, 2 * mebibytes_2, 0, 0, 0) == success);
  const AllocationHandle first = create(one), second = create(one);
  CHECK(driver.memory_map(base + 4096, mebibytes_2, 0, first, 0) == 1);
  CHECK(driver.memory_map(base + 2 * mebibytes_2, mebibytes_2, 0, first, 0) == 1);
  REQUIRE(driver.memory_map(base, mebibytes_2, 0, first, 0) == success);
  CHECK(driver.memory_map(base, mebibytes_2, 0, second, 0) == 1);
  REQUIRE(driver.memory_map(base + mebibytes_2, mebibytes_2, 0, second, 0) == success);
  CHECK(driver.set_bytes(base, 1, 10, stream.get()) == 1);
  const AccessDescription access;
  REQUIRE(driver.memory_set_access(base, 2 * mebibytes_2, &access, 1) == success);

  // A range over two mappings that adjoin.
  const Address middle = base + mebibytes_2 - 5;
  REQUIRE(driver.set_bytes(middle, 7, 10, stream.get()) == success);
  CHECK(driver.set_bytes(base + mebibytes_2, 7, mebibytes_2 + 1, stream.get()) == 1);
  one.fake.settle();
  std::array<char, 5> seen{};
  one.fake.read(seen.data(), base + mebibytes_2, seen.size());
  CHECK(std::string(seen.data(), 5) == std::string(5, 7));

  CHECK(driver.address_free(base, 2 * mebibytes_2) == 1);  // mapped
  CHECK(driver.memory_unmap(base + 4096, mebibytes_2) == 1);
  CHECK(driver.memory_unmap(base, 2 * mebibytes_2) == success);
  CHECK(driver.allocation_release(first) == success);
  CHECK(driver.allocation_release(second) == success);
  CHECK(driver.allocation_release(second) == 1);
  CHECK(driver.address_free(base, 2 * mebibytes_2) == success);
}

TEST_CASE("fake: two processes name the same GPU by the same UUID") {
  if (FakeCuda::missing()) return;
  const OneGpu one;
  Uuid first{}, second{};
  char bus[16];
  REQUIRE(one.driver.device_get_uuid(&first, 0) == success);
  REQUIRE(one.driver.device_get_uuid(&second, 1) == success);
  CHECK(std::memcmp(first.bytes, second.bytes, 16) != 0);
  REQUIRE(one.driver.device_get_pci_bus_id(bus, sizeof bus, 1) == success);
  CHECK(std::string(bus) == "0000:02:00.0");
  const Ended ended = run_own("fake child: says the bus of its GPU 0", "first=1");
  CHECK_THAT(ended.output, Contains("0000:02:00.0"));
}

TEST_CASE("fake child: says the bus of its GPU 0", "[.child]") {
  const OneGpu one;
  char bus[16];
  REQUIRE(one.driver.device_get_pci_bus_id(bus, sizeof bus, 0) == success);
  std::puts(bus);
}
