// SPDX-License-Identifier: Apache-2.0
//
// Windows on memory of cudaMalloc that ranks have registered: it is opened, and let go of before
// its owner frees it.
#include <atomic>
#include <csignal>
#include <optional>
#include <thread>

#include "catch.h"
#include "cuda_ipc_ranks.h"
#include "device/own_program.h"
#include "shm_rank_process.h"
#include "support/standard_error.h"

namespace rondo::testing {
namespace {

// Two ranks, of which rank 0 has registered memory that rank 1 has open.
struct Opened {
  Opened() : program(ranks[0], 1000), registration(program.register_part(0, 1000)) {
    place = ranks.find(0, program.data(), 1000);
    REQUIRE(place.generation != 0);
  }
  // The table of rank 0, as it sees it.
  const cuda_ipc::Table& table() {
    return cuda_ipc::table_in(ranks.transports()[0]->windows()->area(0));
  }
  bool is_open() { return ranks[1].windows->map(0, place, 1000) != nullptr; }

  IpcRanks ranks{{0, 0}};
  Program program;
  std::unique_ptr<transports::Registration> registration;
  transports::WindowPlace place;  // counts as used by an operation of rank 0
};

}  // namespace

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

TEST_CASE("cuda ipc: threads allocate and register while another one looks for memory") {
  if (FakeCuda::missing()) return;
  IpcRanks ranks({0, 0});
  Program program(ranks[0], 1000);
  std::atomic<bool> ended{false};
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) {
      const auto memory = ranks[0].windows->allocate(0, 100);
      const auto registration = program.register_part(0, 1000);
    }
    ended = true;
  });
  bool found = false;
  while (!ended) {
    const transports::WindowPlace place = ranks[0].windows->find(program.data(), 1000);
    ranks[0].windows->ended(place);
    found = found || place.generation != 0;
  }
  other.join();
  CHECK_FALSE(found);  // rank 1 has not opened it
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
  Opened opened;
  CudaWindows& of0 = *opened.ranks[0].windows;
  const cuda_ipc::Table& table = opened.table();
  std::thread end([&] { opened.registration.reset(); });
  // find() that still finds it counts as one more operation.
  for (transports::WindowPlace found = opened.place; found.generation != 0; of0.ended(found))
    if ((found = of0.find(opened.program.data(), 1000)).generation == 0) break;
  CHECK(table.exports[opened.place.slot].generation == opened.place.generation);
  CHECK(opened.ranks[1].windows->map(0, opened.place, 1000) == opened.program.data());
  of0.ended(opened.place);
  end.join();
  CHECK(table.exports[opened.place.slot].generation == 0);
  CHECK_FALSE(opened.is_open());
}

TEST_CASE("cuda ipc: after a failure of its owner, registered memory stays until work has ended") {
  if (FakeCuda::missing()) return;
  Opened opened;
  Transports& transports = opened.ranks.transports();
  const cuda_ipc::Table& table = opened.table();
  opened.ranks[1].windows->hold();
  transports[0]->halt();
  std::atomic<bool> ended{false};
  std::thread end([&] {
    opened.registration.reset();  // the operation that found it has failed
    ended = true;
  });
  while (table.exports[opened.place.slot].generation != 0) std::this_thread::yield();
  opened.ranks[1].turn();
  CHECK(opened.is_open());
  transports[1]->halt();
  opened.ranks[1].turn();
  CHECK(opened.is_open());
  CHECK_FALSE(ended);
  opened.ranks[1].windows->release();
  end.join();
  CHECK_FALSE(opened.is_open());
}

TEST_CASE("cuda ipc: what another rank does not let go of in time is named") {
  if (FakeCuda::missing()) return;
  Opened opened;
  opened.ranks.transports()[0]->halt();  // rank 1 does not know
  const StandardError errors;
  opened.ranks[0].windows->close(true, base::Clock::now());
  CHECK_THAT(errors.text(), Catch::Contains("rank 0: the registration of 1000 B on a GPU") &&
                                Catch::Contains("rank 1 did not let go of it in time"));
}

TEST_CASE("cuda ipc: others go on when a rank that has registered memory leaves in order") {
  if (FakeCuda::missing()) return;
  Opened opened;
  opened.ranks[0].windows->ended(opened.place);
  opened.ranks.transports()[0]->halt();
  const StandardError errors;
  opened.ranks[0].windows->close(true, base::after(base::Clock::now(), std::chrono::minutes{1}));
  CHECK(opened.ranks[1].windows->map(0, opened.place, 1) == nullptr);
  CHECK(errors.text().empty());
}

TEST_CASE("cuda ipc: a rank that ends lets go of registered memory") {
  if (FakeCuda::missing()) return;
  Opened opened;
  const auto& mapped =
      cuda_ipc::table_in(opened.ranks.transports()[1]->windows()->area(1)).mapped[0];
  CHECK(mapped[opened.place.slot] == opened.place.generation);
  opened.ranks[1].windows->close(false, base::Clock::now());  // its GPU is still at work
  CHECK(mapped[opened.place.slot] == opened.place.generation);
  const StandardError errors;
  opened.ranks[0].windows->close(true, base::Clock::now());
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
  fake.fail("cuCtxEnablePeerAccess", 1, -1, 217);
  auto registration = program.register_part(0, 1000);
  CHECK(ranks.find(0, program.data(), 1000).generation == 0);
  CHECK(times(errors.text(), "rank 0 has registered cannot be mapped: cuCtxEnablePeerAccess") == 1);
  registration.reset();
  fake.clear();
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
  entry.generation = 8;
  table.registrations.fetch_add(1);
  ranks[1].turn();
  CHECK(times(errors.text(), "cannot be mapped: cuIpcOpenMemHandle") == 1);
  CHECK(ranks[1].windows->map(0, {7, 8, 0}, 0) == nullptr);
  // Nor is a name of another rank's memory good.
  auto& copied = cuda_ipc::table_in(ranks.transports()[2]->windows()->area(2)).exports[0];
  copied.name = table.exports[place.slot].name.load();
  copied.generation = 1;
  for (std::size_t i = 0; i < 2; ++i) copied.gpu[i] = table.exports[place.slot].gpu[i].load();
  cuda_ipc::table_in(ranks.transports()[2]->windows()->area(2)).registrations.fetch_add(1);
  ranks[1].turn();
  CHECK(times(errors.text(), "rank 2 has registered cannot be mapped: cuIpcOpenMemHandle") == 1);
}

TEST_CASE("cuda ipc: registered memory that cannot be opened is tried again") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  IpcRanks ranks({0, 1});
  Program program(ranks[0], 1000);
  const StandardError errors;
  const unsigned long before = fake.calls("cuCtxEnablePeerAccess");
  fake.fail("cuCtxEnablePeerAccess", 1, 3, 2);
  const auto registration = program.register_part(0, 1000);
  transports::WindowPlace place;
  const base::TimePoint until = base::after(base::Clock::now(), std::chrono::seconds{60});
  while (place.generation == 0 && base::Clock::now() < until)
    place = ranks.find(0, program.data(), 1000);
  CHECK(place.generation != 0);
  CHECK(fake.calls("cuCtxEnablePeerAccess") == before + 4);
  CHECK(times(errors.text(), "rank 0 has registered cannot be mapped: cuCtxEnablePeerAccess") == 1);
  ranks[0].windows->ended(place);
}

// A name of another communicator, by a rank with the same number.
TEST_CASE("cuda ipc: the name of memory holds in its own communicator only") {
  if (FakeCuda::missing()) return;
  Opened one;
  one.ranks[0].windows->ended(one.place);
  IpcRanks others({0, 0});
  cuda_ipc::Table& theirs = cuda_ipc::table_in(others.transports()[0]->windows()->area(0));
  theirs.exports[0].name =
      cuda_ipc::table_in(one.ranks.transports()[0]->windows()->area(0)).exports[0].name.load();
  for (std::size_t i = 0; i < 2; ++i)
    theirs.exports[0].gpu[i] =
        cuda_ipc::table_in(one.ranks.transports()[0]->windows()->area(0)).exports[0].gpu[i].load();
  theirs.exports[0].generation = 1;
  theirs.registrations.fetch_add(1);
  const StandardError errors;
  others[1].turn();
  CHECK(others[1].windows->map(0, {0, 1, 0}, 1) == nullptr);
  CHECK(times(errors.text(), "cannot be mapped: cuIpcOpenMemHandle") == 1);
}

TEST_CASE("cuda ipc: after a failure the end of a registration waits for work of its rank") {
  if (FakeCuda::missing()) return;
  Opened opened;
  CudaWindows& of0 = *opened.ranks[0].windows;
  const cuda_ipc::Table& table = opened.table();
  const StandardError errors;
  of0.hold();
  opened.ranks.transports()[0]->halt();
  opened.ranks.transports()[1]->halt();
  std::atomic<bool> ended{false};
  std::thread end([&] {
    opened.registration.reset();
    ended = true;
  });
  // The end has begun when it is found no more.
  while (of0.find(opened.program.data(), 1000).generation != 0) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();
  CHECK(table.exports[opened.place.slot].generation == opened.place.generation);
  CHECK_FALSE(ended);
  of0.release();
  end.join();
  CHECK(table.exports[opened.place.slot].generation == 0);
  CHECK(errors.text().empty());
}

TEST_CASE("cuda ipc: work that has not ended with its communicator is named") {
  if (FakeCuda::missing()) return;
  for (const bool idle : {false, true}) {
    Opened opened;
    for (const auto& transport : opened.ranks.transports()) transport->halt();
    const StandardError errors;
    opened.ranks[0].windows->close(idle, base::after(base::Clock::now(), std::chrono::minutes{1}));
    CHECK(times(errors.text(), "an operation still uses it: do not free this memory") ==
          (idle ? 0 : 1));
  }
}

TEST_CASE("cuda ipc: a communicator ends where CUDA does not close memory of others") {
  if (FakeCuda::missing()) return;
  // The thread stays, as it is meant to.
  const Ended ended = run_own("cuda ipc child: CUDA does not close memory", "leaks=ignore",
                              "TSAN_OPTIONS=halt_on_error=1:report_thread_leaks=0");
  INFO(ended.output);
  CHECK(ended.status == 0);
}

TEST_CASE("cuda ipc child: CUDA does not close memory", "[.child]") {
  const FakeCuda fake;
  const StandardError errors;
  Opened opened;
  auto memory = opened.ranks[0].windows->allocate(0, 100);
  REQUIRE(opened.ranks.find(0, memory->memory().data(), 100).generation != 0);
  const unsigned long before = fake.calls("cuMemRelease");
  fake.stall("cuMemUnmap", true);
  opened.ranks[1].windows.reset();
  CHECK(times(errors.text(), "rank 1: CUDA has not closed memory of other ranks") == 1);
  // The rest ends without it, and then the thread finds no table.
  opened.ranks[0].windows->ended(opened.place);
  opened.registration.reset();
  opened.ranks[0].windows.reset();
  opened.ranks.transports().clear();
  fake.stall("cuMemUnmap", false);
  while (fake.calls("cuMemRelease") == before) std::this_thread::yield();
}

TEST_CASE("cuda ipc: processes open registered memory, and close it while they do other things") {
  if (FakeCuda::missing()) return;
  const Ended ended =
      run_own("cuda ipc child: registered memory of two processes", "leaks=fail,gpus=2");
  INFO(ended.output);
  CHECK(ended.status == 0);
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
    // Each GPU has an address of its own, also one that comes later or was there before.
    const auto& entry = cuda_ipc::table_in(rank1.windows()->area(0)).exports[0];
    const auto reached = [&](int ordinal) {
      return rank.windows->map_for(rank.gpus->gpu(ordinal), 0, {0, entry.generation.load(), 0},
                                   1000);
    };
    const bool is_early = reached(1) != nullptr;
    rank.windows->catch_up(rank.gpus->gpu(1));
    std::byte* const second = reached(1);
    const bool is_right = !is_early && rank.windows->reaches_all() && second != nullptr &&
                          second != reached(0) && text_at(second) == text_at(reached(0));
    write_text(memory->memory().data(), is_right ? "opened" : "wrong");
    opened(1);
    const auto& later = cuda_ipc::table_in(rank1.windows()->area(0)).exports[1];
    std::byte* const third =
        rank.windows->map_for(rank.gpus->gpu(1), 0, {1, later.generation.load(), 0}, 1000);
    write_text(memory->memory().data(), third != nullptr ? "both" : "wrong");
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
  Program another(rank, 1000);
  auto more = another.register_part(0, 1000);
  while (text_at(there) == "opened") rank.turn();
  CHECK(text_at(there) == "both");
  const transports::WindowPlace of_both = rank.windows->find(program->data(), 1000);
  CHECK(of_both.generation != 0);
  rank.windows->ended(of_both);
  ::kill(other.process(), SIGKILL);
  other.wait();
  more.reset();
  registration.reset();
  program.reset();
  CHECK(errors.text().empty());
}

}  // namespace rondo::testing
