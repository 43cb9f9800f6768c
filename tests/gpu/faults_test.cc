// SPDX-License-Identifier: Apache-2.0
//
// Faults of the driver and of the GPU, drawn by seeds. Whatever fails: every rank ends, those that
// fail have one cause, no sum is wrong, nothing is written after the end, and the GPU is usable.
#include <array>
#include <cstdlib>
#include <set>

#include "catch.h"
#include "grad/drawn.h"
#include "support/draw.h"
#include "support/effort.h"
#include "support/fake_kernels.h"
#include "support/trial.h"

namespace rondo::testing {
namespace {

using namespace std::chrono_literals;

// Rondo calls these while an operation runs, and when it makes staging memory. Not
// cuCtxPushCurrent: without it nothing can be freed.
constexpr const char* functions[] = {
    "cuMemcpyDtoHAsync",   "cuMemcpyHtoDAsync",      "cuEventRecord",
    "cuEventQuery",        "cuStreamWaitEvent",      "cuLaunchHostFunc",
    "cuMemHostAlloc",      "cuEventCreate",          "cuStreamCreateWithPriority",
    "cuStreamIsCapturing", "cuPointerGetAttributes", "cuDevicePrimaryCtxRetain",
    "cuLaunchKernel",      "cuMemsetD8Async",        "cuModuleLoadData"};

enum class Kind { function, work, gpu, held, abort };

struct Scenario {
  explicit Scenario(std::uint64_t seed) : draw(seed) {
    setup.size = 2 + static_cast<int>(draw(3));
    setup.over = draw.one_of({Over::mem, Over::mem, Over::tcp, Over::shm});
    setup.seed = seed;
    setup.options.staging_bytes = draw.one_of<std::size_t>({100'000, 1'000'000});
    setup.options.deadline = short_deadline;
    kind = draw.one_of({Kind::function, Kind::function, Kind::function, Kind::work, Kind::work,
                        Kind::gpu, Kind::held, Kind::abort});
    calls = 1 + draw(4);
    for (std::uint64_t i = 0; i < calls; ++i) {
      Case call;
      do {
        call.operation = some_operation(draw(collective_count));
      } while (call.operation == Collective::barrier);
      call.count = 1 + draw(draw.one_of<std::uint64_t>({10, 1000, 60'000}));
      call.root = static_cast<int>(draw(static_cast<std::uint64_t>(setup.size)));
      call.in_place = draw(2) == 0;
      call.priority = draw(3) == 0 ? Priority::urgent : Priority::bulk;
      cases.push_back(call);
    }
    gradients_first = Draw(seed, 2)(2) == 0;
    for (std::uint64_t i = draw(4); i > 0; --i)
      messages.push_back(1 + draw(draw.one_of<std::uint64_t>({4, 1000, 16'000, 300'000})));
    if (setup.over == Over::tcp || draw(2) == 0) return;
    setup.faults.windows = true;
    setup.options.algorithm = "direct";
    if (setup.size == 2 || Draw(seed, 3)(2) == 0) return;
    setup.options.algorithm = "two_level";
    for (int rank = 0; rank < setup.size; ++rank) setup.hosts.push_back(rank * 2 / setup.size);
  }

  // On rank 0, before the calls.
  void strike(const FakeCuda& fake) {
    const auto nth = static_cast<unsigned>(1 + draw(draw.one_of<std::uint64_t>({3, 30, 300})));
    if (kind == Kind::function)
      fake.fail(functions[draw(std::size(functions))], nth, draw(2) == 0 ? 1 : -1,
                draw.one_of({2, 304, 700, 719}));
    if (kind == Kind::work) fake.fail_work(nth, draw.one_of({700, 719}));
    if (kind == Kind::gpu) fake.break_gpu(static_cast<int>(draw(2)), 700);
    if (kind == Kind::held) fake.hold();
  }

  Draw draw;
  Setup setup;
  Kind kind{};
  std::uint64_t calls = 0;
  std::vector<Case> cases;
  bool gradients_first = false;  // steps of gradient buckets before these calls, or behind them
  std::vector<std::uint64_t> messages;  // how many elements each rank sends to the next one
};

// A message to the next rank, and one from the rank before.
class Exchange {
 public:
  Exchange(Communicator& c, OnGpu& on, std::size_t count)
      : c_(c),
        out_(on, count, static_cast<float>(c.rank())),
        in_(on, count, -1),
        next_((c.rank() + 1) % c.size()),
        before_((c.rank() + c.size() - 1) % c.size()) {}
  void start() {
    works_[0] = c_.receive(in_.buffer(), before_);
    works_[1] = c_.send(out_.buffer(), next_);
  }
  void wait() {
    for (Work& work : works_) work.wait();
  }
  bool right() { return in_.are(static_cast<float>(before_)); }

 private:
  Communicator& c_;
  GpuFloats out_, in_;
  int next_, before_;
  std::array<Work, 2> works_;
};

// The cause in the message of an operation: what follows the call.
std::string cause_in(const std::string& message) {
  const std::size_t end = message.find("): ");
  return end == std::string::npos ? std::string() : message.substr(end + 3);
}

void mend(const FakeCuda& fake) {
  fake.clear();
  for (const int ordinal : {0, 1}) fake.break_gpu(ordinal, 0);
}

// Starts all, and waits for all.
class Calls {
 public:
  Calls(Communicator& c, OnGpu& on, const Scenario& scenario) : c_(c), kind_(scenario.kind) {
    for (const Case& what : scenario.cases) {
      trials_.push_back(std::make_unique<Trial>(what, c.rank(), c.size()));
      trials_.back()->place_on(on.copier);
    }
    for (const std::uint64_t count : scenario.messages)
      exchanges_.push_back(std::make_unique<Exchange>(c, on, count));
  }

  // An exception of a start leaves the communicator unharmed: the others wait for this rank.
  void run(std::string& message) {
    try {
      for (const auto& trial : trials_) trial->start(c_);
      for (const auto& exchange : exchanges_) exchange->start();
      if (kind_ == Kind::abort && c_.rank() == 1) c_.abort(Errc::aborted, "a test");
    } catch (const Error& error) {
      keep(message, error);
      c_.abort(error.code(), error.what());
    }
    for (const auto& trial : trials_) wait_for(message, [&] { trial->work().wait(); });
    for (const auto& exchange : exchanges_) wait_for(message, [&] { exchange->wait(); });
  }
  void check() {
    for (const auto& trial : trials_) {
      const std::string problem = trial->problem();
      expect(problem.empty(), problem);
    }
    for (const auto& exchange : exchanges_) expect(exchange->right(), "a message is wrong");
  }
  template <class Function>
  static void wait_for(std::string& message, Function function) {
    try {
      function();
    } catch (const Error& error) {
      keep(message, error);
    }
  }

 private:
  static void keep(std::string& message, const Error& error) {
    if (message.empty()) message = error.what();
  }

  Communicator& c_;
  const Kind kind_;
  std::vector<std::unique_ptr<Trial>> trials_;
  std::vector<std::unique_ptr<Exchange>> exchanges_;
};

// Throws Error; then the step has failed on all ranks.
void run_steps(Communicator& c, Trainer& gradients, const Drawn& drawn) {
  for (std::size_t step = 0; step < drawn.steps; ++step) {
    try {
      run_drawn_step(gradients, drawn, step, c.rank());
      gradients.settle();
      check_drawn_norm(gradients, drawn, step);
    } catch (const Error& error) {
      c.abort(error.code(), error.what());
      throw;
    }
  }
}

// Returns the message with which the calls ended; empty when all have succeeded.
std::string run_calls(Communicator& c, OnGpu& on, Scenario& scenario, RankBarrier& together,
                      const FakeCuda& fake) {
  Calls calls(c, on, scenario);
  together.arrive_and_wait();  // ranks wait for each other no longer than their deadlines
  const Drawn drawn = Drawn::exact(scenario.setup.seed, c.size());
  Trainer gradients(c, Device::gpu, drawn.model, drawn.options, 2s);
  const auto run_gradients = [&](std::string& message) {
    Calls::wait_for(message, [&] { run_steps(c, gradients, drawn); });
  };
  together.arrive_and_wait();
  if (c.rank() == 0) scenario.strike(fake);
  together.arrive_and_wait();
  std::string message;
  if (scenario.gradients_first) run_gradients(message);
  calls.run(message);
  if (!scenario.gradients_first) run_gradients(message);
  // A broken GPU cannot be read.
  together.arrive_and_wait();
  if (c.rank() == 0) fake.clear();
  together.arrive_and_wait();
  const bool readable = scenario.kind != Kind::gpu && scenario.kind != Kind::work;
  if (!message.empty() || !readable) return message;
  calls.check();
  check_drawn_step(gradients, drawn, drawn.steps - 1, c.rank());
  return message;
}

void run_seed(std::uint64_t seed) {
  const FakeCuda fake;
  have_kernels();
  Scenario scenario(seed);
  std::mutex mutex;
  std::set<std::string> causes;
  INFO("seed " << seed);
  const auto size = static_cast<std::size_t>(scenario.setup.size);
  RankBarrier together(scenario.setup.size);
  std::vector<std::unique_ptr<OnGpu>> on(size);
  for (std::size_t rank = 0; rank < size; ++rank)
    on[rank] = std::make_unique<OnGpu>(static_cast<int>(rank % 2));
  CHECK_NOTHROW(run_communicators(
      scenario.setup, "seed " + std::to_string(seed), [&](Communicator& c, int rank) {
        const std::string message =
            run_calls(c, *on[static_cast<std::size_t>(rank)], scenario, together, fake);
        const std::lock_guard lock(mutex);
        if (const std::string cause = cause_in(message); !cause.empty()) causes.insert(cause);
      }));
  if (causes.size() > 1)
    for (const std::string& cause : causes) UNSCOPED_INFO("cause: " << cause);
  CHECK(causes.size() <= 1);
  mend(fake);
  on.clear();
}

TEST_CASE("faults of GPUs by seed") {
  if (FakeCuda::missing()) return;
  register_device_kernels(FakeCuda());
  const char* const count = std::getenv("RONDO_TEST_GPU_SEEDS");
  const std::uint64_t seeds = count != nullptr ? std::strtoull(count, nullptr, 10) : 120;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed)
    if (count != nullptr || drawn(seed, whole_set() && !few_cases() ? 100 : 12)) run_seed(seed);
}

void use_both_lanes(Communicator& c, OnGpu& on) {
  for (const Priority priority : {Priority::bulk, Priority::urgent}) {
    GpuFloats values(on, 10, 1);
    c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum, {.priority = priority}).wait();
  }
}

// Memory that is unmapped without waiting for the GPU. Here the fake aborts if a copy is still to
// come.
TEST_CASE("memory may go when an operation has failed") {
  abort_beside_a_held_stream(Setup{}, "memory", use_both_lanes,
                             [](Communicator&, OnGpu& on, MappedMemory& values) {
                               const device::Current current(on.gpu());
                               values.unmap();
                             });
}

// Its staging memory stays allocated.
TEST_CASE("a communicator ends in bounded time beside a stream that does not move", "[abandons]") {
  abort_beside_a_held_stream(Setup{}, "end", use_both_lanes, ends_soon);
}

TEST_CASE("calls after a failure keep nothing") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  Setup setup;
  setup.size = 1;
  run_on_gpus(setup, "marks", [&](Communicator& c, OnGpu& on) {
    GpuFloats values(on, 100, 1);
    c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum).wait();
    c.abort(Errc::aborted, "a test");
    const long before = fake.alive(rondo_fake_events);
    for (int i = 0; i < 50; ++i) {
      const Work work = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum);
      expect(work.done() && work.error(), "it did not fail at once");
    }
    expect(fake.alive(rondo_fake_events) == before, "events were made");
  });
}

// After any of these a new communicator works.
TEST_CASE("a GPU is usable after a failure of a communicator") {
  if (FakeCuda::missing()) return;
  const FakeCuda fake;
  for (const auto kind : {Kind::held, Kind::abort}) {
    Setup setup;
    setup.size = 3;
    setup.options.deadline = 400ms;
    RankBarrier together(setup.size);
    run_on_gpus(setup, "fails", [&](Communicator& c, OnGpu& on) {
      GpuFloats values(on, 30'000, 1);
      together.arrive_and_wait();
      if (kind == Kind::held && c.rank() == 1) fake.hold();
      together.arrive_and_wait();
      try {
        const Work work = c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum);
        if (kind == Kind::abort && c.rank() == 2) c.abort(Errc::aborted, "a test");
        work.wait();
      } catch (const Error&) {
      }
      fake.clear();
    });
    setup.options.deadline = {};
    run_on_gpus(setup, "works", [&](Communicator& c, OnGpu& on) {
      GpuFloats values(on, 30'000, 1);
      c.all_reduce(values.buffer(), values.buffer(), ReduceOp::sum).wait();
      expect(values.are(3), "wrong sum");
    });
  }
}

}  // namespace
}  // namespace rondo::testing
