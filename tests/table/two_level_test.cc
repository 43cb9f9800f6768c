// SPDX-License-Identifier: Apache-2.0
//
// Tests two-level algorithms where the ranks of a host share memory: of the host, or of their GPUs.
// The ranks sum and copy there, in windows and slots, and only frames go between hosts.
// table_test.cc runs every type.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <deque>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/traits.h"
#include "catch.h"
#include "gpu/gpu_ranks.h"
#include "support/effort.h"
#include "support/fake_kernels.h"
#include "support/trial.h"

namespace rondo::testing {
namespace {

enum class Device { host, gpu };
// Where the buffers of the ranks lie; mixed: those of every other rank in windows.
enum class Where { elsewhere, windows, mixed };

// Whether a test can run. On GPUs the tests control the fake driver.
bool possible(Device device) {
  if (device == Device::host) return true;
  if (FakeCuda::missing()) return false;
  register_device_kernels(FakeCuda());
  return true;
}

// hosts: by rank. segment_bytes: 0 leaves the choice to the planner. On GPUs even the hosts are
// joined by shm.
Setup setup_of(Device device, const std::vector<int>& hosts, std::size_t segment_bytes = 0) {
  Setup setup;
  setup.size = static_cast<int>(hosts.size());
  setup.hosts = hosts;
  setup.options.algorithm = "two_level";
  setup.options.segment_bytes = segment_bytes;
  setup.options.depth = segment_bytes == 0 ? 0 : 3;
  if (device == Device::host) {
    setup.faults.windows = true;
  } else {
    setup.over = Over::shm;
    setup.options.staging_bytes = 1;  // as direct_setup()
  }
  return setup;
}

// Makes the calls of a rank, on memory of the host or of its GPU. Up to in_flight are under way.
class Caller {
 public:
  static constexpr std::size_t in_flight = 9, slot_bytes = 1 << 20;

  // on: null on the host.
  Caller(Communicator& c, OnGpu* on, Where where)
      : c_(c),
        on_(on),
        window_(where == Where::windows || (where == Where::mixed && c.rank() % 2 == 0)) {
    if (window_) slots_ = allocate(in_flight * slot_bytes);
  }
  // Returns a call that has not started. With windows, it has a slot of one window or a window of
  // its own, so memory is mapped while calls run.
  Trial& add(const Case& what) {
    Entry& entry = entries_.emplace_back();
    entry.trial = std::make_unique<Trial>(what, c_.rank(), c_.size());
    Trial& trial = *entry.trial;
    const std::size_t number = made_++, offset = on_ != nullptr ? number % 7 : 0;
    if (window_ && (number % 3 == 0 || offset + trial.bytes() > slot_bytes)) {
      entry.own = allocate(offset + trial.bytes() + 1);
      place(trial, static_cast<std::byte*>(entry.own.data()) + offset);
    } else if (window_) {
      const std::size_t slot = number % in_flight * slot_bytes;
      place(trial, static_cast<std::byte*>(slots_.data()) + slot + offset);
    } else if (on_ != nullptr) {
      trial.place_on(on_->copier);
    }
    return trial;
  }
  void start(const Case& what) {
    if (entries_.size() == in_flight) finish_one();
    add(what).start(c_);
  }
  void finish() {
    while (!entries_.empty()) finish_one();
  }
  void run(const Case& what) {
    start(what);
    finish();
  }
  // On GPUs, makes calls until the ranks of each host have mapped each other's memory and slots.
  void warm_up() {
    for (const Priority priority : {Priority::bulk, Priority::urgent})
      for (int i = 0; on_ != nullptr && i < 25; ++i)
        for (const Collective operation : {Collective::all_reduce, Collective::all_gather})
          run({.operation = operation, .count = 9'000, .priority = priority});
  }

 private:
  struct Entry {
    std::unique_ptr<Trial> trial;
    rondo::Memory own;
  };

  rondo::Memory allocate(std::size_t bytes) {
    return c_.allocate(bytes, on_ != nullptr ? on_->gpu().ordinal() : -1);
  }
  void place(Trial& trial, std::byte* memory) {
    if (on_ == nullptr) return trial.place_at(memory);
    trial.place_at(on_->copier, reinterpret_cast<device::Address>(memory));
  }
  void finish_one() {
    Trial& trial = *entries_.front().trial;
    trial.work().wait();
    const std::string problem = trial.problem();
    expect(problem.empty(), problem);
    entries_.pop_front();
  }

  Communicator& c_;
  OnGpu* const on_;
  const bool window_;
  rondo::Memory slots_;
  std::size_t made_ = 0;
  std::deque<Entry> entries_;
};

void on_ranks(Device device, const Setup& setup,
              const std::function<void(Communicator&, OnGpu*)>& function) {
  if (device == Device::gpu)
    return run_on_gpus(setup, "two levels", [&](Communicator& c, OnGpu& on) { function(c, &on); });
  run_communicators(setup, "two levels", [&](Communicator& c, int) { function(c, nullptr); });
}

// Returns every rank's message; empty if it got none. With a code, calls may fail only with it.
std::vector<std::string> errors_of(Device device, const Setup& setup, std::optional<Errc> code,
                                   const std::function<void(Communicator&, OnGpu*)>& function) {
  std::vector<std::string> messages(static_cast<std::size_t>(setup.size));
  on_ranks(device, setup, [&](Communicator& c, OnGpu* on) {
    try {
      function(c, on);
    } catch (const Error& error) {
      expect(!code || error.code() == *code, error.what());
      messages[static_cast<std::size_t>(c.rank())] = error.what();
    }
  });
  return messages;
}

void check_contains(const std::string& message, const std::string& part) {
  INFO(message);
  CHECK(message.find(part) != std::string::npos);
}

constexpr Collective several[] = {Collective::all_gather,       Collective::reduce_scatter,
                                  Collective::broadcast,        Collective::all_gather_v,
                                  Collective::reduce_scatter_v, Collective::reduce};

// Returns the cases of a run, in which op, scale and priority take turns.
std::vector<Case> every_case(Device device) {
  const bool on_host = device == Device::host;
  const std::size_t large = !on_host ? 30'011 : few_cases() ? 5'011 : 40'011;
  const std::vector<DType> types =
      on_host ? std::vector{DType::f32, DType::bf16, DType::i32} : std::vector{DType::f32};
  std::vector<Case> cases;
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{1'003}, large})
    for (const DType type : types)
      for (const bool in_place : {false, true})
        for (const Collective operation :
             {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
              Collective::all_gather_v, Collective::reduce_scatter_v, Collective::reduce,
              Collective::broadcast, Collective::barrier}) {
          const std::size_t turn = cases.size();
          const int root = static_cast<int>((turn / 8 + turn / 16) % 4);
          const bool is_float = type != DType::i32;
          const bool scales = is_float && base::traits_of(operation).reduces && turn % 5 == 1;
          cases.push_back({operation, type, is_float && in_place ? ReduceOp::mean : ReduceOp::sum,
                           type == DType::f32 ? count : (count + 1) / 2, root, in_place,
                           scales ? std::optional(0.5) : std::nullopt,
                           turn % 3 == 0 ? Priority::urgent : Priority::bulk});
        }
  return cases;
}

// In the smaller sets a run has one of `runs` parts of the layouts, places and segments. Successive
// seeds have all parts.
void check_every_operation(Device device) {
  if (!possible(device)) return;
  const std::vector<std::vector<int>> layouts{{0, 0, 1, 1},
                                              {0, 1, 0, 1},
                                              {0, 0, 0, 1},
                                              {0, 0, 0, 1, 1},
                                              {0, 0, 1, 2, 2},
                                              {0, 0, 1, 1, 1, 1, 1},
                                              {0, 1, 1, 1, 2, 2, 1},
                                              {2, 0, 2, 1, 1, 0, 2},
                                              {0, 0, 0, 0, 1, 1, 1, 1},
                                              {2, 0, 2, 1, 1, 0, 2, 2}};
  const std::vector<Case> cases = every_case(device);
  const std::uint64_t runs = few_cases() ? 5 : whole_set() ? 1 : device == Device::host ? 10 : 16;
  std::uint64_t number = 0;
  for (const std::vector<int>& hosts : layouts)
    for (const Where where : {Where::elsewhere, Where::windows, Where::mixed})
      for (const std::size_t segment_bytes : {0, 4'000, 100'000}) {
        const bool slow =
            device == Device::gpu && hosts.size() > 5 &&
            (few_cases() || where != Where::mixed || segment_bytes != 4'000 || hosts.size() > 7);
        if (slow || (device == Device::gpu && segment_bytes == 100'000)) continue;
        if (number++ % runs != test_seed() % runs) continue;
        Setup setup = setup_of(device, hosts, segment_bytes);
        if (segment_bytes == 4'000 && where == Where::elsewhere) {
          setup.faults.capacity = 1000;
          setup.faults.delay = setup.faults.stall = 3;
        }
        INFO(hosts.size() << " ranks, segments of " << segment_bytes << " bytes, place "
                          << static_cast<int>(where));
        CHECK_NOTHROW(on_ranks(device, setup, [&](Communicator& c, OnGpu* on) {
          Caller caller(c, on, where);
          caller.warm_up();
          for (const Case& what : cases) caller.start(what);
          caller.finish();
        }));
      }
}

TEST_CASE("two levels: every operation, in windows, elsewhere and mixed") {
  check_every_operation(Device::host);
}

TEST_CASE("two levels on GPUs: every operation, in windows, elsewhere and mixed", "[.gpu]") {
  check_every_operation(Device::gpu);
}

// An all_reduce sends its rails round the hosts: 2(H - 1) frames for each slice of a segment. Each
// block takes H - 1 hops, and so does each rail of a broadcast or reduce, with a token for each
// host but the root's. Leaders send two tokens each in a barrier of three hosts. Nothing goes to
// other ranks of the host.
TEST_CASE("two levels: frames go between hosts only") {
  const std::vector<int> hosts{0, 0, 0, 1, 1, 1, 2, 2};
  std::atomic<std::uint64_t> blocks{0}, rooted{0}, barriers{0};
  const auto frames = [&](Communicator& c, OnGpu*) {
    std::uint64_t before = 0;
    const auto sent = [&] {
      const std::uint64_t now = c.statistics().frames_sent;
      return now - std::exchange(before, now);
    };
    sent();
    Trial::run(c, {.count = 25'000});
    // Three rails of three slices, four hops for each slice over three hosts. On the host with two
    // ranks the first has two rails.
    const std::uint64_t rails = c.rank() == 6 ? 2 : 1;
    expect(sent() == rails * 4, "a rank sent other frames of an all_reduce");
    Trial::run(c, {.operation = Collective::all_gather, .count = 1000});
    const std::uint64_t gathered = sent();
    // Its own block, and on the host with two ranks the first has two rails.
    if (c.rank() == 0) expect(gathered == 2, "the first rank sent other frames");
    if (c.rank() == 6) expect(gathered == 3, "the rank with two rails sent other frames");
    Trial::run(c, {.operation = Collective::reduce_scatter, .count = 1000});
    blocks += gathered + sent();
    for (const int root : {0, 4, 7})
      for (const std::size_t count : {0u, 9u, 25'000u})
        for (const Collective operation : {Collective::broadcast, Collective::reduce})
          Trial::run(c, {.operation = operation, .count = count, .root = root});
    rooted += sent();
    Trial::run(c, {.operation = Collective::barrier});
    const std::uint64_t tokens = sent();
    expect(c.rank() % 3 == 0 || tokens == 0, "a rank that does not lead sent a token");
    barriers += tokens;
  };
  CHECK_NOTHROW(on_ranks(Device::host, setup_of(Device::host, hosts, 1'000'000), frames));
  CHECK(blocks == 2 * 8 * 2);
  CHECK(rooted == 3 * 3 * 2 * (3 * 2 + 2));
  CHECK(barriers == 3 * 2);
}

// f16 ends at 65,504: the sum of the host must be made smaller before it is stored.
TEST_CASE("two levels: a mean of large f16 does not overflow on its way") {
  const auto means = [](Communicator& c, OnGpu*) {
    constexpr std::uint16_t large = 0x7b00;  // 57,344
    for (const std::size_t count : {3u, 30'000u}) {
      std::vector<std::uint16_t> in(4 * count, large), out(count);
      const Buffer whole{in.data(), in.size(), DType::f16}, block{out.data(), count, DType::f16};
      c.reduce_scatter(whole, block, ReduceOp::mean).wait();
      c.all_reduce({in.data(), count, DType::f16}, {in.data(), count, DType::f16}, ReduceOp::mean)
          .wait();
      for (const auto& values : {in, out})
        expect(std::ranges::count(values, large) == static_cast<std::ptrdiff_t>(values.size()),
               "the mean differs");
    }
  };
  CHECK_NOTHROW(on_ranks(Device::host, setup_of(Device::host, {0, 0, 0, 1}), means));
}

// Some ranks call `odd` with `count` while the others call `all` with a count of 100. If ranks of a
// host sum while others copy, those that sum do not see the posts of those that copy. If the ranks
// of the other host do the same, no frame and no post shows the difference.
struct Mistake {
  Collective all, odd;
  std::size_t count;
};

void check_mistakes(Device device) {
  if (!possible(device)) return;
  constexpr auto reduce = Collective::all_reduce, scatter = Collective::reduce_scatter,
                 gather = Collective::all_gather;
  constexpr auto share = Collective::broadcast, collect = Collective::reduce;
  const Mistake mistake = GENERATE_COPY(
      Mistake{share, share, 99}, Mistake{share, share, 50'000}, Mistake{share, collect, 100},
      Mistake{collect, collect, 50'000}, Mistake{share, gather, 100}, Mistake{collect, reduce, 100},
      Mistake{gather, share, 50'000}, Mistake{reduce, reduce, 99}, Mistake{reduce, reduce, 50'000},
      Mistake{gather, gather, 50'000}, Mistake{gather, scatter, 100}, Mistake{gather, reduce, 100},
      Mistake{scatter, scatter, 50'000}, Mistake{scatter, gather, 100},
      Mistake{scatter, reduce, 100});
  const std::vector<int> odd = GENERATE(std::vector<int>{0}, std::vector<int>{1},
                                        std::vector<int>{3}, std::vector<int>{1, 3});
  const auto messages = errors_of(device, setup_of(device, {0, 0, 1, 1}), Errc::mismatch,
                                  [&](Communicator& c, OnGpu* on) {
                                    const bool is_odd = std::ranges::count(odd, c.rank()) != 0;
                                    Caller(c, on, Where::elsewhere)
                                        .run({.operation = is_odd ? mistake.odd : mistake.all,
                                              .count = is_odd ? mistake.count : 100});
                                  });
  for (const std::string& message : messages)
    for (const auto& [operation, count] :
         {std::pair(mistake.all, std::size_t{100}), std::pair(mistake.odd, mistake.count)})
      check_contains(message, std::string(name_of(operation)) + " #1 (" + std::to_string(count) +
                                  " f32" +
                                  (operation == gather || operation == share ? "" : " sum"));
}

TEST_CASE("two levels: ranks that call different things get one mismatch") {
  check_mistakes(Device::host);
}

TEST_CASE("two levels on GPUs: ranks that call different things get one mismatch", "[.gpu]") {
  check_mistakes(Device::gpu);
}

TEST_CASE("two levels on GPUs: a call on other memory is a mismatch", "[.gpu]") {
  if (!possible(Device::gpu)) return;
  const auto messages = errors_of(
      Device::gpu, setup_of(Device::gpu, {0, 0, 1, 1}), {}, [](Communicator& c, OnGpu* on) {
        Caller(c, c.rank() == 1 ? nullptr : on, Where::elsewhere).run({.count = 20'000});
      });
  for (const std::string& message : messages) {
    check_contains(message, "rank 1");
    check_contains(message, "on a GPU");
  }
}

// Rank 1 never calls. The others give up at their deadlines and name it.
void check_late_rank(Device device) {
  if (!possible(device)) return;
  for (const Collective operation :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
        Collective::broadcast, Collective::reduce, Collective::barrier}) {
    if (device == Device::gpu && operation == Collective::barrier) continue;
    std::latch failed(3);
    const auto messages =
        errors_of(device, setup_of(device, {0, 0, 1, 1}), {}, [&](Communicator& c, OnGpu* on) {
          if (c.rank() == 1) return failed.wait();
          Caller caller(c, on, Where::elsewhere);
          Trial& trial = caller.add({.operation = operation,
                                     .count = device == Device::gpu ? std::size_t{20'000} : 1000});
          trial.options().deadline = std::chrono::milliseconds{500};
          trial.start(c);
          try {
            trial.work().wait();
          } catch (const Error&) {
            failed.count_down();
            throw;
          }
          failed.count_down();
        });
    for (const std::size_t rank : {0, 2, 3}) check_contains(messages[rank], "rank 1");
  }
}

TEST_CASE("two levels: a late rank of the same host is named") {
  check_late_rank(Device::host);
}

TEST_CASE("two levels on GPUs: a late rank of the same host is named", "[.gpu]") {
  check_late_rank(Device::gpu);
}

TEST_CASE("two levels on GPUs: a stream that has not reached the call is named", "[.gpu]") {
  if (!possible(Device::gpu)) return;
  const FakeCuda fake;
  Setup setup = setup_of(Device::gpu, {0, 0, 1, 1});
  setup.options.deadline = std::chrono::milliseconds{500};
  for (const Collective operation : {Collective::all_reduce, Collective::all_gather}) {
    const auto late = errors_of(Device::gpu, setup, {}, [&](Communicator& c, OnGpu* on) {
      const device::Stream stream(on->gpu());
      Caller caller(c, on, Where::elsewhere);
      Trial& trial = caller.add({.operation = operation, .count = 20'000, .in_place = true});
      if (c.rank() == 1) {
        fake.hold(stream.get());
        trial.options().stream = stream.get();
      }
      try {
        trial.start(c);
        trial.work().wait();
      } catch (const Error&) {
        if (c.rank() == 1) fake.let_go(stream.get());
        throw;
      }
    });
    for (const std::string& message : late)
      check_contains(message, "rank 1 waits for GPU 1, which has not yet done");
  }
}

// No rank, on either host, ends its call before every rank has begun it.
TEST_CASE("two levels: no call ends before all ranks have called") {
  const Collective operation = GENERATE(
      Collective::all_gather, Collective::reduce_scatter, Collective::all_gather_v,
      Collective::reduce_scatter_v, Collective::broadcast, Collective::reduce, Collective::barrier);
  const std::size_t count = GENERATE(as<std::size_t>{}, 0, 40'000);
  const int late = GENERATE(0, 1, 3, 4);
  const int root = GENERATE(0, 1, 4);
  if (root != 0 && !base::traits_of(operation).rooted()) return;
  std::atomic<bool> called{false};
  const auto call = [&](Communicator& c, OnGpu*) {
    if (c.rank() == late) {
      std::this_thread::sleep_for(std::chrono::milliseconds{30});
      called = true;
    }
    Trial trial({.operation = operation, .count = count, .root = root}, c.rank(), c.size());
    trial.start(c);
    trial.work().wait();
    expect(called, "rank " + std::to_string(c.rank()) + " was done before rank " +
                       std::to_string(late) + " had called");
    expect(trial.problem().empty(), trial.problem());
  };
  CHECK_NOTHROW(on_ranks(Device::host, setup_of(Device::host, {0, 0, 0, 1, 1}), call));
}

// Rank `failing` aborts while calls of all ranks are under way. Every later call of the others
// fails with that cause, and no call that ended well has a wrong result.
TEST_CASE("two levels: a rank that fails among calls") {
  const int failing = GENERATE(0, 1, 4);
  std::vector<std::string> messages(5);
  const auto calls = [&](Communicator& c, OnGpu*) {
    std::deque<Trial> trials;
    for (std::size_t i = 0; i < 40; ++i) {
      const Case what{.operation = several[i % std::size(several)],
                      .count = 1000 + i * 500,
                      .root = static_cast<int>(i % 5),
                      .in_place = i % 3 == 0,
                      .priority = i % 5 == 0 ? Priority::urgent : Priority::bulk};
      trials.emplace_back(what, c.rank(), c.size()).start(c);
      if (c.rank() == failing && i == 25) {
        trials[10].work().wait();
        c.abort(make_error_code(Errc::aborted), "the disk is full");
      }
    }
    for (Trial& trial : trials) {
      std::string problem;
      try {
        trial.work().wait();
        problem = trial.problem();
      } catch (const Error& error) {
        messages[static_cast<std::size_t>(c.rank())] = error.what();
        problem = trial.damage();
      }
      expect(problem.empty(), problem);
    }
  };
  const Setup setup = setup_of(Device::host, {0, 0, 0, 1, 1}, 20'000);
  CHECK_NOTHROW(on_ranks(Device::host, setup, calls));
  for (const std::string& message : messages)
    check_contains(message, "rank " + std::to_string(failing) + " called abort: the disk is full");
}

TEST_CASE("two levels on GPUs: nothing of an all-reduce is loaded to the host", "[.gpu]") {
  if (!possible(Device::gpu)) return;
  const FakeCuda fake;
  for (const Where where : {Where::elsewhere, Where::windows}) {
    std::barrier together(4);
    run_on_gpus(setup_of(Device::gpu, {0, 0, 1, 1}), "traffic", [&](Communicator& c, OnGpu& on) {
      Caller caller(c, &on, where);
      caller.warm_up();
      Trial& trial = caller.add({.count = 50'000});  // the 101st, so it has a slot
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
      caller.finish();
    });
  }
}

TEST_CASE("two levels on GPUs: streams order the start, and join the end", "[.gpu]") {
  if (!possible(Device::gpu)) return;
  run_on_gpus(setup_of(Device::gpu, {0, 0, 1, 1}), "streams", [](Communicator& c, OnGpu& on) {
    constexpr std::size_t count = 20'000;
    GpuFloats values(on, count, 0), sums(on, count, -1), copies(on, count, -1);
    const device::Stream stream(on.gpu());
    const auto copy = [&](const GpuFloats& to, const GpuFloats& from) {
      const device::Current current(on.gpu());
      on.gpu().check(on.gpu().driver().copy_on_device(to.address(), from.address(),
                                                      count * sizeof(float), stream.get()),
                     "copy");
    };
    for (int round = 1; round <= 40; ++round) {
      GpuFloats next(on, count, static_cast<float>(round + c.rank()));
      copy(values, next);
      c.all_reduce(values.buffer(), sums.buffer(), ReduceOp::sum, {.stream = stream.get()})
          .join(stream.get());
      copy(copies, sums);
      settle(on, stream);
      expect(copies.are(static_cast<float>(4 * round + 6)), "wrong sums behind the join");
    }
  });
}

TEST_CASE("two levels on GPUs, and direct: a rank without a block gets the others' in place",
          "[.gpu]") {
  if (!possible(Device::gpu)) return;
  for (const Setup& setup : {direct_setup(4), setup_of(Device::gpu, {0, 0, 1, 1})})
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

}  // namespace
}  // namespace rondo::testing
