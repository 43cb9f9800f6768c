// SPDX-License-Identifier: Apache-2.0
//
// Runs every collective over every transport, with every type, for awkward numbers of ranks and
// elements. There is one communicator for each (transport, ranks, algorithm, shape). It runs its
// whole list of calls, a few of them in flight at any time.
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "catch.h"
#include "collectives/kernels/reduce.h"
#include "collectives/schedules/call.h"
#include "collectives/schedules/schedule.h"
#include "device/gpus.h"
#include "support/effort.h"
#include "support/fake_kernels.h"
#include "support/gpu_memory.h"
#include "support/ranks.h"
#include "support/trial.h"
#include "support/values.h"

namespace rondo::testing {
namespace {

constexpr Collective collectives[] = {
    Collective::all_reduce,   Collective::reduce,          Collective::broadcast,
    Collective::all_gather,   Collective::reduce_scatter,  Collective::barrier,
    Collective::gather,       Collective::scatter,         Collective::all_to_all,
    Collective::all_gather_v, Collective::reduce_scatter_v};
constexpr std::size_t in_flight = 4;

// How buffers are cut, and the counts that this suits.
struct Shape {
  const char* name;
  std::size_t segment_bytes;
  std::vector<std::size_t> counts;
};

std::vector<Shape> shapes(int size) {
  const auto n = static_cast<std::size_t>(size);
  return {{"tiny segments", 64, {0, 1, n - 1, n, n + 1, 1000}},
          {"small segments", 4096, {1000, 10'007}},
          {"the planner's segments", 0, {0, n + 1, 10'007, 300'000}}};
}

bool exists(const std::string& algorithm, Collective operation) {
  const auto parsed = schedules::parse_algorithm(algorithm);
  return !parsed || schedules::supports(*parsed, operation);
}

// All calls that one communicator makes.
class List {
 public:
  // percent: of all calls.
  List(int size, const std::string& algorithm, int percent)
      : size_(size), algorithm_(algorithm), percent_(percent) {}

  // Every collective and place, and most types, at these counts; op, root and priority take turns.
  void add_table(const std::vector<std::size_t>& counts) {
    for (const std::size_t count : counts)
      for (int type = 0; type < dtype_count; ++type)
        for (const bool in_place : {false, true})
          for (const Collective operation : collectives) {
            // The collectives behind barrier only move bytes, or share the schedules of others:
            // they run with one type in four.
            const int turn = type + static_cast<int>(operation) + (in_place ? 2 : 0);
            if (operation > Collective::barrier && turn % 4 != 0) continue;
            if (count >= 100'000 && (type + (in_place ? 1 : 0)) % 4 != 0) continue;
            add({operation,
                 static_cast<DType>(type),
                 some_op(static_cast<DType>(type)),
                 count,
                 some_root(),
                 in_place,
                 {},
                 cases_.size() % 5 == 0 ? Priority::urgent : Priority::bulk});
          }
  }
  // Frames into their destination, large enough for a grant.
  void add_placed(std::size_t count) {
    for (const Collective operation : {Collective::broadcast, Collective::all_gather,
                                       Collective::all_to_all, Collective::all_reduce})
      for (const bool in_place : {false, true})
        cases_.push_back({operation,
                          DType::f32,
                          ReduceOp::sum,
                          count,
                          size_ - 1,
                          in_place,
                          {},
                          in_place ? Priority::urgent : Priority::bulk});
  }
  // Every op that a type has, and a scale where it may have one.
  void add_ops(std::size_t count) {
    for (int type = 0; type < dtype_count; ++type)
      for (int op = 0; op < reduce_op_count; ++op)
        for (const Collective operation :
             {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter,
              Collective::reduce_scatter_v}) {
          Case what{operation,
                    static_cast<DType>(type),
                    static_cast<ReduceOp>(op),
                    count,
                    some_root(),
                    false,
                    {},
                    Priority::bulk};
          if (!supports(what.type, what.op)) continue;
          add(what);
          if (is_integer(what.type)) continue;
          what.scale = 0.5;
          add(what);
        }
  }
  // Adds each collective that the draw has left out, once.
  void add_missing(std::size_t count) {
    for (const Collective operation : collectives) {
      const auto has = [=](const Case& one) { return one.operation == operation; };
      if (std::ranges::any_of(cases_, has) || !exists(algorithm_, operation)) continue;
      const auto type = static_cast<DType>(test_seed() % dtype_count);
      cases_.push_back({operation, type, some_op(type), count, some_root(), false, {}});
    }
  }
  const std::vector<Case>& cases() const noexcept { return cases_; }

 private:
  void add(const Case& what) {
    const bool chosen = drawn(++offered_ * 16 + static_cast<std::uint64_t>(size_), percent_);
    if (chosen && exists(algorithm_, what.operation)) cases_.push_back(what);
  }
  int some_root() const { return static_cast<int>(offered_ % static_cast<std::uint64_t>(size_)); }
  ReduceOp some_op(DType type) const {
    const auto op = static_cast<ReduceOp>(offered_ % reduce_op_count);
    return supports(type, op) ? op : ReduceOp::sum;
  }

  int size_;
  std::string algorithm_;
  int percent_;
  std::uint64_t offered_ = 0;
  std::vector<Case> cases_;
};

void finish(Trial& trial) {
  trial.work().wait();
  const std::string problem = trial.problem();
  expect(problem.empty(), problem);
}

// The memory that the calls are given.
enum class Given { plain, registered, on_gpu };

// Starts the calls in order. When `in_flight` are under way, waits for the oldest before the next.
void run_list(Communicator& communicator, const std::vector<Case>& cases, Given given) {
  std::optional<device::Gpus> gpus;
  std::optional<GpuCopier> copier;
  if (given == Given::on_gpu)
    copier.emplace(gpus.emplace().gpu(communicator.rank() % gpus_of_tests()));
  std::deque<Trial> trials;
  for (const Case& what : cases) {
    if (trials.size() == in_flight) {
      finish(trials.front());
      trials.pop_front();
    }
    Trial& trial = trials.emplace_back(what, communicator.rank(), communicator.size());
    if (given == Given::registered) trial.register_memory(communicator);
    if (copier) trial.place_on(*copier);
    trial.start(communicator);
  }
  for (Trial& trial : trials) finish(trial);
}

// The percentage of their calls that tables run. Each call on a GPU makes and copies memory of it
// besides, so it is a tenth of that of other memory.
int percent_of(Given given) {
  return given == Given::on_gpu && !few_cases() ? effort() / 10 : effort();
}

void run_table(Over over, int size, const std::string& algorithm,
               const std::vector<int>& hosts = {}, bool windows = false,
               Given given = Given::plain) {
  constexpr int depths[] = {1, 2, 3, 5, 8};  // where segments are given; else the planner's
  for (const Shape& shape : shapes(size)) {
    Setup setup;
    setup.size = size;
    setup.over = over;
    setup.hosts = hosts;
    setup.faults.windows = windows;
    setup.options.algorithm = algorithm;
    setup.options.segment_bytes = shape.segment_bytes;
    setup.options.depth =
        shape.segment_bytes == 0
            ? 0
            : depths[mixed(algorithm.size(), static_cast<std::uint64_t>(size)) % 5];
    // Every third time links hold less than a frame, which makes all of them wait in the middle.
    const bool tight = (algorithm.size() + static_cast<std::size_t>(size)) % 3 == 0;
    setup.faults.capacity =
        shape.segment_bytes == 64 ? (tight ? 50 : 1000) : (tight ? 3000 : 100'000);
    // Every operation has a direct form, or goes over links.
    List list(size, algorithm == "direct" ? "" : algorithm, percent_of(given));
    list.add_table(shape.counts);
    if (shape.segment_bytes == 64) {
      list.add_ops(37);
      list.add_missing(1000);
    }
    if (given == Given::registered && shape.segment_bytes == 0) list.add_placed(100'000);
    const std::string what = std::string(name_of(over)) + ", " + std::to_string(size) + " ranks, " +
                             (algorithm.empty() ? "planner" : algorithm) + ", " + shape.name;
    INFO(what);
    CHECK_NOTHROW(run_communicators(
        setup, what, [&](Communicator& c, int) { run_list(c, list.cases(), given); }));
  }
}

const std::vector<std::string> algorithms = {"",         "ring",  "tree",    "star",
                                             "doubling", "chain", "halving", "two_shot"};

}  // namespace

TEST_CASE("the values of the table are exact in any order") {
  for (int type = 0; type < dtype_count; ++type)
    for (int op = 0; op < reduce_op_count; ++op)
      for (const int size : {1, 2, 3, 5, 8}) {
        const auto t = static_cast<DType>(type);
        const auto o = static_cast<ReduceOp>(op);
        if (!supports(t, o)) continue;
        INFO(name_of(t) << " " << name_of(o) << " " << size);
        // A mean of integers is one call: its sums do not fit into the type.
        if (is_integer(t) && o == ReduceOp::mean) {
          std::vector<const std::byte*> in;
          for (int rank = 0; rank < size; ++rank) in.push_back(contribution(t, o, rank).data());
          transports::Blob mean(period * size_of(t));
          kernels::find_reduce(t, o, base::Isa::scalar)(mean.data(), in.data(), in.size(), period,
                                                        {1, static_cast<double>(size)});
          CHECK(difference(mean.data(), reduction(t, o, size), size_of(t), 0, period) == "");
          continue;
        }
        transports::Blob value = contribution(t, o, size - 1);
        const kernels::Finish finish{1, o == ReduceOp::mean ? static_cast<double>(size) : 1.0};
        for (int rank = size - 2; rank >= -1; --rank) {
          const std::byte* in[] = {value.data(),
                                   rank < 0 ? nullptr : contribution(t, o, rank).data()};
          const std::size_t sources = rank < 0 ? 1 : 2;
          kernels::find_reduce(t, o, base::Isa::scalar)(value.data(), in, sources, period,
                                                        rank < 0 ? finish : kernels::Finish{});
        }
        CHECK(difference(value.data(), reduction(t, o, size), size_of(t), 0, period) == "");
      }
}

TEST_CASE("table: mem") {
  for (std::size_t i = 0; i < algorithms.size(); ++i)
    for (const int size : in_turn<int>({1, 2, 3, 4, 5, 7, 8}, i))
      if (!few_cases() || size <= 3 || i == 0 || (i + static_cast<std::size_t>(size)) % 3 == 0)
        run_table(Over::mem, size, algorithms[i]);
}

TEST_CASE("table: hosts") {
  const char* const others[] = {"", "ring", "halving"};
  for (const std::vector<int>& hosts :
       in_turn<std::vector<int>>({{0, 1, 0}, {0, 0, 0, 1, 1}, {0, 1, 2, 0, 1, 2, 0}})) {
    for (const char* algorithm : {"two_level", others[hosts.size() / 2 % 3]})
      run_table(Over::mem, static_cast<int>(hosts.size()), algorithm, hosts);
    run_table(Over::mem, static_cast<int>(hosts.size()), "two_level", hosts, true);
  }
}

// System calls make other transports slower than mem: each number of ranks tries the planner and
// the ring, and each other algorithm is tried with one number of ranks, in turn.
void run_few_sizes(Over over, const std::vector<int>& sizes, Given given = Given::plain) {
  const int percent = percent_of(given);
  for (std::size_t i = 0; i < algorithms.size(); ++i) {
    const std::size_t place = test_seed() / runs_of(percent) + i;
    const bool every = i < 2 && whole_set();
    for (const int size : every ? sizes : std::vector{sizes[place % sizes.size()]})
      run_table(over, size, algorithms[i], {}, false, given);
  }
}

TEST_CASE("table: tcp") {
  run_few_sizes(Over::tcp, {2, 3, 4, 5, 7, 8});
}

TEST_CASE("table: shm") {
  run_few_sizes(Over::shm, {2, 3, 5, 8});
}

// Ranks as threads of one process, on one or two GPUs: over the fake driver (tests/device/fake) or
// a real one.
TEST_CASE("table: gpu", "[.gpu]") {
  constexpr Over all[] = {Over::mem, Over::tcp, Over::shm};
  const Over over = all[GENERATE(0, 1, 2)];
  // One of them for each seed: their rows without GPUs are above.
  if (!whole_set() && over != all[test_seed() % 3]) return;
  std::vector<int> sizes{2, 3};
  if (!few_cases() || over == Over::mem) sizes.insert(sizes.end(), {5, 8});
  if (over == Over::mem) sizes.push_back(1);
  run_few_sizes(over, sizes, Given::on_gpu);
}

// Direct algorithms: values, and chunks that go through the host.
TEST_CASE("table: gpu direct", "[.gpu]") {
  const Over over = GENERATE(Over::mem, Over::shm);
  const bool windows = true;
  if (FakeCuda::here()) register_device_kernels(FakeCuda());
  for (const int size : in_turn<int>({2, 3, 5, 8}, over == Over::mem, percent_of(Given::on_gpu)))
    if (!few_cases() || size != 5) run_table(over, size, "direct", {}, windows, Given::on_gpu);
}

TEST_CASE("table: gpu on several hosts", "[.gpu]") {
  const std::vector<std::vector<int>> layouts{{0, 1, 0}, {0, 0, 0, 1, 1}};
  for (const std::vector<int>& hosts : in_turn(layouts, 0, percent_of(Given::on_gpu)))
    for (const bool windows : {false, true})
      run_table(Over::mem, static_cast<int>(hosts.size()), "two_level", hosts, windows,
                Given::on_gpu);
}

// These need a device: tests/vm runs them in guests, which are slow. 8 ranks under a sanitizer take
// minutes there.
void run_rdma_table(Given given) {
  for (const int size : {2, 3, 4, 8}) {
    if (RONDO_SANITIZED && size == 8) continue;
    for (const std::string& algorithm :
         {algorithms[0], algorithms[2 + static_cast<std::size_t>(size) % 4]})
      run_table(Over::rdma, size, algorithm, {}, false, given);
  }
}

TEST_CASE("table: rdma", "[.rdma]") {
  run_rdma_table(Given::plain);
}

// Peers write straight to this memory, unless RONDO_RDMA_GRANTS=0.
TEST_CASE("table: rdma on registered memory", "[.rdma]") {
  run_rdma_table(Given::registered);
}

}  // namespace rondo::testing
