// SPDX-License-Identifier: Apache-2.0
//
// Windows on memory of GPUs that ranks have allocated: ranks as threads' worth of objects in one
// process, and two processes.
#include <csignal>
#include <thread>

#include "catch.h"
#include "cuda_ipc_ranks.h"
#include "device/own_program.h"
#include "shm_rank_process.h"
#include "support/standard_error.h"

namespace rondo::testing {
namespace {

constexpr std::size_t mebibytes_2 = std::size_t{2} << 20;

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
  auto& passing = dynamic_cast<host::DescriptorPassing&>(of1);
  std::array<std::byte, host::most_passed_bytes + 1> message{};
  const auto pass = [&](std::size_t bytes) {
    return passing.pass_descriptor(0, std::span(message).first(bytes), STDIN_FILENO);
  };
  CHECK(passing.pass_descriptor(7, {}, STDIN_FILENO) == EINVAL);
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

}  // namespace rondo::testing
