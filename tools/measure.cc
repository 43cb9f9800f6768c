// SPDX-License-Identifier: Apache-2.0
#include "tools/measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "tools/agree.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double seconds_per_row = 1.0;
constexpr std::uint64_t fewest_iterations = 10, most_iterations = 200;

std::byte* bytes_of(const Buffer& buffer) {
  return static_cast<std::byte*>(buffer.data);
}

// The smallest time that at least this share of the sorted times does not exceed.
double percentile(const std::vector<double>& sorted, double share) {
  const auto place = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(place, 1, sorted.size()) - 1];
}

}  // namespace

double bus_factor(Collective operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case Collective::all_reduce:
      return 2 * (n - 1) / n;
    case Collective::all_gather:
    case Collective::reduce_scatter:
      return (n - 1) / n;
    case Collective::barrier:
      return 0;
    default:
      return 1;
  }
}

Measurement::Measurement(Communicator& communicator, const BenchOptions& options, IterationHook hook)
    : communicator_(communicator),
      options_(options),
      hook_(std::move(hook)),
      pattern_(Call{Collective::barrier}) {
  const std::size_t largest = options.sizes.back();
  if (largest == 0) return;
  in_ = communicator.allocate(largest);
  out_ = communicator.allocate(largest);
}

void Measurement::choose(DType type, ReduceOp op, int root) {
  call_ = Call{options_.operation, type, op, root, communicator_.rank(), communicator_.size()};
  pattern_ = Pattern(call_);
}

// How many blocks of the call's count the larger buffer has, seen from an operation that gathers or scatters.
std::size_t Measurement::blocks(Collective gathering) const {
  return call_.operation == gathering ? static_cast<std::size_t>(call_.size) : 1;
}

Measurement::Operands Measurement::place(std::size_t count, bool in_place) const {
  const std::size_t gathered = blocks(Collective::all_gather), scattered = blocks(Collective::reduce_scatter);
  Buffer in{in_.data(), count * scattered, call_.type, -1},
      out{out_.data(), count * gathered, call_.type, -1};
  if (!in_place) return {in, out};
  const std::size_t mine = static_cast<std::size_t>(call_.rank) * count * size_of(call_.type);
  in.data = gathered > 1 ? bytes_of(out) + mine : out.data;
  if (scattered > 1) out.data = bytes_of(in) + mine;
  return {in, out};
}

// The input of this iteration, and where no input lies values that are all wrong.
void Measurement::prepare(const Operands& operands, bool in_place) {
  ++iteration_;
  const auto& [in, out] = operands;
  const bool gathers = call_.operation == Collective::all_gather;
  const std::size_t width = size_of(call_.type), block = gathers ? in.count : out.count;
  const bool broadcasts = call_.operation == Collective::broadcast;
  const bool reads = !broadcasts || call_.rank == call_.root;
  const bool writes = call_.operation != Collective::reduce || call_.rank == call_.root;
  const std::size_t first =
      call_.operation == Collective::reduce_scatter ? static_cast<std::size_t>(call_.rank) * block : 0;
  if (writes && !(in_place && reads && !gathers))
    for (std::size_t i = 0; i < (gathers ? static_cast<std::size_t>(call_.size) : 1); ++i)
      pattern_.poison(bytes_of(out) + i * block * width, first, block, iteration_, static_cast<int>(i));
  if (reads) pattern_.fill_input(bytes_of(in), 0, in.count, iteration_);
}

Work Measurement::start(const Operands& operands) {
  const auto& [in, out] = operands;
  switch (call_.operation) {
    case Collective::all_reduce:
      return communicator_.all_reduce(in, out, call_.op);
    case Collective::reduce:
      return communicator_.reduce(in, out, call_.op, call_.root);
    case Collective::broadcast:
      return communicator_.broadcast(in, out, call_.root);
    case Collective::all_gather:
      return communicator_.all_gather(in, out);
    case Collective::reduce_scatter:
      return communicator_.reduce_scatter(in, out, call_.op);
    case Collective::barrier:
      break;
  }
  return communicator_.barrier();
}

std::uint64_t Measurement::check(const Operands& operands) const {
  const auto& [in, out] = operands;
  if (call_.operation == Collective::reduce && call_.rank != call_.root) return 0;
  if (call_.operation != Collective::all_gather) {
    const bool scatters = call_.operation == Collective::reduce_scatter;
    const std::size_t first = scatters ? static_cast<std::size_t>(call_.rank) * out.count : 0;
    return pattern_.count_wrong(bytes_of(out), first, out.count, iteration_, 0);
  }
  std::uint64_t wrong = 0;
  for (int rank = 0; rank < call_.size; ++rank)
    wrong +=
        pattern_.count_wrong(bytes_of(out) + static_cast<std::size_t>(rank) * in.count * size_of(call_.type),
                             0, in.count, iteration_, rank);
  return wrong;
}

// Microseconds of one call on this rank.
double Measurement::iterate(const Operands& operands, bool in_place) {
  if (options_.check && operands.in.count > 0) prepare(operands, in_place);
  communicator_.barrier().wait();
  const auto begin = Clock::now();
  start(operands).wait();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

// The warmup, and from its last iteration how many will fit into the time. The same on all ranks.
std::uint64_t Measurement::choose_iterations(const Operands& operands, bool in_place) {
  double seconds = 0;
  for (std::uint64_t i = 0; i < options_.warmups; ++i) {
    const auto begin = Clock::now();
    iterate(operands, in_place);
    if (options_.check && operands.in.count > 0) check(operands);
    seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }
  if (options_.iterations > 0) return options_.iterations;
  seconds = maximum_over_ranks(communicator_, seconds);
  if (seconds <= seconds_per_row / most_iterations)
    return options_.warmups > 0 ? most_iterations : fewest_iterations;
  return std::max(fewest_iterations, static_cast<std::uint64_t>(seconds_per_row / seconds));
}

Row Measurement::measure(std::uint64_t bytes, bool in_place) {
  const std::size_t width = size_of(call_.type);
  const std::size_t parts = std::max(blocks(Collective::all_gather), blocks(Collective::reduce_scatter));
  Row row;
  row.count = bytes / width / parts;
  row.bytes = row.count * width * parts;
  row.type = call_.type;
  row.op = call_.op;
  row.root = options_.rooted() ? call_.root : -1;
  row.in_place = in_place;
  row.algorithm = communicator_.algorithm(call_.operation, row.count, call_.type);
  const Operands operands = place(row.count, in_place);
  const bool checked = options_.check && row.bytes > 0;
  if (!options_.check && row.bytes > 0) prepare(operands, in_place);
  std::vector<double> times(choose_iterations(operands, in_place));
  for (std::size_t i = 0; i < times.size(); ++i) {
    hook_(i, times.size());
    times[i] = iterate(operands, in_place);
    if (checked) row.wrong += check(operands);
  }
  maximum_over_ranks(communicator_, times);
  if (checked) row.wrong = sum_over_ranks(communicator_, row.wrong);
  std::sort(times.begin(), times.end());
  row.mean_us = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  row.min_us = times.front();
  row.p50_us = percentile(times, 0.50);
  row.p99_us = percentile(times, 0.99);
  row.algbw = row.p50_us > 0 ? static_cast<double>(row.bytes) / row.p50_us / 1e3 : 0;
  row.busbw = row.algbw * bus_factor(call_.operation, call_.size);
  return row;
}

}  // namespace rondo::tools
