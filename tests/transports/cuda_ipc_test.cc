// SPDX-License-Identifier: Apache-2.0
//
// Windows on memory of GPUs, over the fake driver: ranks as threads' worth of objects in one
// process, and two processes.
#include "transports/cuda_ipc/cuda_ipc.h"

#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include "catch.h"
#include "device/fake/control.h"
#include "device/own_program.h"
#include "shm_helpers.h"
#include "shm_rank_process.h"
#include "support/standard_error.h"

namespace rondo::testing {
namespace {

using cuda_ipc::CudaWindows;
using Transports = std::vector<std::unique_ptr<transports::Transport>>;

constexpr std::size_t mebibytes_2 = std::size_t{2} << 20;

// One rank: its windows, and the GPU that it uses.
struct IpcRank {
  IpcRank(int rank, transports::Transport& its_transport, int ordinal = 0)
      : transport(its_transport),
        gpus(std::make_shared<device::Gpus>()),
        gpu(gpus->gpu(ordinal)),
        windows(std::in_place, rank, *transport.windows(), gpus) {}

  // What a rank does before a call and while it waits: it takes what peers have sent.
  void turn() {
    transport.prepare_sleep();
    transport.prepare_sleep();
    windows->catch_up(gpu);
  }

  transports::Transport& transport;
  std::shared_ptr<device::Gpus> gpus;
  const device::Gpu& gpu;
  std::optional<CudaWindows> windows;
};

class IpcRanks {
 public:
  // ordinals: of the GPU of each rank.
  explicit IpcRanks(const std::vector<int>& ordinals)
      : transports_(shm_transports(static_cast<int>(ordinals.size()))) {
    for (std::size_t i = 0; i < ordinals.size(); ++i)
      ranks_.push_back(
          std::make_unique<IpcRank>(static_cast<int>(i), *transports_[i], ordinals[i]));
  }
  IpcRank& operator[](std::size_t rank) { return *ranks_[rank]; }
  // As many rounds as it takes where nothing stands in the way.
  transports::WindowPlace find(std::size_t owner, const void* data, std::size_t bytes) {
    ranks_[owner]->windows->find(data, bytes);
    ranks_[owner]->turn();
    for (const auto& rank : ranks_) rank->turn();
    return ranks_[owner]->windows->find(data, bytes);
  }
  Transports& transports() { return transports_; }

 private:
  Transports transports_;
  std::vector<std::unique_ptr<IpcRank>> ranks_;
};

void write_text(const std::byte* to, const char* text) {
  FakeCuda().write(reinterpret_cast<FakeCuda::Address>(to), text, std::strlen(text) + 1);
}

std::string text_at(const std::byte* from) {
  std::array<char, 32> text{};
  FakeCuda().read(text.data(), reinterpret_cast<FakeCuda::Address>(from), text.size() - 1);
  return text.data();
}

// Memory as cudaMalloc gives it.
class Program {
 public:
  Program(IpcRank& rank, std::size_t bytes, int ordinal = 0)
      : rank_(rank), memory_(rank.gpus->gpu(ordinal), bytes) {}
  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.address()); }
  std::unique_ptr<transports::Registration> register_part(std::size_t offset, std::size_t bytes) {
    return rank_.windows->register_memory(0, {data() + offset, bytes});
  }

 private:
  IpcRank& rank_;
  device::DeviceMemory memory_;
};

}  // namespace

TEST_CASE("cuda ipc: ranks load and store what one of them has allocated on a GPU") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0, 1});
  auto memory = ranks[1].windows->allocate(0, 100);
  std::byte* const data = memory->memory().data();
  CHECK(memory->memory().size() == 100);
  CHECK(text_at(data).empty());
  CHECK(ranks[1].windows->find(data + 10, 90).generation == 0);
  const transports::WindowPlace place = ranks.find(1, data + 10, 90);
  REQUIRE(place.generation != 0);
  CHECK(place.offset == 10);
  write_text(data + 10, "mine");
  for (const std::size_t other : {0, 2}) {
    std::byte* const there = ranks[other].windows->map(1, place, 90);
    REQUIRE(there != nullptr);
    CHECK(there != data + 10);
    CHECK(text_at(there) == "mine");
  }
  write_text(ranks[0].windows->map(1, place, 90), "theirs");
  CHECK(text_at(data + 10) == "theirs");

  // Only what was asked for is found, and what was mapped is all that a place can name.
  CudaWindows& of0 = *ranks[0].windows;
  CHECK(ranks[1].windows->find(data + 10, 91).generation == 0);
  CHECK(ranks[1].windows->find(data - 1, 1).generation == 0);
  CHECK(ranks[1].windows->find(nullptr, 0).generation == 0);
  CHECK(of0.map(1, place, mebibytes_2 - 10) != nullptr);
  CHECK(of0.map(1, place, mebibytes_2 - 9) == nullptr);
  CHECK(of0.map(1, {place.slot, place.generation, mebibytes_2 + 1}, 0) == nullptr);
  CHECK(of0.map(1, {place.slot, place.generation, UINT64_MAX}, 2) == nullptr);
  CHECK(of0.map(1, {place.slot, place.generation + 1, 10}, 1) == nullptr);
  CHECK(of0.map(1, {place.slot + 1, place.generation, 10}, 1) == nullptr);
  CHECK(of0.map(1, {place.slot + 1000, place.generation, 10}, 1) == nullptr);
  CHECK(of0.map(0, place, 1) == nullptr);
  CHECK(of0.map(7, place, 1) == nullptr);
}

TEST_CASE("cuda ipc: memory lives until its last importer lets go") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const long before = fake.alive(rondo_fake_allocations);
  IpcRanks ranks({0, 0});
  auto memory = ranks[1].windows->allocate(0, 100);
  const transports::WindowPlace place = ranks.find(1, memory->memory().data(), 100);
  const std::byte* const there = ranks[0].windows->map(1, place, 100);
  REQUIRE(there != nullptr);
  write_text(memory->memory().data(), "kept");
  memory.reset();
  CHECK(text_at(there) == "kept");
  CHECK(fake.alive(rondo_fake_allocations) == before + 1);
  ranks[0].turn();
  CHECK(fake.alive(rondo_fake_allocations) == before);
  CHECK(ranks[0].windows->map(1, place, 100) == nullptr);
  // The slot is used again, and the old place names nothing.
  memory = ranks[1].windows->allocate(0, 100);
  const transports::WindowPlace next = ranks.find(1, memory->memory().data(), 100);
  CHECK(next.slot == place.slot);
  CHECK(next.generation != place.generation);
  CHECK(ranks[0].windows->map(1, place, 1) == nullptr);
  CHECK(ranks[0].windows->map(1, next, 1) != nullptr);
  // It may outlive the communicator of its rank.
  ranks[1].windows.reset();
  write_text(memory->memory().data(), "alone");
  CHECK(text_at(ranks[0].windows->map(1, next, 100)) == "alone");
}

TEST_CASE("cuda ipc: after a failure nobody lets go of what another rank may still use") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  auto memory = ranks[1].windows->allocate(0, 100);
  const transports::WindowPlace place = ranks.find(1, memory->memory().data(), 100);
  ranks.transports()[1]->halt();
  memory.reset();
  ranks[0].turn();
  const std::byte* const there = ranks[0].windows->map(1, place, 100);
  REQUIRE(there != nullptr);
  CHECK(text_at(there).empty());
  // Other memory gets another slot.
  memory = ranks[1].windows->allocate(0, 100);
  CHECK(ranks.find(1, memory->memory().data(), 100).slot != place.slot);
}

TEST_CASE("cuda ipc: what a rank cannot map is nowhere, and it says why") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const auto refused = [&](const std::vector<int>& ordinals, const char* why, const auto& hinder) {
    IpcRanks ranks(ordinals);
    const auto memory = ranks[0].windows->allocate(0, 100);
    hinder();
    const StandardError errors;
    CHECK(ranks.find(0, memory->memory().data(), 100).generation == 0);
    CHECK(ranks.find(0, memory->memory().data(), 100).generation == 0);
    fake.clear();
    INFO(errors.text());
    CHECK(times(errors.text(), why) == 1);
    return errors.text();
  };
  refused({0, 1},
          "memory on a GPU that rank 0 has allocated cannot be mapped: GPU 1 has no access "
          "to GPU 0",
          [&] { fake.allow("peers", false); });
  refused({0, 0}, "rank 0 has allocated cannot be mapped: cuMemImportFromShareableHandle",
          [&] { fake.fail("cuMemImportFromShareableHandle", 1, -1, 801); });
  refused({0, 0}, "rank 0 has allocated cannot be mapped: cuMemMap",
          [&] { fake.fail("cuMemMap", 1, -1, 2); });
  refused({0, 0}, "cannot be mapped: cuMemSetAccess",
          [&] { fake.fail("cuMemSetAccess", 1, -1, 1); });
  refused({0, 0}, "cannot be shared with other ranks: cuMemExportToShareableHandle",
          [&] { fake.fail("cuMemExportToShareableHandle", 1, -1, 801); });
}

TEST_CASE("cuda ipc: a second GPU of a rank must reach what has been mapped") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  IpcRanks ranks({0, 0});
  const auto memory = ranks[0].windows->allocate(0, 100);
  const std::byte* const data = memory->memory().data();
  CHECK(ranks.find(0, data, 100).generation != 0);
  CudaWindows& of1 = *ranks[1].windows;
  of1.catch_up(ranks[1].gpus->gpu(1));
  const transports::WindowPlace place = ranks[0].windows->find(data, 100);
  REQUIRE(place.generation != 0);
  CHECK(of1.map(0, place, 100) != nullptr);

  const auto other = ranks[1].windows->allocate(0, 100);
  const transports::WindowPlace theirs = ranks.find(1, other->memory().data(), 100);
  fake.fail("cuMemSetAccess", 1, 1, 1);
  const StandardError errors;
  ranks[0].windows->catch_up(ranks[0].gpus->gpu(1));
  fake.clear();
  CHECK(times(errors.text(), "rank 1 has allocated cannot be mapped: cuMemSetAccess for GPU 1") ==
        1);
  CHECK(ranks[1].windows->find(other->memory().data(), 100).generation == 0);
  // Operations on the first GPU that are under way still find it.
  CHECK(ranks[0].windows->map(1, theirs, 1) != nullptr);
  CHECK_FALSE(ranks[0].windows->reaches_all());
  CHECK(ranks[1].windows->reaches_all());
}

TEST_CASE("cuda ipc: nonsense from a peer does nothing") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  const auto memory = ranks[1].windows->allocate(0, 100);
  const transports::WindowPlace place = ranks.find(1, memory->memory().data(), 100);
  REQUIRE(place.generation != 0);
  transports::Windows& of1 = *ranks.transports()[1]->windows();
  std::array<std::byte, transports::most_passed_bytes + 1> message{};
  const auto pass = [&](std::size_t bytes) {
    return of1.pass_descriptor(0, std::span(message).first(bytes), STDIN_FILENO);
  };
  CHECK(of1.pass_descriptor(7, {}, STDIN_FILENO) == EINVAL);
  CHECK(pass(message.size()) == EINVAL);
  const StandardError errors;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, message.size() - 1})
    CHECK(pass(bytes) == 0);
  // A generation of nothing, a slot that there is not, and an export that there is not.
  CHECK(pass(8) == 0);
  message[4] = std::byte{1};
  message[3] = std::byte{1};
  CHECK(pass(8) == 0);
  message[3] = std::byte{0};
  message[0] = std::byte{200};
  CHECK(pass(8) == 0);
  ranks[0].turn();
  // A descriptor of no memory, and a table that names more bytes than there are.
  const auto second = ranks[1].windows->allocate(0, 100);
  cuda_ipc::Table& table = cuda_ipc::table_in(of1.area(1));
  message[0] = std::byte{1};
  message[4] = static_cast<std::byte>(table.exports[1].generation.load());
  CHECK(pass(8) == 0);
  ranks[0].turn();
  CHECK(times(errors.text(), "cannot be mapped: cuMemImportFromShareableHandle") == 1);
  table.exports[1].bytes = 2 * mebibytes_2;
  CHECK(ranks.find(1, second->memory().data(), 100).generation == 0);
  CHECK(times(errors.text(), "cannot be mapped: cuMemMap") == 1);
  table.exports[1].gpu[0] = 1;
  CHECK(ranks.find(1, second->memory().data(), 100).generation == 0);
  CHECK(ranks[0].windows->map(1, place, 100) != nullptr);
}

TEST_CASE("cuda ipc: more memory than others can be told of is used as other memory") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  const StandardError errors;
  std::vector<std::unique_ptr<transports::Allocation>> all;
  for (std::size_t i = 0; i <= cuda_ipc::most_exports; ++i)
    all.push_back(ranks[0].windows->allocate(0, 100));
  CHECK(ranks.find(0, all.front()->memory().data(), 100).generation != 0);
  CHECK(ranks.find(0, all.back()->memory().data(), 100).generation == 0);
  all.push_back(ranks[0].windows->allocate(0, 100));
  CHECK(times(errors.text(), "rank 0 shares 256 pieces of memory on GPUs already") == 1);
  Program program(ranks[0], 100);
  const auto registration = program.register_part(0, 100);
  CHECK(ranks.find(0, program.data(), 100).generation == 0);
  all.erase(all.begin());
  all.push_back(ranks[0].windows->allocate(0, 100));
  CHECK(ranks.find(0, all.back()->memory().data(), 100).generation != 0);
}

TEST_CASE("cuda ipc: ranks of a process use registered memory by its address") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  const StandardError errors;
  IpcRanks ranks({0, 0, 1});
  Program program(ranks[1], 1000);
  const unsigned long enabled = fake.calls("cuCtxEnablePeerAccess");
  const unsigned long handles = fake.calls("cuIpcGetMemHandle");
  auto first = program.register_part(100, 50);
  auto second = program.register_part(120, 500);
  // All of the allocation is known, while any part of it is registered.
  const transports::WindowPlace place = ranks.find(1, program.data() + 900, 100);
  REQUIRE(place.generation != 0);
  CHECK(place.offset == 900);
  CHECK(fake.calls("cuIpcGetMemHandle") == handles + 1);
  CHECK(fake.calls("cuCtxEnablePeerAccess") == enabled + 1);
  for (const std::size_t other : {0, 2}) {
    CHECK(ranks[other].windows->map(1, place, 100) == program.data() + 900);
    CHECK(ranks[other].windows->map(1, place, 101) == nullptr);
  }
  first.reset();
  ranks[1].windows->ended(place);
  const transports::WindowPlace again = ranks[1].windows->find(program.data(), 1000);
  CHECK(again.generation == place.generation);
  ranks[1].windows->ended(again);
  second.reset();
  CHECK(ranks[1].windows->find(program.data(), 1000).generation == 0);
  for (const std::size_t other : {0, 2}) CHECK(ranks[other].windows->map(1, place, 100) == nullptr);
  // Registered again, it is another export.
  first = program.register_part(0, 1);
  const transports::WindowPlace next = ranks.find(1, program.data(), 1000);
  CHECK(next.slot == place.slot);
  CHECK(next.generation == place.generation + 1);
  ranks[1].windows->ended(next);
  first.reset();
  CHECK(errors.text().empty());
}

TEST_CASE("cuda ipc: memory of allocate() may be registered, which changes nothing") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  auto memory = ranks[0].windows->allocate(0, 100);
  std::byte* const data = memory->memory().data();
  auto registration = ranks[0].windows->register_memory(0, {data + 10, 20});
  CHECK(ranks.find(0, data, 100).generation != 0);
  registration.reset();
  const transports::WindowPlace place = ranks[0].windows->find(data, 100);
  CHECK(place.generation != 0);
  // Nobody waits for operations on it.
  ranks[0].windows->ended(place);
  memory.reset();
  CHECK(cuda_ipc::table_in(ranks.transports()[0]->windows()->area(0)).unsettled == 0);
}

TEST_CASE("cuda ipc: the end of a registration waits for operations of its rank") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  Program program(ranks[0], 1000);
  auto registration = program.register_part(0, 1000);
  const transports::WindowPlace place = ranks.find(0, program.data(), 1000);
  REQUIRE(place.generation != 0);
  CudaWindows& of0 = *ranks[0].windows;
  const cuda_ipc::Table& table = cuda_ipc::table_in(ranks.transports()[0]->windows()->area(0));
  std::thread end([&] { registration.reset(); });
  // find() that still finds it counts as one more operation.
  for (transports::WindowPlace found = place; found.generation != 0; of0.ended(found))
    if ((found = of0.find(program.data(), 1000)).generation == 0) break;
  CHECK(table.exports[place.slot].generation == place.generation);
  CHECK(ranks[1].windows->map(0, place, 1000) == program.data());
  of0.ended(place);
  end.join();
  CHECK(table.exports[place.slot].generation == 0);
  CHECK(ranks[1].windows->map(0, place, 1000) == nullptr);
}

TEST_CASE("cuda ipc: after a failure of its owner, registered memory stays until work has ended") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  Program program(ranks[0], 1000);
  auto registration = program.register_part(0, 1000);
  const transports::WindowPlace place = ranks.find(0, program.data(), 1000);
  REQUIRE(place.generation != 0);
  Transports& transports = ranks.transports();
  const cuda_ipc::Table& table = cuda_ipc::table_in(transports[0]->windows()->area(0));
  ranks[1].windows->hold();
  transports[0]->halt();
  std::atomic<bool> ended{false};
  std::thread end([&] {
    registration.reset();  // the operation that found it has failed
    ended = true;
  });
  while (table.exports[place.slot].generation != 0) std::this_thread::yield();
  const auto is_open = [&] { return ranks[1].windows->map(0, place, 1000) != nullptr; };
  ranks[1].turn();
  CHECK(is_open());
  transports[1]->halt();
  ranks[1].turn();
  CHECK(is_open());
  CHECK_FALSE(ended);
  ranks[1].windows->let_go();
  end.join();
  CHECK_FALSE(is_open());
}

TEST_CASE("cuda ipc: what another rank does not let go of in time is named") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  Program program(ranks[0], 1000);
  const auto registration = program.register_part(0, 1000);
  const transports::WindowPlace place = ranks.find(0, program.data(), 1000);
  REQUIRE(place.generation != 0);
  ranks.transports()[0]->halt();  // rank 1 does not know
  const StandardError errors;
  ranks[0].windows->close(true, base::Clock::now());
  CHECK_THAT(errors.text(), Catch::Contains("rank 0: the registration of 1000 B on a GPU") &&
                                Catch::Contains("rank 1 did not let go of it in time"));
}

TEST_CASE("cuda ipc: others go on when a rank that has registered memory leaves in order") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  Program program(ranks[0], 1000);
  const auto registration = program.register_part(0, 1000);
  const transports::WindowPlace place = ranks.find(0, program.data(), 1000);
  REQUIRE(place.generation != 0);
  ranks[0].windows->ended(place);
  ranks.transports()[0]->halt();
  const StandardError errors;
  ranks[0].windows->close(true, base::after(base::Clock::now(), std::chrono::minutes{1}));
  CHECK(ranks[1].windows->map(0, place, 1) == nullptr);
  CHECK(errors.text().empty());
}

TEST_CASE("cuda ipc: a rank that ends lets go of registered memory") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  Program program(ranks[0], 1000);
  const auto registration = program.register_part(0, 1000);
  const transports::WindowPlace place = ranks.find(0, program.data(), 1000);
  REQUIRE(place.generation != 0);
  const auto& mapped = cuda_ipc::table_in(ranks.transports()[1]->windows()->area(1)).mapped[0];
  CHECK(mapped[place.slot] == place.generation);
  ranks[1].windows->close(false, base::Clock::now());  // its GPU is still at work
  CHECK(mapped[place.slot] == place.generation);
  const StandardError errors;
  ranks[0].windows->close(true, base::Clock::now());
  CHECK_THAT(errors.text(), Catch::Contains("rank 1 did not let go of it in time"));
  IpcRanks others({0, 0});
  Program again(others[0], 1000);
  const auto lasting = again.register_part(0, 1000);
  REQUIRE(others.find(0, again.data(), 1000).generation != 0);
  const std::size_t before = errors.text().size();
  others[1].windows->close(true, base::Clock::now());
  others[0].windows->close(true, base::Clock::now());
  CHECK(errors.text().size() == before);
}

TEST_CASE("cuda ipc: a rank that is about to open memory is waited for too") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  Program program(ranks[0], 1000);
  const auto registration = program.register_part(0, 1000);
  Transports& transports = ranks.transports();
  const auto& entry = cuda_ipc::table_in(transports[0]->windows()->area(0)).exports[0];
  auto& state = cuda_ipc::table_in(transports[1]->windows()->area(1)).mapped[0][0];
  state = entry.generation | cuda_ipc::only_open;
  const StandardError errors;
  CHECK(ranks[0].windows->find(program.data(), 1000).generation == 0);
  ranks[0].windows->close(true, base::Clock::now());
  CHECK_THAT(errors.text(), Catch::Contains("rank 1 did not let go of it in time"));
}

TEST_CASE("cuda ipc: memory that others cannot reach is refused or nowhere") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  IpcRanks ranks({0, 0, 1});
  Program program(ranks[0], 1000);
  for (const char* const function :
       {"cuMemGetAddressRange", "cuIpcGetMemHandle", "cuDeviceGetUuid", "cuCtxPushCurrent"}) {
    fake.fail(function, 1, 1, 2);
    CHECK_THROWS_WITH(program.register_part(0, 1000), Catch::Contains("OUT_OF_MEMORY"));
    fake.clear();
  }
  fake.allow("ipc", false);
  CHECK_THROWS_WITH(program.register_part(0, 1000), Catch::Contains("use cudaMalloc or"));
  fake.clear();
  device::SharedMemory mapped(ranks[0].gpu, 100);
  try {
    ranks[0].windows->register_memory(0, {reinterpret_cast<std::byte*>(mapped.address()), 100});
    FAIL("not refused");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::unsupported);
  }
  // A rank whose GPU has no access.
  const StandardError errors;
  fake.fail("cuCtxEnablePeerAccess", 1, 1, 217);
  auto registration = program.register_part(0, 1000);
  CHECK(ranks.find(0, program.data(), 1000).generation == 0);
  CHECK(times(errors.text(), "rank 0 has registered cannot be mapped: cuCtxEnablePeerAccess") == 1);
  registration.reset();
  registration = program.register_part(0, 1000);
  const transports::WindowPlace place = ranks.find(0, program.data(), 1000);
  CHECK(place.generation != 0);
  ranks[0].windows->ended(place);
  // A peer names memory that there is not.
  cuda_ipc::Table& table = cuda_ipc::table_in(ranks.transports()[0]->windows()->area(0));
  auto& entry = table.exports[7];
  entry.name = 7;
  entry.generation = 7;
  table.registrations.fetch_add(1);
  ranks[1].turn();
  CHECK(times(errors.text(), "rank 0 has registered cannot be mapped: it is on a GPU that") == 1);
  for (std::size_t i = 0; i < 2; ++i) entry.gpu[i] = table.exports[place.slot].gpu[i].load();
  table.registrations.fetch_add(1);
  ranks[1].turn();
  CHECK(times(errors.text(), "cannot be mapped: cuIpcOpenMemHandle") == 1);
  CHECK(ranks[1].windows->map(0, {7, 7, 0}, 0) == nullptr);
  // Nor is a name of another rank's memory good.
  auto& copied = cuda_ipc::table_in(ranks.transports()[2]->windows()->area(2)).exports[0];
  copied.name = table.exports[place.slot].name.load();
  copied.generation = 1;
  for (std::size_t i = 0; i < 2; ++i) copied.gpu[i] = table.exports[place.slot].gpu[i].load();
  cuda_ipc::table_in(ranks.transports()[2]->windows()->area(2)).registrations.fetch_add(1);
  ranks[1].turn();
  CHECK(times(errors.text(), "rank 2 has registered cannot be mapped: cuIpcOpenMemHandle") == 1);
}

TEST_CASE("cuda ipc: memory of a process outlives it") {
  if (FakeCuda::missing()) return;
  const Ended ended = run_own("cuda ipc child: two processes", "leaks=fail");
  INFO(ended.output);
  CHECK(ended.status == 0);
}

// CUDA works in the child of fork() because nothing has used it before.
TEST_CASE("cuda ipc child: two processes", "[.child]") {
  const auto rank0 = shm::make_shm(options_of(0, 2));
  RankProcess other(*rank0, [](transports::Transport& rank1) {
    IpcRank rank(1, rank1);
    const auto memory = rank.windows->allocate(0, 100);
    write_text(memory->memory().data(), "of a process");
    while (rank.windows->find(memory->memory().data(), 100).generation == 0) rank.turn();
    while (text_at(memory->memory().data()) != "seen") std::this_thread::yield();
    ::raise(SIGKILL);
  });
  IpcRank rank(0, *rank0);
  std::byte* there = nullptr;
  while (there == nullptr) {
    rank.turn();
    const auto& entry = cuda_ipc::table_in(rank0->windows()->area(1)).exports[0];
    there = rank.windows->map(1, {0, entry.generation.load(), 0}, 100);
  }
  while (text_at(there) != "of a process") std::this_thread::yield();
  write_text(there, "seen");
  other.wait();
  CHECK(text_at(there) == "seen");
}

TEST_CASE("cuda ipc: processes open registered memory, and close it while they do other things") {
  if (FakeCuda::missing()) return;
  const Ended ended =
      run_own("cuda ipc child: registered memory of two processes", "leaks=fail,gpus=2");
  INFO(ended.output);
  CHECK(ended.status == 0);
  CHECK_THAT(ended.output, Catch::Contains("rank 0 has registered cannot be mapped: registered "
                                           "memory of another process serves one GPU"));
}

// The fake ends the process if it frees what the other one has open.
TEST_CASE("cuda ipc child: registered memory of two processes", "[.child]") {
  const auto rank0 = shm::make_shm(options_of(0, 2));
  RankProcess other(*rank0, [](transports::Transport& rank1) {
    IpcRank rank(1, rank1);
    const auto opened = [&](std::uint32_t slot) {
      const auto& entry = cuda_ipc::table_in(rank1.windows()->area(0)).exports[slot];
      std::byte* there = nullptr;
      while (there == nullptr) {
        rank.turn();
        there = rank.windows->map(0, {slot, entry.generation.load(), 0}, 1000);
      }
      return there;
    };
    std::byte* const first = opened(0);
    while (text_at(first) != "of a program") std::this_thread::yield();
    write_text(first, "seen");
    const auto memory = rank.windows->allocate(0, 100);
    while (rank.windows->find(memory->memory().data(), 100).generation == 0) rank.turn();
    // Here it leaves its windows alone.
    while (text_at(memory->memory().data()) != "next") std::this_thread::yield();
    opened(0);
    // CUDA has opened it for one GPU, so another one does not reach it.
    rank.windows->catch_up(rank.gpus->gpu(1));
    write_text(memory->memory().data(), rank.windows->reaches_all() ? "wrong" : "opened");
    for (;;) ::pause();
  });
  const StandardError errors;
  IpcRank rank(0, *rank0);
  auto program = std::make_optional<Program>(rank, 1000);
  auto registration = program->register_part(0, 1000);
  write_text(program->data(), "of a program");
  std::byte* there = nullptr;
  while (there == nullptr) {
    rank.turn();
    const auto& entry = cuda_ipc::table_in(rank0->windows()->area(1)).exports[0];
    there = rank.windows->map(1, {0, entry.generation.load(), 0}, 100);
  }
  CHECK(text_at(program->data()) == "seen");
  const transports::WindowPlace place = rank.windows->find(program->data(), 1000);
  REQUIRE(place.generation != 0);
  rank.windows->ended(place);
  registration.reset();
  program.reset();

  // Nor does it wait for a rank that is dead.
  program.emplace(rank, 1000);
  registration = program->register_part(0, 1000);
  write_text(there, "next");
  while (text_at(there) == "next") rank.turn();
  CHECK(text_at(there) == "opened");
  CHECK(rank.windows->find(program->data(), 1000).generation == 0);
  ::kill(other.process(), SIGKILL);
  other.wait();
  registration.reset();
  program.reset();
  CHECK(errors.text().empty());
}

}  // namespace rondo::testing
