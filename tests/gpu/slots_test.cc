// SPDX-License-Identifier: Apache-2.0
//
// Direct algorithms on memory of GPUs that no other rank reaches: it goes through slots that all
// ranks have mapped, and not through the host.
#include <sched.h>

#include <barrier>
#include <string>

#include "catch.h"
#include "gpu/gpu_ranks.h"
#include "support/effort.h"
#include "support/fake_kernels.h"
#include "support/standard_error.h"
#include "support/trial.h"

namespace rondo::testing {
namespace {

constexpr std::size_t a_few_chunks = 20'000;  // f32

// Counts the kernels and copies that all ranks have started.
struct Started {
  unsigned long kernels = 0, on_gpu = 0, through_host = 0;

  static Started now() {
    const FakeCuda fake;
    return {fake.calls("cuLaunchKernel"), fake.calls("cuMemcpyDtoDAsync"),
            fake.calls("cuMemcpyDtoHAsync") + fake.calls("cuMemcpyHtoDAsync")};
  }
  Started since(const Started& before) const {
    return {kernels - before.kernels, on_gpu - before.on_gpu, through_host - before.through_host};
  }
};

// Ranks that do something together, and count what they have started for it. A rank that throws
// lets the others go on.
class Together {
 public:
  explicit Together(int size) : barrier_(size) {}

  template <class Function>
  Started run(const Communicator& c, Function function) {
    wait();
    if (c.rank() == 0) before_ = Started::now();
    wait();
    try {
      function();
    } catch (...) {
      barrier_.arrive_and_drop();
      throw;
    }
    wait();
    if (c.rank() == 0) started_ = Started::now().since(before_);
    wait();
    return started_;
  }
  // Until all ranks have slots.
  void warm_up(Communicator& c, OnGpu& on, Priority priority = Priority::bulk) {
    GpuFloats values(on, a_few_chunks, 1);
    for (int i = 0; i < 300; ++i) {
      const Started started = run(c, [&] {
        c.all_reduce(values.buffer(), values.buffer(), ReduceOp::max, {.priority = priority})
            .wait();
      });
      expect(values.are(1), "wrong values");
      if (started.through_host == 0) return;
    }
    barrier_.arrive_and_drop();
    expect(false, "the ranks do not use slots in memory of GPUs");
  }
  // Runs the trial without the host.
  void run(Communicator& c, const Case& what, Trial& trial) {
    const Started started = run(c, [&] {
      trial.start(c);
      trial.work().wait();
    });
    const std::string problem = trial.problem();
    expect(problem.empty(), [&] { return describe(what) + ": " + problem; });
    expect(started.through_host == 0, [&] { return describe(what) + " went through the host"; });
    const bool reduces = what.operation == Collective::all_reduce ||
                         what.operation == Collective::reduce ||
                         what.operation == Collective::reduce_scatter;
    expect(!reduces || started.kernels >= static_cast<unsigned>(c.size()),
           [&] { return describe(what) + " has started no kernels"; });
    expect(started.on_gpu != 0, [&] { return describe(what) + " has copied nothing"; });
  }
  void run(Communicator& c, OnGpu& on, const Case& what) {
    Trial trial(what, c.rank(), c.size());
    trial.place_on(on.copier);
    run(c, what, trial);
  }

 private:
  void wait() { barrier_.arrive_and_wait(); }

  std::barrier<> barrier_;
  Started before_, started_;
};

TEST_CASE("buffers that no other rank reaches go through slots of GPUs", "[slots]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  for (const Priority priority : {Priority::bulk, Priority::urgent})
    for (const int size : {2, 3, 5}) {
      if (few_cases() && size == 5) continue;
      Together together(size);
      run_on_gpus(direct_setup(size), "slots", [&](Communicator& c, OnGpu& on) {
        together.warm_up(c, on, priority);
        for (const Collective operation : with_chunks)
          for (const bool in_place : {false, true})
            for (const std::size_t count : {5'000, 50'001})
              together.run(c, on,
                           {.operation = operation,
                            .count = count,
                            .root = size - 1,
                            .in_place = in_place,
                            .priority = priority});
        for (const Collective operation : {Collective::all_gather_v, Collective::reduce_scatter_v})
          together.run(
              c, on,
              {.operation = operation, .count = 10'000, .in_place = true, .priority = priority});
      });
    }
}

TEST_CASE("kernels combine every type and operation from slots of GPUs", "[slots]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  for (const bool reproducible : {false, true}) {
    Setup setup = direct_setup(3);
    setup.options.reproducible = reproducible;
    Together together(3);
    run_on_gpus(setup, "types", [&](Communicator& c, OnGpu& on) {
      together.warm_up(c, on);
      for (int type = 0; type < dtype_count; ++type)
        for (int op = 0; op < reduce_op_count; ++op)
          if (supports(static_cast<DType>(type), static_cast<ReduceOp>(op)))
            together.run(c, on,
                         {.type = static_cast<DType>(type),
                          .op = static_cast<ReduceOp>(op),
                          .count = 20'011});
    });
  }
}

TEST_CASE("inputs are multiplied as they come from slots of GPUs", "[slots]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  Together together(3);
  run_on_gpus(direct_setup(3), "scales", [&](Communicator& c, OnGpu& on) {
    together.warm_up(c, on);
    GpuFloats values(on, a_few_chunks, 1);
    const Started started = together.run(c, [&] {
      c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum,
                   {.scale = 0.5, .input_scale = 1.0 + c.rank()})
          .wait();
    });
    expect(started.through_host == 0, "it went through the host");
    expect(values.are(3), "wrong sums");
  });
}

// The half that others reach is used where it lies.
TEST_CASE("half of the buffers go through slots of GPUs", "[slots]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  Together together(3);
  run_on_gpus(direct_setup(3), "halves", [&](Communicator& c, OnGpu& on) {
    const Memory memory = c.allocate(a_few_chunks * sizeof(float), on.gpu().ordinal());
    GpuFloats elsewhere(on, a_few_chunks, 0);
    const Buffer there = elsewhere.buffer(),
                 here{memory.data(), a_few_chunks, DType::f32, on.gpu().ordinal()};
    for (int i = 0; i < 40; ++i) c.all_reduce(here, here, ReduceOp::max).wait();
    together.warm_up(c, on);
    const auto chunks = static_cast<unsigned long>(10);  // of 8 KiB
    for (int round = 1; round <= 3; ++round) {
      elsewhere.set(static_cast<float>(round + c.rank()));
      const Started into =
          together.run(c, [&] { c.all_reduce(there, here, ReduceOp::sum).wait(); });
      expect(into.through_host == 0, "it went through the host");
      expect(into.on_gpu <= 2 * 3 * chunks, "outputs were copied out");
      elsewhere.set(0);
      const Started from =
          together.run(c, [&] { c.all_reduce(here, there, ReduceOp::max).wait(); });
      expect(from.through_host == 0, "it went through the host");
      expect(from.on_gpu <= 2 * 3 * chunks, "inputs were copied in");
      expect(elsewhere.are(static_cast<float>(3 * round + 3)), "wrong values");
      elsewhere.set(static_cast<float>(c.rank()));
      const Started to_root =
          together.run(c, [&] { c.reduce(there, here, ReduceOp::sum, 1).wait(); });
      expect(to_root.through_host == 0, "it went through the host");
      elsewhere.set(-1);
      c.broadcast(c.rank() == 1 ? here : there, c.rank() == 1 ? here : there, 1).wait();
      if (c.rank() != 1) expect(elsewhere.are(3), "wrong sums at the root");
    }
  });
}

TEST_CASE("slots of GPUs are made when calls need them, and reported", "[slots]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  constexpr std::size_t slots = std::size_t{4} * 8 << 10;
  RankBarrier together(2);
  run_on_gpus(direct_setup(2), "made", [&](Communicator& c, OnGpu& on) {
    GpuFloats small(on, 1000, 1), large(on, a_few_chunks, 1);
    for (int i = 0; i < 20; ++i) c.all_reduce(small.buffer(), small.buffer(), ReduceOp::max).wait();
    const std::size_t before = c.statistics().staging_bytes;
    together.arrive_and_wait();
    if (c.rank() == 0)
      expect(fake.alive(rondo_fake_allocations) == 0, "small calls have made slots");
    together.arrive_and_wait();
    for (int i = 0; i < 20; ++i) c.all_reduce(large.buffer(), large.buffer(), ReduceOp::max).wait();
    expect(c.statistics().staging_bytes == before + slots, "slots are not reported");
  });
}

// A program that switches between GPUs, or ranks whose GPUs differ, in one order with calls on
// host memory.
TEST_CASE("each GPU of a rank has slots", "[slots]") {
  if (FakeCuda::missing() || gpus_of_tests() < 2) return;
  register_device_kernels(FakeCuda());
  Together together(2);
  run_on_gpus(direct_setup(2), "two", [&](Communicator& c, OnGpu& on) {
    OnGpu other(1 - on.gpu().ordinal());
    together.warm_up(c, on);
    together.warm_up(c, other);
    std::vector<float> on_host(a_few_chunks, 1);
    for (int i = 0; i < 6; ++i) {
      together.run(c, i % 2 == 0 ? on : other, {.count = 7'000U * (1U + static_cast<unsigned>(i))});
      c.all_reduce(buffer_of(on_host), buffer_of(on_host), ReduceOp::max).wait();
      const Case gather{.operation = Collective::all_gather, .count = 6'000};
      together.run(c, i % 3 == 0 ? on : other, gather);
    }
    expect(on_host == std::vector<float>(a_few_chunks, 1), "wrong values in host memory");
  });
}

// Whichever call of the driver fails while slots are made, exported or mapped: results are right,
// and the ranks go through the host or not, all alike.
TEST_CASE("a rank without slots of GPUs costs speed only", "[slots]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  for (const char* const function :
       {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess",
        "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuDeviceGetUuid",
        "cuMemGetAllocationGranularity", "cuDeviceCanAccessPeer"})
    for (unsigned nth = 1; nth <= 3; ++nth) {
      INFO(function << ", call " << nth);
      RankBarrier together(2);
      const StandardError errors;
      bool failed = false, has_slots = false;
      run_on_gpus(direct_setup(2), function, [&](Communicator& c, OnGpu& on) {
        GpuFloats values(on, a_few_chunks, 1);
        c.all_reduce(values.buffer(), values.buffer(), ReduceOp::max).wait();
        together.arrive_and_wait();
        if (c.rank() == 0) fake.fail(function, nth, 1, 2);
        together.arrive_and_wait();
        const unsigned long before = fake.calls(function);
        for (int i = 0; i < 40; ++i) {
          values.set(static_cast<float>(1 + c.rank()));
          c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum).wait();
          expect(values.are(3), "wrong sums");
        }
        together.arrive_and_wait();
        if (c.rank() == 0) failed = fake.calls(function) - before >= nth;
        const unsigned long kernels = fake.calls("cuLaunchKernel");
        together.arrive_and_wait();
        c.all_reduce(values.buffer(), values.buffer(), ReduceOp::max).wait();
        together.arrive_and_wait();
        if (c.rank() == 0) has_slots = fake.calls("cuLaunchKernel") != kernels;
      });
      fake.clear();
      CHECK((has_slots || (failed && times(errors.text(), "\n") == 1)));
      CHECK(times(errors.text(), "\n") <= 1);
    }
}

TEST_CASE("without access to the other GPU all go through the host", "[slots]") {
  if (FakeCuda::missing() || gpus_of_tests() < 2) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  for (const char* const what : {"peers", "export", "vmm"}) {
    fake.allow(what, false);
    const unsigned long before = fake.calls("cuLaunchKernel");
    const StandardError errors;
    run_on_gpus(direct_setup(2), what, [&](Communicator& c, OnGpu& on) {
      GpuFloats values(on, a_few_chunks, 1);
      for (int i = 0; i < 30; ++i)
        c.all_reduce(values.buffer(), values.buffer(), ReduceOp::max).wait();
      expect(values.are(1), "wrong values");
    });
    fake.clear();
    INFO(what << ": " << errors.text());
    CHECK(fake.calls("cuLaunchKernel") == before);
    // One line of each rank. If both are written at once, one may overwrite the other.
    CHECK(times(errors.text(), "\n") >= 1);
    CHECK(times(errors.text(), "\n") <= 2);
  }
}

// GPUs do nothing any more in the middle of a call.
TEST_CASE("a GPU that hangs in a direct call is named at the deadline", "[slots]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  Setup setup = direct_setup(2);
  setup.options.deadline = short_deadline;
  Together all(2);
  RankBarrier together(2);
  run_on_gpus(setup, "hangs", [&](Communicator& c, OnGpu& on) {
    all.warm_up(c, on);
    GpuFloats values(on, 4'000'000, 1);
    together.arrive_and_wait();
    const unsigned long before = fake.calls("cuLaunchKernel");
    together.arrive_and_wait();
    const Work work = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum);
    if (c.rank() == 0) {
      while (fake.calls("cuLaunchKernel") < before + 10) ::sched_yield();
      fake.hold();
    }
    std::string message;
    try {
      work.wait();
    } catch (const Error& error) {
      message = error.what();
    }
    together.arrive_and_wait();
    if (c.rank() == 0) fake.let_go();
    together.arrive_and_wait();
    expect(message.find(", which has not finished a copy or a kernel of the call") !=
               std::string::npos,
           message);
  });
}

TEST_CASE("a failure ends operations that go through slots of GPUs", "[slots]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  for (unsigned nth = 0; nth < 12; ++nth) {
    Together all(2);
    RankBarrier together(2);
    run_on_gpus(direct_setup(2), "fails", [&](Communicator& c, OnGpu& on) {
      all.warm_up(c, on);
      {
        GpuFloats values(on, 100'000, 1);
        together.arrive_and_wait();
        if (c.rank() == 0 && nth != 0) fake.fail_work(nth, 700);
        together.arrive_and_wait();
        const Work work = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum);
        if (nth == 0 && c.rank() == 1) c.abort(Errc::aborted, "a test");
        expect_failure(work, nth == 0);
      }
    });
    fake.clear();
    for (const int ordinal : {0, 1}) fake.break_gpu(ordinal, 0);
  }
}

// Its slots stay allocated: to free them would wait for the GPU.
TEST_CASE("a communicator with slots ends beside a stream that does not move", "[abandons]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  Together all(2);
  abort_beside_a_held_stream(
      direct_setup(2), "end", [&](Communicator& c, OnGpu& on) { all.warm_up(c, on); }, ends_soon);
}

}  // namespace
}  // namespace rondo::testing
