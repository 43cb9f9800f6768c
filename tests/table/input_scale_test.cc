// SPDX-License-Identifier: Apache-2.0
//
// OpOptions::input_scale: every rank has a factor of its own, or none. Runs every reduction with
// every algorithm, type and transport, and compares with sums in f64.
#include <rondo/convert.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "catch.h"
#include "collectives/schedules/schedule.h"
#include "support/draw.h"
#include "support/effort.h"
#include "support/ranks.h"
#include "support/values.h"

namespace rondo::testing {
namespace {

constexpr DType floats[] = {DType::f64,  DType::f32,    DType::f16,
                            DType::bf16, DType::f8e4m3, DType::f8e5m2};

std::vector<std::byte> encoded(const std::vector<double>& values, DType type) {
  std::vector<std::byte> bytes(values.size() * size_of(type));
  if (bytes.empty()) return bytes;
  if (type == DType::f64) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  const std::vector<float> narrow(values.begin(), values.end());
  if (type == DType::f32)
    std::memcpy(bytes.data(), narrow.data(), bytes.size());
  else
    convert(narrow.data(), DType::f32, bytes.data(), type, narrow.size());
  return bytes;
}

std::vector<double> decoded(const std::byte* bytes, DType type, std::size_t count) {
  if (count == 0) return {};
  if (type == DType::f64) {
    std::vector<double> values(count);
    std::memcpy(values.data(), bytes, count * sizeof(double));
    return values;
  }
  std::vector<float> values(count);
  if (type == DType::f32)
    std::memcpy(values.data(), bytes, count * sizeof(float));
  else
    convert(bytes, type, values.data(), DType::f32, count);
  return {values.begin(), values.end()};
}

// Inputs and factors of all ranks, and what comes out.
struct ScaledValues {
  std::size_t ranks;
  // exact: every sum of products fits each type, so the result has no error but that of a mean.
  // Otherwise random values, which need a type with some digits.
  bool exact;

  std::optional<double> factor(std::size_t rank) const {
    constexpr std::optional<double> exact_ones[] = {0.5, {}, 2, 1.5, -1, 1, -2, 0.5},
                                    others[] = {0.1, {}, -1.0 / 3, 2.5, 1e-3, 0, 0.75, -1.7};
    return exact ? exact_ones[rank % 8] : others[rank % 8];
  }
  double input(std::size_t rank, std::size_t i) const {
    if (exact) return rank == i % ranks || rank == (3 * i + 1) % ranks ? 1 : 0;
    return static_cast<double>(mixed(rank, i) % 2001) / 1000 - 1;
  }
  std::vector<std::byte> inputs(std::size_t rank, std::size_t count, DType type) const {
    std::vector<double> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = input(rank, i);
    return encoded(values, type);
  }
};

struct ScaledCase {
  Collective operation;
  DType type;
  ReduceOp op;
  std::size_t count;  // of the result, on average where ranks have counts
  std::size_t root;
  bool in_place, allocated, scaled, exact;
};

std::string describe(const ScaledCase& c) {
  return std::string(name_of(c.operation)) + " of " + std::to_string(c.count) + " " +
         std::string(name_of(c.type)) + " " + std::string(name_of(c.op)) + ", root " +
         std::to_string(c.root) + (c.in_place ? ", in place" : "") +
         (c.allocated ? ", allocated" : "") + (c.scaled ? ", scaled" : "") +
         (c.exact ? ", exact" : "");
}

// One rank with the memory of its calls, which is always the same.
class ScalingCaller {
 public:
  explicit ScalingCaller(Communicator& communicator)
      : communicator_(communicator),
        rank_(static_cast<std::size_t>(communicator.rank())),
        size_(static_cast<std::size_t>(communicator.size())) {
    for (Memory* memory : {&in_[0], &out_[0]}) *memory = Memory(bytes);
    for (Memory* memory : {&in_[1], &out_[1]}) *memory = communicator.allocate(bytes);
  }

  void run(const ScaledCase& c) {
    const ScaledValues values{size_, c.exact};
    const bool scatters =
        c.operation == Collective::reduce_scatter || c.operation == Collective::reduce_scatter_v;
    std::vector<std::size_t> counts(size_, c.count);
    if (c.operation == Collective::reduce_scatter_v)
      for (std::size_t r = 0; r < size_; ++r) counts[r] = c.count * (r % 3);
    const std::size_t whole =
        scatters ? std::accumulate(counts.begin(), counts.end(), size_t{0}) : c.count;
    const std::size_t first =
        scatters ? std::accumulate(counts.begin(), counts.begin() + long(rank_), size_t{0}) : 0;
    const std::size_t element = size_of(c.type), own = scatters ? counts[rank_] : c.count;
    auto* const in = static_cast<std::byte*>(in_[c.allocated].data());
    auto* const out =
        c.in_place ? in + first * element : static_cast<std::byte*>(out_[c.allocated].data());
    const std::vector<std::byte> given = values.inputs(rank_, whole, c.type);
    std::copy(given.begin(), given.end(), in);
    OpOptions options;
    if (c.scaled) options.input_scale = values.factor(rank_);
    const Buffer from{in, whole, c.type}, to{out, own, c.type};
    start(c, from, to, counts, options).wait();
    if (!c.in_place)
      expect(std::equal(given.begin(), given.end(), in),
             [&] { return describe(c) + ": input changed"; });
    if (c.operation != Collective::reduce || c.root == rank_) check(c, values, out, first, own);
  }

 private:
  static constexpr std::size_t bytes = std::size_t{2} << 20;

  Work start(const ScaledCase& c, Buffer from, Buffer to, const std::vector<std::size_t>& counts,
             const OpOptions& options) {
    switch (c.operation) {
      case Collective::all_reduce:
        return communicator_.all_reduce(from, to, c.op, options);
      case Collective::reduce:
        return communicator_.reduce(from, to, c.op, static_cast<int>(c.root), options);
      case Collective::reduce_scatter:
        return communicator_.reduce_scatter(from, to, c.op, options);
      default:
        return communicator_.reduce_scatter_v(from, to, counts, c.op, options);
    }
  }

  void check(const ScaledCase& c, const ScaledValues& values, const std::byte* out,
             std::size_t first, std::size_t count) const {
    const double divisor = c.op == ReduceOp::mean ? static_cast<double>(size_) : 1;
    const std::vector<double> results = decoded(out, c.type, count);
    std::vector<std::vector<double>> inputs;
    for (std::size_t r = 0; r < size_; ++r)
      inputs.push_back(
          decoded(values.inputs(r, first + count, c.type).data(), c.type, first + count));
    for (std::size_t i = 0; i < count; ++i) {
      double sum = 0, size = 0;
      for (std::size_t r = 0; r < size_; ++r) {
        double factor = c.scaled ? values.factor(r).value_or(1) : 1;
        if (c.type != DType::f64) factor = static_cast<double>(static_cast<float>(factor));
        sum += factor * inputs[r][first + i];
        size += std::abs(factor * inputs[r][first + i]);
      }
      const double wanted = decoded(encoded({sum / divisor}, c.type).data(), c.type, 1)[0];
      expect(std::abs(results[i] - wanted) <= (c.exact ? 0 : error(c.type) * size / divisor), [&] {
        return describe(c) + ": element " + std::to_string(i) + " is " +
               std::to_string(results[i]) + " instead of " + std::to_string(wanted);
      });
    }
  }
  // For a sum, relative to the sum of magnitudes: one rounding for each product and addition.
  double error(DType type) const {
    const int digits = type == DType::f64   ? 53
                       : type == DType::f32 ? 24
                       : type == DType::f16 ? 11
                                            : 8;
    return static_cast<double>(size_ + 2) * std::ldexp(1.0, -digits);
  }

  Communicator& communicator_;
  std::size_t rank_, size_;
  Memory in_[2], out_[2];
};

// Every operation, type and op, the other fields in turns.
std::vector<ScaledCase> cases_of(std::size_t size, std::uint64_t seed) {
  constexpr std::size_t counts[] = {1, 5, 30, 1003, 20'011};
  std::vector<ScaledCase> cases;
  Draw draw(seed);
  std::uint64_t number = seed % 1000 * 1000;
  for (const Collective operation : {Collective::all_reduce, Collective::reduce,
                                     Collective::reduce_scatter, Collective::reduce_scatter_v})
    for (const DType type : floats)
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::mean})
        for (const bool exact : {true, false}) {
          if (!exact && size_of(type) == 1) continue;
          if (!drawn(++number)) continue;
          ScaledCase c{operation,    type,         op,   counts[draw(5)], draw(size), draw(2) == 0,
                       draw(2) == 0, draw(5) != 0, exact};
          if (c.operation != Collective::all_reduce) c.count = std::min<std::size_t>(c.count, 4001);
          cases.push_back(c);
        }
  return cases;
}

void run_cases(const Setup& setup, const std::string& what) {
  const auto cases = cases_of(static_cast<std::size_t>(setup.size),
                              mixed(what.size(), static_cast<std::uint64_t>(setup.size)));
  INFO(what);
  CHECK_NOTHROW(run_communicators(setup, what, [&](Communicator& c, int) {
    ScalingCaller caller(c);
    for (const ScaledCase& one : cases) {
      const auto algorithm = schedules::parse_algorithm(setup.options.algorithm);
      if (algorithm && *algorithm != schedules::Algorithm::direct &&
          !schedules::supports(*algorithm, one.operation))
        continue;
      caller.run(one);
    }
  }));
}

void run_setup(Over over, bool windows, const std::string& algorithm, int size, bool hosts) {
  Setup setup;
  setup.size = size;
  setup.over = over;
  setup.faults.windows = windows;
  setup.options.algorithm = algorithm;
  setup.options.segment_bytes = size == 3 ? 512 : 0;
  // The first host has the most ranks, the last one only one.
  for (int rank = 0; hosts && rank < size; ++rank)
    setup.hosts.push_back(rank == size - 1 ? 2 : rank >= (size + 1) / 2 ? 1 : 0);
  run_cases(setup, std::string(name_of(over)) + (windows ? " with windows, " : ", ") +
                       std::to_string(size) + " ranks, " +
                       (algorithm.empty() ? "planner" : algorithm) +
                       (hosts ? ", several hosts" : ""));
}

void run_all(Over over, bool windows, const std::vector<std::string>& algorithms) {
  for (std::size_t row = 0; row < algorithms.size(); ++row)
    for (const bool hosts : {false, true}) {
      const std::string& algorithm = algorithms[row];
      if (hosts && algorithm != "two_level" && !algorithm.empty()) continue;
      const std::vector<int> sizes = hosts ? std::vector{3, 4, 8} : std::vector{1, 2, 3, 4, 8};
      for (const int size : in_turn(sizes, row))
        if (!few_cases() || size < 8 || hosts || algorithm.empty() || algorithm == "two_level")
          run_setup(over, windows, algorithm, size, hosts);
    }
}

const std::vector<std::string> all_algorithms{
    "", "ring", "tree", "star", "doubling", "chain", "halving", "two_shot", "two_level"};

}  // namespace

TEST_CASE("input scale: mem") {
  run_all(Over::mem, false, all_algorithms);
}

TEST_CASE("input scale: mem with windows") {
  run_all(Over::mem, true, {"", "direct", "two_level"});
}

TEST_CASE("input scale: tcp") {
  run_all(Over::tcp, false, {"", "ring", "halving"});
}

TEST_CASE("input scale: shm") {
  run_all(Over::shm, false, {"", "direct", "ring"});
}

TEST_CASE("input scale: calls in flight each have their own") {
  Setup setup;
  setup.size = 3;
  setup.over = GENERATE(Over::mem, Over::shm);
  setup.faults.windows = true;
  CHECK_NOTHROW(run_communicators(setup, "in flight", [](Communicator& c, int rank) {
    constexpr std::size_t calls = 40;
    // The factor of a rank in a call; every third call has none at all.
    const auto factor = [](std::size_t call, int of) {
      return call % 3 == 0 ? 1.0 : static_cast<double>((call + static_cast<std::size_t>(of)) % 4);
    };
    std::vector<double> in(calls, 1), out(calls);
    std::deque<Work> works;
    for (std::size_t call = 0; call < calls; ++call) {
      OpOptions options;
      if (factor(call, rank) != 1) options.input_scale = factor(call, rank);
      works.push_back(c.all_reduce({&in[call], 1, DType::f64}, {&out[call], 1, DType::f64},
                                   ReduceOp::sum, options));
    }
    for (Work& work : works) work.wait();
    for (std::size_t call = 0; call < calls; ++call)
      expect(out[call] == factor(call, 0) + factor(call, 1) + factor(call, 2),
             "call " + std::to_string(call));
    // Two calls on the same memory: the second one begins when the first has ended.
    double value = 1;
    for (std::size_t call = 1; call <= 2; ++call) {
      OpOptions options;
      options.input_scale = factor(call, rank);
      const Buffer buffer{&value, 1, DType::f64};
      works[call] = c.all_reduce(buffer, buffer, ReduceOp::sum, options);
    }
    for (std::size_t call = 1; call <= 2; ++call) works[call].wait();
    expect(value == (1 + 2 + 3) * (2 + 3 + 0), std::to_string(value));
  }));
}

TEST_CASE("input scale: the same buffers again with another scale") {
  Setup setup;
  setup.over = GENERATE(Over::mem, Over::shm);
  CHECK_NOTHROW(run_communicators(setup, "again", [](Communicator& c, int) {
    float in = 1, out = 0;
    for (const std::optional<double> scale :
         {std::optional<double>{}, {0.5}, {}, {2.0}, {0.5}, {1.0}, {}}) {
      OpOptions options;
      options.input_scale = scale;
      c.all_reduce({&in, 1, DType::f32}, {&out, 1, DType::f32}, ReduceOp::sum, options).wait();
      expect(out == 2 * static_cast<float>(scale.value_or(1)), std::to_string(out));
    }
  }));
}

TEST_CASE("input scale: short floats do not overflow where the sum of the products fits") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  for (const std::string& algorithm :
       over == Over::mem ? all_algorithms : std::vector<std::string>{"", "ring"}) {
    Setup setup;
    setup.over = over;
    setup.size = 8;
    setup.options.algorithm = algorithm;
    if (algorithm == "two_level") setup.hosts = {0, 0, 0, 1, 1, 1, 1, 2};
    INFO(algorithm);
    CHECK_NOTHROW(run_communicators(setup, algorithm, [](Communicator& c, int) {
      for (const DType type : {DType::f16, DType::f8e4m3, DType::f8e5m2})
        for (const std::size_t count : {std::size_t{7}, std::size_t{3001}}) {
          const double value = type == DType::f16 ? 60'000 : type == DType::f8e4m3 ? 416 : 49'152;
          std::vector<std::byte> memory = encoded(std::vector<double>(count, value), type);
          OpOptions options;
          options.input_scale = 0.125;
          const Buffer buffer{memory.data(), count, type};
          c.all_reduce(buffer, buffer, ReduceOp::sum, options).wait();
          const double wanted = decoded(encoded({value}, type).data(), type, 1)[0];
          for (const double result : decoded(memory.data(), type, count))
            expect(std::abs(result - wanted) <= wanted / 4 && std::isfinite(result),
                   std::string(name_of(type)) + ": " + std::to_string(result));
        }
    }));
  }
}

TEST_CASE("input scale: a product is not rounded to its type before it is added") {
  Setup setup;
  setup.over = GENERATE(Over::mem, Over::shm);
  CHECK_NOTHROW(run_communicators(setup, "small products", [](Communicator& c, int) {
    // Each product alone would be rounded to 0: it is below half of the smallest f16, 2^-24.
    std::vector<std::byte> memory = encoded({std::ldexp(1.0, -12)}, DType::f16);
    OpOptions options;
    options.input_scale = std::ldexp(0.8, -13);
    const Buffer buffer{memory.data(), 1, DType::f16};
    c.all_reduce(buffer, buffer, ReduceOp::sum, options).wait();
    expect(decoded(memory.data(), DType::f16, 1)[0] == std::ldexp(1.0, -24), "rounded");
  }));
}

TEST_CASE("input scale: 0 does not hide NaN or infinity") {
  Setup setup;
  setup.size = 3;
  setup.over = GENERATE(Over::mem, Over::shm);
  CHECK_NOTHROW(run_communicators(setup, "zero", [](Communicator& c, int rank) {
    for (const DType type : floats) {
      if (type == DType::f8e4m3) continue;  // it has no infinity
      const double infinity = std::numeric_limits<double>::infinity();
      std::vector<std::byte> memory =
          encoded({1, rank == 1 ? infinity : 2, rank == 1 ? std::nan("") : 3}, type);
      OpOptions options;
      if (rank == 1) options.input_scale = 0;
      const Buffer buffer{memory.data(), 3, type};
      c.all_reduce(buffer, buffer, ReduceOp::sum, options).wait();
      const std::vector<double> results = decoded(memory.data(), type, 3);
      expect(results[0] == 2 && std::isnan(results[1]) && std::isnan(results[2]),
             std::string(name_of(type)));
    }
  }));
}

}  // namespace rondo::testing
