// SPDX-License-Identifier: Apache-2.0
//
// Options::reproducible: the bits of a sum depend only on the inputs and the number of ranks. The
// tests sum the same inputs in every possible way, and compare every result with the sum that the
// scalar kernels give in rank order.
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "catch.h"
#include "collectives/plan/planner.h"
#include "collectives/schedules/schedule.h"
#include "reproducible/inputs.h"
#include "support/draw.h"
#include "support/effort.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

constexpr std::size_t most_elements = 40'013;

using AllInputs = std::vector<std::unique_ptr<Inputs>>;  // by place in summed_types

const AllInputs& inputs_of(int size) {
  static std::map<int, AllInputs> cache;
  AllInputs& all = cache[size];
  if (all.empty())
    for (const DType type : summed_types)
      all.push_back(std::make_unique<Inputs>(type, size, most_elements));
  return all;
}

// One way to sum: everything that must not change the bits.
struct Way {
  Over over = Over::mem;
  bool windows = false;  // of mem
  std::string algorithm;
  std::size_t segment_bytes = 0;
  int depth = 0;
  std::vector<int> hosts;

  Setup setup(int size, bool reproducible = true) const {
    Setup setup;
    setup.size = size;
    setup.over = over;
    setup.hosts = hosts;
    setup.faults.windows = windows;
    setup.faults.capacity = 30'000;
    setup.options.algorithm = algorithm;
    setup.options.segment_bytes = segment_bytes;
    setup.options.depth = depth;
    setup.options.reproducible = reproducible;
    return setup;
  }
  std::string describe(int size) const {
    return std::string(name_of(over)) + (windows ? " with windows" : "") + ", " +
           std::to_string(size) + " ranks, algorithm '" + algorithm + "', segments of " +
           std::to_string(segment_bytes) + ", depth " + std::to_string(depth) +
           (hosts.empty() ? "" : ", several hosts");
  }
};

struct Call {
  Collective operation = Collective::all_reduce;
  std::size_t type = 0;  // place in summed_types
  std::size_t reduction = 0;
  std::size_t count = 1;  // of the result
  int root = 0;
  bool in_place = false;
  bool in_window = false, out_window = false;  // memory from Communicator::allocate
  std::size_t buckets = 1;                     // calls that the buffer is cut into
  Priority priority = Priority::bulk;
};

// One rank with the memory of its calls.
class Summer {
 public:
  Summer(Communicator& communicator, const AllInputs& inputs)
      : communicator_(communicator),
        inputs_(inputs),
        rank_(static_cast<std::size_t>(communicator.rank())),
        size_(static_cast<std::size_t>(communicator.size())) {
    for (Memory* memory : {&in_[0], &out_[0]}) *memory = Memory(most_elements * 8);
    for (Memory* memory : {&in_[1], &out_[1]}) *memory = communicator.allocate(most_elements * 8);
  }
  // Makes the call. Returns what is wrong with its result; empty when nothing is.
  std::string run(const Call& call);

 private:
  Work start(const Call& call, std::size_t first, std::size_t count);
  Buffer part(const Call& call, std::byte* base, std::size_t first, std::size_t count) const {
    const DType type = summed_types[call.type];
    return {base + first * size_of(type), count, type};
  }

  Communicator& communicator_;
  const AllInputs& inputs_;
  std::size_t rank_, size_;
  Memory in_[2], out_[2];
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
};

Work Summer::start(const Call& call, std::size_t first, std::size_t count) {
  OpOptions options;
  options.scale = reductions[call.reduction].scale;
  options.input_scale = reductions[call.reduction].input_scale(rank_);
  options.priority = call.priority;
  const ReduceOp op = reductions[call.reduction].op;
  const Buffer in = part(call, input_, first, count), out = part(call, output_, first, count);
  if (call.operation == Collective::all_reduce)
    return communicator_.all_reduce(in, out, op, options);
  if (call.operation == Collective::reduce)
    return communicator_.reduce(in, out, op, call.root, options);
  const std::size_t own = call.in_place ? rank_ * count : 0;
  return communicator_.reduce_scatter(part(call, input_, 0, size_ * count),
                                      part(call, output_, own, count), op, options);
}

std::string Summer::run(const Call& call) {
  const Inputs& inputs = *inputs_[call.type];
  const std::size_t element = size_of(inputs.type);
  const bool scatter = call.operation == Collective::reduce_scatter;
  input_ = static_cast<std::byte*>(in_[call.in_window ? 1 : 0].data());
  output_ = call.in_place ? input_ : static_cast<std::byte*>(out_[call.out_window ? 1 : 0].data());
  std::memset(output_, 0xa5, call.count * element);
  std::memcpy(input_, inputs.by_rank[rank_].data(), (scatter ? size_ : 1) * call.count * element);
  std::vector<Work> works;
  for (std::size_t bucket = 0; bucket < call.buckets; ++bucket) {
    const std::size_t first = call.count * bucket / call.buckets;
    works.push_back(start(call, first, call.count * (bucket + 1) / call.buckets - first));
  }
  for (Work& work : works) work.wait();
  if (call.operation == Collective::reduce && static_cast<std::size_t>(call.root) != rank_)
    return {};
  const std::size_t first = scatter ? rank_ * call.count : 0;
  const std::byte* const out = output_ + (scatter && call.in_place ? first * element : 0);
  return inputs.difference({out, call.count * element}, call.reduction, first);
}

std::string describe(const Call& call) {
  return std::string(name_of(call.operation)) + " of " + std::to_string(call.count) + " " +
         std::string(name_of(summed_types[call.type])) + ", reduction " +
         std::to_string(call.reduction) + ", root " + std::to_string(call.root) +
         (call.in_place ? ", in place" : "") + (call.in_window ? ", input in a window" : "") +
         (call.out_window ? ", output in a window" : "") + ", " + std::to_string(call.buckets) +
         " buckets";
}

// Returns a call for every operation, type and reduction that the way supports, each of at most
// `most` elements. All other fields are random.
std::vector<Call> calls_of(const Way& way, int size, std::size_t most, std::uint64_t seed) {
  const std::size_t counts[] = {1, 7, 1001, 5003, most_elements};
  Draw draw(seed);
  std::uint64_t number = seed % 1000 * 1000;
  std::vector<Call> calls;
  const auto algorithm = schedules::parse_algorithm(way.algorithm);
  for (const Collective operation :
       {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    const bool planned = !algorithm || *algorithm == schedules::Algorithm::direct;
    if (!planned && !plan::is_reproducible(*algorithm, operation)) continue;
    for (std::size_t type = 0; type < std::size(summed_types); ++type)
      for (std::size_t reduction = 0; reduction < reduction_count; ++reduction) {
        if (!drawn(++number)) continue;
        const auto n = static_cast<std::uint64_t>(size);
        Call call{operation, type, reduction, std::min(most, counts[draw(5)]),
                  static_cast<int>(draw(n))};
        if (operation == Collective::reduce_scatter)
          call.count = std::min(call.count, most_elements / n);
        call.in_place = draw(2) == 0;
        call.in_window = draw(2) == 0;
        call.out_window = draw(2) == 0;
        if (operation == Collective::all_reduce && draw(2) == 0) call.buckets = 1 + draw(6);
        if (draw(4) == 0) call.priority = Priority::urgent;
        calls.push_back(call);
      }
  }
  return calls;
}

void check_way(const Way& way, int size, std::size_t most, std::uint64_t seed) {
  const std::string what = way.describe(size);
  const std::vector<Call> calls = calls_of(way, size, most, seed);
  const AllInputs& inputs = inputs_of(size);
  INFO(what);
  CHECK_NOTHROW(run_communicators(way.setup(size), what, [&](Communicator& communicator, int) {
    Summer summer(communicator, inputs);
    for (const Call& call : calls) {
      const std::string wrong = summer.run(call);
      expect(wrong.empty(), describe(call) + ": " + wrong);
    }
  }));
}

struct Cut {
  std::size_t segment_bytes;
  int depth;
  std::size_t most;  // elements; more would make too many segments
};
constexpr Cut cuts[] = {
    {0, 0, most_elements}, {200, 1, 1001}, {4096, 3, 5003}, {50'000, 8, most_elements}};

void check_ways(Over over, bool windows, const std::vector<std::string>& algorithms) {
  for (const std::string& algorithm : algorithms)
    for (const Cut& cut : cuts)
      for (const int size : in_turn<int>({2, 3, 5, 8}, algorithm.size() + cut.segment_bytes)) {
        const std::uint64_t seed = mixed(cut.segment_bytes, static_cast<std::uint64_t>(size),
                                         algorithm.size() + 16 * static_cast<std::uint64_t>(over));
        Way way{over, windows, algorithm, cut.segment_bytes, cut.depth, {}};
        // Two hosts that take turns, or the ranks of one host before those of the other.
        for (int rank = 0; seed % 3 != 0 && rank < size; ++rank)
          way.hosts.push_back(seed % 3 == 1 ? rank % 2 : rank * 2 / size);
        check_way(way, size, cut.most, seed);
      }
}

TEST_CASE("reproducible: mem") {
  check_ways(Over::mem, false, {"", "chain", "star"});
}

TEST_CASE("reproducible: mem with windows") {
  check_ways(Over::mem, true, {"", "direct", "chain", "star"});
}

TEST_CASE("reproducible: tcp") {
  check_ways(Over::tcp, false, {"", "chain", "star"});
}

TEST_CASE("reproducible: shm") {
  check_ways(Over::shm, false, {"", "direct", "chain", "star"});
}

TEST_CASE("a split of all ranks in their order sums as they do") {
  constexpr int size = 5;
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const Way way{over, false, "", 0, 0, {}};
  const AllInputs& inputs = inputs_of(size);
  CHECK_NOTHROW(run_communicators(way.setup(size), "split", [&](Communicator& communicator, int) {
    auto split = communicator.split(0, 0);
    Summer summer(*split, inputs);
    for (std::size_t type = 0; type < std::size(summed_types); ++type) {
      const std::string wrong =
          summer.run({Collective::all_reduce, type, type % reduction_count, 5003});
      expect(wrong.empty(), wrong);
    }
  }));
}

// Returns how many ranks get other bits than the sum in rank order has.
int other_bits(const Way& way, const Call& call) {
  constexpr int size = 5;
  const AllInputs& inputs = inputs_of(size);
  std::atomic<int> others = 0;
  run_communicators(way.setup(size, false), way.describe(size),
                    [&](Communicator& communicator, int) {
                      if (!Summer(communicator, inputs).run(call).empty()) ++others;
                    });
  return others;
}

TEST_CASE("without reproducible the order of the sum shows, so these tests can fail") {
  const std::size_t f32 = 1, bf16 = 3;
  for (const char* algorithm : {"ring", "tree", "doubling", "halving", "two_shot"}) {
    INFO(algorithm);
    CHECK(other_bits({.algorithm = algorithm, .hosts = {}},
                     {Collective::all_reduce, f32, 0, 5003}) == 5);
  }
  CHECK(other_bits({.algorithm = "ring", .hosts = {}}, {Collective::reduce_scatter, f32, 0, 1001}) >
        0);
  CHECK(other_bits({.algorithm = "star", .hosts = {}}, {Collective::reduce, f32, 0, 5003, 2}) == 1);
  // Direct sums are always in rank order, but without `reproducible` they round short floats once.
  CHECK(other_bits({.windows = true, .algorithm = "direct", .hosts = {}},
                   {Collective::all_reduce, bf16, 0, 5003}) == 5);
}

TEST_CASE("what does not sum in rank order is refused, and nothing has been started") {
  constexpr int size = 3;
  for (int i = 0; i < schedules::algorithm_count; ++i) {
    const auto algorithm = static_cast<schedules::Algorithm>(i);
    if (algorithm == schedules::Algorithm::direct) continue;
    const Way way{Over::mem, false, std::string(schedules::name_of(algorithm)), 0, 0, {}};
    INFO(way.algorithm);
    const AllInputs& inputs = inputs_of(size);
    CHECK_NOTHROW(
        run_communicators(way.setup(size), way.algorithm, [&](Communicator& communicator, int) {
          Summer summer(communicator, inputs);
          for (const Collective operation :
               {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
            std::string message;
            try {
              const std::string wrong = summer.run({operation, 1, 0, 1001});
              expect(wrong.empty(), wrong);
            } catch (const Error& error) {
              expect(error.code() == Errc::unsupported, error.what());
              message = error.what();
            }
            const bool refused = schedules::supports(algorithm, operation) &&
                                 !plan::is_reproducible(algorithm, operation);
            expect(refused == !message.empty(), std::string(name_of(operation)) + ": " + message);
            if (refused)
              expect(message.find("algorithm " + way.algorithm + " does not exist for " +
                                  std::string(name_of(operation)) +
                                  " with reproducible results; possible: ") != std::string::npos,
                     message);
          }
          communicator.barrier().wait();
        }));
  }
}

}  // namespace
}  // namespace rondo::testing
