// SPDX-License-Identifier: Apache-2.0
//
// Two-level algorithms on GPUs: inside a host, ranks sum and copy in memory of their GPUs, and only
// what goes to other hosts passes through staging memory.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <latch>
#include <string>
#include <vector>

#include "base/traits.h"
#include "catch.h"
#include "gpu/gpu_ranks.h"
#include "support/effort.h"
#include "support/fake_kernels.h"
#include "support/trial.h"
#include "tests/engine/two_level_ranks.h"

namespace rondo::testing {
namespace {

// hosts: by rank. Over shm, also between hosts.
Setup two_level_setup(const std::vector<int>& hosts, std::size_t segment_bytes = 0) {
  Setup setup = setup_of(hosts, segment_bytes);
  setup.over = Over::shm;
  setup.faults.windows = false;
  setup.options.staging_bytes = 1;  // as direct_setup()
  return setup;
}

// A rank that makes calls on memory of its GPU.
class Caller {
 public:
  static constexpr std::size_t arena_bytes = 4'000'000;

  Caller(Communicator& c, OnGpu& on, Where where) : c_(c), on_(on) {
    if (in_window(where, c.rank())) arena_ = c.allocate(arena_bytes, on.gpu().ordinal());
  }
  void place(Trial& trial, std::size_t offset = 0) {
    if (arena_.data() == nullptr) return trial.place_on(on_.copier);
    expect(offset + trial.bytes() <= arena_bytes, "the arena is too small");
    trial.place_at(on_.copier, reinterpret_cast<device::Address>(arena_.data()) + offset);
  }
  void run(const Case& what) {
    Trial trial(what, c_.rank(), c_.size());
    place(trial, what.count % 7);
    trial.start(c_);
    trial.work().wait();
    const std::string problem = trial.problem();
    expect(problem.empty(), [&] { return describe(what) + ": " + problem; });
  }
  // Until the ranks of each host have mapped memory and slots of each other.
  void warm_up() {
    for (const Priority priority : {Priority::bulk, Priority::urgent})
      for (int i = 0; i < 25; ++i)
        for (const Collective operation : {Collective::all_reduce, Collective::all_gather})
          run({.operation = operation, .count = 9'000, .priority = priority});
  }

 private:
  Communicator& c_;
  OnGpu& on_;
  Memory arena_;
};

constexpr Collective all_forms[] = {Collective::all_reduce,   Collective::reduce_scatter,
                                    Collective::all_gather,   Collective::reduce_scatter_v,
                                    Collective::all_gather_v, Collective::reduce,
                                    Collective::broadcast};

TEST_CASE("two levels on GPUs: every operation, in windows, elsewhere and mixed", "[two_level]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  const std::vector<std::vector<int>> shapes = {
      {0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0, 1}, {2, 0, 2, 1, 1, 0, 2}};
  for (const std::vector<int>& hosts : shapes)
    for (const Where where : {Where::elsewhere, Where::windows, Where::mixed})
      for (const std::size_t segment_bytes : {0, 4'000}) {
        if (hosts.size() > 4 && (where != Where::mixed || segment_bytes == 0)) continue;
        // Few cases: ranks of a host have numbers in a row, and each place has one size of
        // segments.
        const bool in_a_row = hosts.size() == 4 && hosts[1] == hosts[0];
        if (few_cases() && !(in_a_row && (where == Where::windows) == (segment_bytes != 0)))
          continue;
        run_on_gpus(
            two_level_setup(hosts, segment_bytes), "operations", [&](Communicator& c, OnGpu& on) {
              Caller caller(c, on, where);
              caller.warm_up();
              for (const Collective operation : all_forms)
                for (const bool in_place : {false, true})
                  for (const std::size_t count : {1, 1'003, 30'011})
                    caller.run(
                        {.operation = operation, .count = count, .root = 1, .in_place = in_place});
            });
      }
}

TEST_CASE("two levels on GPUs: nothing of an all-reduce is loaded to the host", "[two_level]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  for (const Where where : {Where::elsewhere, Where::windows}) {
    std::barrier together(4);
    run_on_gpus(two_level_setup({0, 0, 1, 1}), "traffic", [&](Communicator& c, OnGpu& on) {
      Caller caller(c, on, where);
      caller.warm_up();
      Trial trial({.count = 50'000}, c.rank(), c.size());
      caller.place(trial);
      together.arrive_and_wait();
      const unsigned long loads = fake.calls("cuMemcpyDtoHAsync"),
                          kernels = fake.calls("cuLaunchKernel");
      together.arrive_and_wait();
      trial.start(c);
      trial.work().wait();
      together.arrive_and_wait();
      const bool good =
          fake.calls("cuMemcpyDtoHAsync") == loads && fake.calls("cuLaunchKernel") >= kernels + 4;
      together.arrive_and_wait();  // problem() reads the GPU
      expect(good, "the host has loaded inputs, or no kernel has summed them");
      expect(trial.problem().empty(), "wrong sums");
    });
  }
}

TEST_CASE("two levels on GPUs: several calls in flight, in both lanes", "[two_level]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  for (const Where where : {Where::elsewhere, Where::windows})
    run_on_gpus(two_level_setup({0, 0, 0, 1, 1}), "in flight", [&](Communicator& c, OnGpu& on) {
      Caller caller(c, on, where);
      caller.warm_up();
      for (int round = 0; round < 6; ++round) {
        std::vector<std::unique_ptr<Trial>> trials;
        std::size_t offset = 0;
        for (int i = 0; i < 9; ++i) {
          const Collective operation = all_forms[(round + i) % 5];
          const bool scales = i % 2 == 0 && base::traits_of(operation).reduces;
          const Case what{.operation = operation,
                          .count = i % 3 == 0 ? std::size_t{70} : std::size_t{7'000},
                          .scale = scales ? std::optional(0.5) : std::nullopt,
                          .priority = i % 4 == 1 ? Priority::urgent : Priority::bulk};
          trials.push_back(std::make_unique<Trial>(what, c.rank(), c.size()));
          caller.place(*trials.back(), offset);
          offset += (trials.back()->bytes() + 255) / 256 * 256;
        }
        for (const auto& trial : trials) trial->start(c);
        for (const auto& trial : trials) trial->work().wait();
        for (const auto& trial : trials) {
          const std::string problem = trial->problem();
          expect(problem.empty(), problem);
        }
      }
    });
}

TEST_CASE("two levels on GPUs: streams order the start, and join the end", "[two_level]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  run_on_gpus(two_level_setup({0, 0, 1, 1}), "streams", [&](Communicator& c, OnGpu& on) {
    constexpr std::size_t count = 20'000;
    GpuFloats values(on, count, 0), sums(on, count, -1), copies(on, count, -1);
    const device::Stream stream(on.gpu());
    for (int round = 1; round <= 40; ++round) {
      const auto value = static_cast<float>(round + c.rank());
      GpuFloats next(on, count, value);
      {
        const device::Current current(on.gpu());
        on.gpu().check(on.gpu().driver().copy_on_device(values.address(), next.address(),
                                                        count * sizeof(float), stream.get()),
                       "copy");
      }
      const Work work =
          c.all_reduce(values.buffer(), sums.buffer(), ReduceOp::sum, {.stream = stream.get()});
      work.join(stream.get());
      {
        const device::Current current(on.gpu());
        on.gpu().check(on.gpu().driver().copy_on_device(copies.address(), sums.address(),
                                                        count * sizeof(float), stream.get()),
                       "copy");
      }
      settle(on, stream);
      expect(copies.are(static_cast<float>(4 * round + 6)), "wrong sums behind the join");
    }
  });
}

TEST_CASE("a rank without a block gets the others' blocks in place", "[two_level][direct]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  for (const bool direct : {true, false}) {
    const Setup setup = direct ? direct_setup(4) : two_level_setup({0, 0, 1, 1});
    run_on_gpus(setup, "empty block", [](Communicator& c, OnGpu& on) {
      const std::vector<std::size_t> counts{0, 100, 0, 100};
      const auto rank = static_cast<std::size_t>(c.rank());
      const std::size_t start = rank < 2 ? 0 : 100;  // of this rank's block
      for (int round = 0; round < 3; ++round) {
        GpuFloats values(on, 200, static_cast<float>(round == 0 ? 7 : -1));
        const Buffer out = values.buffer();
        Buffer in = out;
        in.data = static_cast<float*>(out.data) + start;
        in.count = counts[rank];
        if (rank == 1 || rank == 3) values.set(7);
        c.all_gather_v(in, out, counts).wait();
        expect(values.are(7), "a block is missing");
      }
    });
  }
}

TEST_CASE("two levels on GPUs: who is late is named, and which GPU", "[two_level]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  Setup setup = two_level_setup({0, 0, 1, 1});
  setup.options.deadline = std::chrono::milliseconds{500};
  std::latch failed(3);
  const auto late = messages_of(setup, [&](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 20'000, 1);
    if (c.rank() == 1) return failed.wait();
    try {
      c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum).wait();
    } catch (const Error&) {
      failed.count_down();
      throw;
    }
  });
  for (const int rank : {0, 2, 3}) {
    INFO(late[static_cast<std::size_t>(rank)]);
    CHECK(late[static_cast<std::size_t>(rank)].find("rank 1") != std::string::npos);
  }
}

TEST_CASE("two levels on GPUs: a stream that has not reached the call is named", "[two_level]") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  register_device_kernels(fake);
  Setup setup = two_level_setup({0, 0, 1, 1});
  setup.options.deadline = std::chrono::milliseconds{500};
  for (const Collective operation : {Collective::all_reduce, Collective::all_gather}) {
    const auto late = messages_of(setup, [&](Communicator& c, OnGpu& on) {
      const device::Stream stream(on.gpu());
      GpuFloats in(on, 20'000, 1), out(on, 80'000, 1);
      if (c.rank() == 1) fake.hold(stream.get());
      const OpOptions options{.stream = c.rank() == 1 ? stream.get() : nullptr};
      try {
        if (operation == Collective::all_reduce)
          c.all_reduce(in.buffer(), in.buffer(), ReduceOp::sum, options).wait();
        else
          c.all_gather(in.buffer(), out.buffer(), options).wait();
      } catch (const Error&) {
        if (c.rank() == 1) fake.let_go(stream.get());
        throw;
      }
    });
    for (const std::string& message : late) {
      INFO(message);
      CHECK(message.find("rank 1 waits for GPU 1, which has not yet done") != std::string::npos);
    }
  }
}

TEST_CASE("two levels on GPUs: a call on other memory is a mismatch", "[two_level]") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  const auto messages = messages_of(two_level_setup({0, 0, 1, 1}), [](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 20'000, 1);
    std::vector<float> host(20'000, 1);
    const Buffer buffer = c.rank() == 1 ? buffer_of(host) : values.buffer();
    c.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  });
  for (const std::string& message : messages) {
    INFO(message);
    CHECK(message.find("rank 1") != std::string::npos);
    CHECK(message.find("on a GPU") != std::string::npos);
  }
}

}  // namespace
}  // namespace rondo::testing
