// SPDX-License-Identifier: Apache-2.0
//
// Direct algorithms on memory of GPUs that ranks reach where it lies: a kernel reads the inputs of
// all ranks and writes all outputs.
#include <array>
#include <chrono>
#include <deque>
#include <optional>

#include "catch.h"
#include "gpu/gpu_ranks.h"
#include "support/effort.h"
#include "support/fake_kernels.h"
#include "support/standard_error.h"
#include "support/trial.h"
#include "support/tsan.h"

namespace rondo::testing {
namespace {

// Ranks that are threads use registered memory at one address. TSan sees how they take turns only
// if their areas have one address too, as those of mem have.
Setup registered_setup(int size, bool over_mem = under_tsan) {
  Setup setup = direct_setup(size);
  if (over_mem) setup.over = Over::mem;
  setup.faults.windows = over_mem;
  return setup;
}

unsigned long launches() {
  return FakeCuda().calls("cuLaunchKernel");
}

// Memory that calls use again and again, as programs do.
class Arena {
 public:
  Arena(Communicator& c, OnGpu& on, std::size_t bytes)
      : communicator_(c),
        on_(on),
        memory_(c.allocate(bytes, on.gpu().ordinal())),
        data_(memory_.data()),
        bytes_(bytes) {}
  // Memory of the program, which registers it.
  Arena(Communicator& c, OnGpu& on, const device::DeviceMemory& memory)
      : communicator_(c),
        on_(on),
        data_(reinterpret_cast<void*>(memory.address())),
        bytes_(memory.bytes()) {}

  // offset: of the buffers in the arena.
  void run(const Case& what, std::size_t offset = 0) {
    Trial trial(what, communicator_.rank(), communicator_.size());
    expect(offset + trial.bytes() <= bytes_, "the arena is too small");
    trial.place_at(on_.copier, reinterpret_cast<device::Address>(data_) + offset);
    trial.start(communicator_);
    trial.work().wait();
    const std::string problem = trial.problem();
    expect(problem.empty(), [&] { return describe(what) + ": " + problem; });
  }
  Buffer buffer(std::size_t count) const noexcept {
    return {data_, count, DType::f32, on_.gpu().ordinal()};
  }
  void run_often(int times) {
    for (int i = 0; i < times; ++i) run({.count = 10'000});
  }
  // Until all ranks reach each other's memory. That takes a few calls, because they look seldom for
  // what others have sent.
  void warm_up() {
    const unsigned long before = launches();
    std::array<int, 1> warm{};
    for (int i = 0; i < 300 && warm[0] == 0; ++i) {
      run_often(1);
      warm[0] = launches() > before ? 1 : 0;
      communicator_.all_reduce(buffer_of(warm), buffer_of(warm), ReduceOp::min).wait();
    }
    expect(warm[0] == 1, "the ranks do not reach each other's memory");
  }

 private:
  Communicator& communicator_;
  OnGpu& on_;
  const Memory memory_;
  void* const data_;
  const std::size_t bytes_;
};

// Memory of cudaMalloc that is registered.
struct Program {
  Program(Communicator& c, OnGpu& on, std::size_t bytes)
      : communicator(c),
        memory(on.gpu(), bytes),
        arena(c, on, memory),
        ordinal(on.gpu().ordinal()) {
    register_all();
  }
  void* data() const noexcept { return reinterpret_cast<void*>(memory.address()); }
  void register_all() {
    registration = communicator.register_memory(data(), memory.bytes(), ordinal);
  }

  Communicator& communicator;
  device::DeviceMemory memory;
  Arena arena;
  const int ordinal;
  Registration registration;
};

TEST_CASE("ranks combine and copy where buffers on GPUs lie", "[direct]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  for (const int size : {2, 3, 5}) {
    if (few_cases() && size == 5) continue;
    const unsigned long before = launches();
    run_on_gpus(direct_setup(size), "windows", [&](Communicator& c, OnGpu& on) {
      Arena arena(c, on, 4'000'000);
      arena.warm_up();
      for (const Collective operation : with_chunks)
        for (const bool in_place : {false, true})
          for (const std::size_t count : {5'000, 50'001})
            arena.run(
                {.operation = operation, .count = count, .root = size - 1, .in_place = in_place},
                count % 7);
    });
    CHECK(launches() > before + 50);
  }
}

TEST_CASE("kernels combine every type and operation of ranks", "[direct]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  for (const bool reproducible : {false, true}) {
    Setup setup = direct_setup(3);
    setup.options.reproducible = reproducible;
    run_on_gpus(setup, "types", [&](Communicator& c, OnGpu& on) {
      Arena arena(c, on, 2'000'000);
      arena.warm_up();
      for (int type = 0; type < dtype_count; ++type)
        for (int op = 0; op < reduce_op_count; ++op)
          if (supports(static_cast<DType>(type), static_cast<ReduceOp>(op)))
            arena.run({.type = static_cast<DType>(type),
                       .op = static_cast<ReduceOp>(op),
                       .count = 20'011});
    });
  }
}

TEST_CASE("ranks combine and copy where registered memory lies", "[direct]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  for (const int size : {2, 3}) {
    const unsigned long before = launches();
    run_on_gpus(registered_setup(size, under_tsan || size == 3), "registered",
                [&](Communicator& c, OnGpu& on) {
                  Program program(c, on, 4'000'000);
                  program.arena.warm_up();
                  for (const Collective operation : with_chunks)
                    for (const bool in_place : {false, true})
                      program.arena.run({.operation = operation,
                                         .count = 50'001,
                                         .root = size - 1,
                                         .in_place = in_place});
                  // Registered again, also while it is registered, and on one side only.
                  const Registration more = c.register_memory(program.data(), 1, program.ordinal);
                  program.registration = {};
                  program.arena.run({.count = 20'000});
                  program.register_all();
                  program.arena.run({.count = 20'000});
                  if (c.rank() == 0) program.registration = {};
                  program.arena.run({.count = 20'000});
                });
    CHECK(launches() > before + 30);
  }
}

TEST_CASE("registered memory may go when its registration has ended, also under way", "[direct]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  const StandardError errors;
  run_on_gpus(registered_setup(3), "ends", [&](Communicator& c, OnGpu& on) {
    for (int round = 0; round < 5; ++round) {
      std::optional<Program> program(std::in_place, c, on, 1'000'000);
      program->arena.warm_up();
      const Buffer values = program->arena.buffer(200'000);
      const Work work = c.all_reduce(values, values, ReduceOp::max);
      // The others wait for it in turn while this rank drives nothing.
      if (c.rank() == round % 3) program->registration = {};
      work.wait();
      c.barrier().wait();
      program.reset();
    }
  });
  CHECK(errors.text().empty());
}

TEST_CASE("registered memory of ranks that fail may go", "[direct]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  const StandardError errors;
  for (const int way : {0, 1, 2, 3}) {
    const bool aborts = way % 2 == 0, before_communicator = way / 2 == 1;
    RankBarrier together(2);
    run_on_gpus(registered_setup(2), "fails", [&](Communicator& c, OnGpu& on) {
      std::optional<Communicator> communicator(std::move(c));
      std::optional<Program> program(std::in_place, *communicator, on, 1'000'000);
      program->arena.warm_up();
      const Buffer values = program->arena.buffer(200'000);
      together.arrive_and_wait();
      // Then a rank at least uses the other one's memory.
      if (communicator->rank() == 0 && !aborts) fake.fail_work(12, 700);
      together.arrive_and_wait();
      Work work = communicator->all_reduce(values, values, ReduceOp::sum);
      if (communicator->rank() == 1 && aborts) communicator->abort(Errc::aborted, "a test");
      try {
        work.wait();
        expect(aborts, "it ended well");
      } catch (const Error&) {
      }
      if (before_communicator) program->registration = {};
      together.arrive_and_wait();
      communicator.reset();
      program.reset();
    });
    fake.clear();
    for (const int ordinal : {0, 1}) fake.break_gpu(ordinal, 0);
  }
  CHECK(errors.text().empty());
}

TEST_CASE("memory that cannot be registered is refused", "[direct]") {
  if (FakeCuda::missing()) return;
  const auto check = [](Communicator& c, OnGpu& on) {
    const int gpu = on.gpu().ordinal();
    const device::DeviceMemory memory(on.gpu(), 1000);
    void* const data = reinterpret_cast<void*>(memory.address());
    std::array<char, 10> host{};
    const std::string where = " it is registered on GPU " + std::to_string(gpu);
    refused(Errc::invalid_argument, "register_memory on rank",
            [&] { (void)c.register_memory(host.data(), host.size(), gpu); });
    refused(Errc::invalid_argument, "the memory is in host memory, but" + where,
            [&] { (void)c.register_memory(host.data(), host.size(), gpu); });
    refused(Errc::invalid_argument, "the memory has 1001 B, but its memory on GPU",
            [&] { (void)c.register_memory(data, 1001, gpu); });
    refused(Errc::invalid_argument, "there is no GPU 99",
            [&] { (void)c.register_memory(data, 1000, 99); });
    if (gpus_of_tests() > 1)
      refused(Errc::invalid_argument, "the memory is in memory of GPU " + std::to_string(gpu),
              [&] { (void)c.register_memory(data, 1000, 1 - gpu); });
    const Registration fine = c.register_memory(data, 1000, gpu);
    expect(fine.data() == data && fine.bytes() == 1000, "the registration says something else");
  };
  run_on_gpus(direct_setup(2), "refused", [&](Communicator& c, OnGpu& on) {
    check(c, on);
    const MappedMemory mapped(on.gpu());
    refused(Errc::unsupported, "use cudaMalloc or Communicator::allocate",
            [&] { (void)c.register_memory(mapped.data(), 100, on.gpu().ordinal()); });
  });
  // Where ranks share no windows there is nothing to register.
  Setup plain;
  plain.over = Over::shm;
  run_on_gpus(plain, "plain", check);
  run_on_gpus(direct_setup(1), "alone", check);
}

// Where only inputs or only outputs can be reached, the rest goes through slots.
TEST_CASE("half of the buffers of ranks lie in windows", "[direct]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  run_on_gpus(direct_setup(3), "halves", [&](Communicator& c, OnGpu& on) {
    constexpr std::size_t count = 20'000;
    Arena arena(c, on, 1'000'000);
    arena.warm_up();
    GpuFloats elsewhere(on, count, 0);
    const Buffer there = elsewhere.buffer(), here = arena.buffer(count);
    for (int round = 1; round <= 3; ++round) {
      const auto value = static_cast<float>(round + c.rank());
      elsewhere.set(value);
      c.all_reduce(there, here, ReduceOp::sum).wait();
      elsewhere.set(0);
      c.all_reduce(here, there, ReduceOp::max).wait();
      expect(elsewhere.are(static_cast<float>(3 * round + 3)), "wrong values");
    }
  });
}

// A rank that can map nothing, or whose GPU has no kernels: all ranks go through the host.
TEST_CASE("a rank without shared memory of GPUs costs speed only", "[direct]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  for (const char* const function : {"cuMemImportFromShareableHandle", "cuModuleLoadData"}) {
    const unsigned long before = launches();
    fake.fail(function, 1, -1, 801);
    const StandardError errors;
    run_on_gpus(direct_setup(3), function, [&](Communicator& c, OnGpu& on) {
      Arena arena(c, on, 1'000'000);
      arena.run_often(40);
      arena.run({.count = 20'000, .in_place = true});
    });
    fake.clear();
    CHECK(launches() == before);
    CHECK_THAT(errors.text(), Catch::Contains(function));
  }
}

TEST_CASE("calls on host memory and on GPUs keep one order", "[direct]") {
  for (const Priority priority : {Priority::bulk, Priority::urgent})
    run_on_gpus(direct_setup(3), "a row", [&](Communicator& c, OnGpu& on) {
      std::deque<Trial> trials;
      for (std::uint64_t i = 0; i < 60; ++i) {
        trials.emplace_back(Case{.operation = some_operation(i * 7),
                                 .count = i % 5 == 4 ? std::size_t{20'000} : 1 + i * 11,
                                 .in_place = i % 2 == 0,
                                 .priority = priority},
                            c.rank(), c.size());
        if (i % 3 != 0) trials.back().place_on(on.copier);
        trials.back().start(c);
      }
      for (Trial& trial : trials) {
        trial.work().wait();
        expect(trial.problem().empty(), trial.problem());
      }
    });
}

TEST_CASE("ranks that differ in where their buffers are all get a mismatch", "[direct]") {
  for (const std::size_t count : {10, 20'000})
    run_on_gpus(direct_setup(2), "differs", [&](Communicator& c, OnGpu& on) {
      GpuFloats on_gpu(on, count, 1);
      std::vector<float> on_host(count, 1);
      const Buffer values = c.rank() == 0 ? buffer_of(on_host) : on_gpu.buffer();
      try {
        c.all_reduce(values, values, ReduceOp::sum).wait();
        expect(false, "it ended well");
      } catch (const Error& error) {
        expect(error.code() == Errc::mismatch, error.what());
      }
    });
}

// Rank 1's stream still uses its buffers, which rank 0 could already read and write.
TEST_CASE("nobody uses buffers in windows before their stream has reached the call", "[direct]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  run_on_gpus(direct_setup(2), "held", [&](Communicator& c, OnGpu& on) {
    constexpr std::size_t count = 20'000;
    const Memory memory = c.allocate(count * sizeof(float), on.gpu().ordinal());
    const Buffer values{memory.data(), count, DType::f32, on.gpu().ordinal()};
    for (int i = 0; i < 40; ++i) c.all_reduce(values, values, ReduceOp::max).wait();
    const std::vector<float> mine(count, 1.0F + static_cast<float>(c.rank()));
    std::vector<float> seen(count);
    const auto address = reinterpret_cast<device::Address>(memory.data());
    on.copier.write(address, std::as_bytes(std::span(mine)));
    c.barrier().wait();
    const device::Stream stream(on.gpu());
    device::Event before(on.gpu());
    if (c.rank() == 1) {
      fake.hold(stream.get());
      const device::Current current(on.gpu());
      on.gpu().check(before.record(stream.get()), "record");
    }
    const Work work = c.all_reduce(values, values, ReduceOp::sum, {.stream = stream.get()});
    if (c.rank() == 1) {
      expect(!work.wait_for(std::chrono::milliseconds{20}), "it ended before its stream");
      on.copier.read(std::as_writable_bytes(std::span(seen)), address);
      expect(seen == mine, "it was written before its stream");
      fake.let_go(stream.get());
    }
    work.wait();
    on.copier.read(std::as_writable_bytes(std::span(seen)), address);
    expect(seen == std::vector<float>(count, 3), "wrong sum");
  });
}

// The GPU of rank 1 does nothing any more, in the middle of a call on windows.
TEST_CASE("a failure ends direct operations on GPUs, and their memory may go", "[direct]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  for (const bool aborts : {false, true}) {
    RankBarrier together(2);
    run_on_gpus(direct_setup(2), "fails", [&](Communicator& c, OnGpu& on) {
      {
        constexpr std::size_t count = 200'000;
        const Memory memory = c.allocate(count * sizeof(float), on.gpu().ordinal());
        const Buffer values{memory.data(), count, DType::f32, on.gpu().ordinal()};
        for (int i = 0; i < 40; ++i) c.all_reduce(values, values, ReduceOp::max).wait();
        together.arrive_and_wait();
        if (c.rank() == 0 && !aborts) fake.fail_work(3, 700);
        together.arrive_and_wait();
        const Work work = c.all_reduce(values, values, ReduceOp::sum);
        if (aborts && c.rank() == 1) c.abort(Errc::aborted, "a test");
        expect_failure(work, aborts);
      }
    });
    fake.clear();
    for (const int ordinal : {0, 1}) fake.break_gpu(ordinal, 0);
  }
}

// cuMemUnmap does not wait for the GPU, where cuMemFree does.
TEST_CASE("memory of a GPU may go while the program's kernels use it", "[direct]") {
  if (FakeCuda::missing()) return;
  Setup plain;
  plain.over = Over::shm;
  for (const Setup& setup : {direct_setup(2), plain})
    run_on_gpus(setup, "free", [&](Communicator& c, OnGpu& on) {
      constexpr std::size_t bytes = 1 << 20;
      const device::Stream stream(on.gpu());
      Memory memory = c.allocate(bytes, on.gpu().ordinal());
      const device::Current current(on.gpu());
      const auto address = reinterpret_cast<device::Address>(memory.data());
      for (int i = 0; i < 20; ++i)
        on.gpu().check(on.gpu().driver().set_bytes(address, 1, bytes, stream.get()), "set");
      memory = Memory();  // the fake aborts where work uses memory that has gone
      settle(on, stream);
    });
}

TEST_CASE("a second GPU that does not reach what is mapped costs speed only", "[direct]") {
  if (FakeCuda::missing() || gpus_of_tests() < 2) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  RankBarrier together(2);
  StandardError errors;
  run_on_gpus(direct_setup(2), "second", [&](Communicator& c, OnGpu& on) {
    OnGpu other(1 - on.gpu().ordinal());
    Arena first(c, on, 1 << 20);
    first.warm_up();
    std::optional<Arena> second;
    if (c.rank() == 0) {
      // It shows its memory, which the GPU that rank 1 uses then does not reach.
      const Work work = c.broadcast(first.buffer(20'000), first.buffer(20'000), 0);
      expect(!work.wait_for(std::chrono::milliseconds{20}), "rank 1 has not called it");
      together.arrive_and_wait();
      work.wait();
    } else {
      together.arrive_and_wait();
      fake.fail("cuMemSetAccess", 1, 1, 217);
      second.emplace(c, other, 1 << 20);
      const unsigned long copies = fake.calls("cuMemcpyDtoDAsync");
      c.broadcast(second->buffer(20'000), second->buffer(20'000), 0).wait();
      expect(fake.calls("cuMemcpyDtoDAsync") == copies, "it has not gone through the host");
    }
    Arena& mine = c.rank() == 0 ? first : *second;
    for (int i = 0; i < 5; ++i) mine.run({.operation = Collective::broadcast, .count = 20'000});
    mine.run_often(3);
    first.run_often(3);
  });
  fake.clear();
  CHECK(errors.text().find("cannot be mapped") != std::string::npos);
}

}  // namespace
}  // namespace rondo::testing
