// SPDX-License-Identifier: Apache-2.0
//
// One iteration: write the inputs and poison the outputs where results are checked, a barrier, the
// calls of the iteration, and the check. Only the calls are timed.
#include "tools/measure/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "tools/measure/messages.h"
#include "tools/measure/operation.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

// The distance between the buffers of the calls of one iteration, which share no cache line.
std::size_t distance_of(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

Measurement::Measurement(Communicator& communicator, const Iterations::Context& context,
                         std::uint64_t most_calls, IterationHook hook, GpuStream* gpu)
    : communicator_(communicator),
      conditions_(context.conditions),
      stop_(context.stop),
      iterations_(communicator, context, std::move(hook)),
      gpu_(gpu),
      pattern_(Call{Collective::barrier}) {
  if (gpu != nullptr) call_options_.stream = gpu->get();
  const std::size_t largest = conditions_.largest;
  if (largest == 0) return;
  const std::size_t bytes = most_calls == 1 ? largest : distance_of(largest) * most_calls;
  in_ = take(bytes);
  out_ = take(bytes);
}

BenchMemory Measurement::take(std::size_t bytes) {
  if (gpu_ == nullptr)
    return BenchMemory(conditions_.allocate ? communicator_.allocate(bytes) : Memory(bytes));
  return {conditions_.allocate ? communicator_.allocate(bytes, device())
                               : allocate_on_gpu(device(), bytes),
          *gpu_};
}

// Where the host has what operations find at `data`, which is in one of the two memories.
std::byte* Measurement::host(std::byte* data) const {
  return (in_.holds(data) ? in_ : out_).host(data);
}

void Measurement::choose(Operation operation, const Variant& variant) {
  const auto& [type, op, root] = variant;
  call_ = Call{operation, type, op, root, communicator_.rank(), communicator_.size()};
  works_.resize(conditions_.calls_of(operation));
  pattern_ = Pattern(call_);
}

// Sets the sizes of the blocks of a row. Where the operation allows different counts, the blocks
// of ranks 0 to i together are about ((i + 1) / n)^2 of the whole.
void Measurement::cut(std::size_t count) {
  const auto ranks = static_cast<std::size_t>(call_.size);
  counts_.assign(ranks, traits().counts_one_block() ? count : traits().blocks ? count / ranks : 0);
  if (traits().has_counts()) {
    const auto end = [&](std::size_t rank) { return count / ranks * rank * rank / ranks; };
    for (std::size_t rank = 0; rank < ranks; ++rank) counts_[rank] = end(rank + 1) - end(rank);
    counts_.back() += count - end(ranks);
  }
  before_ = std::accumulate(counts_.begin(), counts_.begin() + call_.rank, std::size_t{0});
}

Measurement::Operands Measurement::place(std::size_t count, bool in_place) const {
  const std::size_t own = counts_[static_cast<std::size_t>(call_.rank)];
  const std::size_t all = std::accumulate(counts_.begin(), counts_.end(), std::size_t{0});
  Buffer in{in_.data(), count, call_.type, device()}, out{out_.data(), count, call_.type, device()};
  if (traits().gathers()) in.count = own, out.count = all;
  if (traits().scatters()) in.count = all, out.count = own;
  if (!in_place) return {in, out};
  const std::size_t mine = before_ * size_of(call_.type);
  in.data = traits().gathers() ? bytes_of(out) + mine : out.data;
  if (traits().scatters()) out.data = bytes_of(in) + mine;
  return {in, out};
}

// The rank whose message this rank receives; 0 for operations without messages.
int Measurement::sender() const {
  return traits().messages ? (call_.rank + call_.size - 1) % call_.size : 0;
}

template <class Function>
void Measurement::for_each_part(const Operands& operands, Function function) const {
  std::byte* to = bytes_of(operands.out);
  const std::size_t first = traits().gathers() ? 0 : before_;
  if (!traits().blocks || traits().scatters())
    return function(Part{to, first, operands.out.count, sender()});
  for (int rank = 0; rank < call_.size; ++rank) {
    const std::size_t count = counts_[static_cast<std::size_t>(rank)];
    function(Part{to, first, count, rank});
    to += count * size_of(call_.type);
  }
}

// The operands of one call of an iteration.
Measurement::Operands Measurement::operands_of(std::size_t call, const Operands& first) const {
  Operands operands = first;
  if (operands.in.data != nullptr) operands.in.data = bytes_of(first.in) + call * distance_;
  if (operands.out.data != nullptr) operands.out.data = bytes_of(first.out) + call * distance_;
  return operands;
}

// Fills the output with values that are all wrong. An output that lies within the input is left to
// the input. data: says which values.
void Measurement::poison(const Operands& operands, bool in_place, std::uint64_t data) {
  if (!writes() || (in_place && reads() && !traits().gathers())) return;
  for_each_part(operands, [&](const Part& part) {
    pattern_.poison(host(part.data), part.first, part.count, data, part.block);
  });
}

Work Measurement::start(const Operands& operands) {
  const auto& [in, out] = operands;
  switch (traits().operation) {
    case Collective::all_reduce:
      return communicator_.all_reduce(in, out, call_.op, call_options_);
    case Collective::reduce:
      return communicator_.reduce(in, out, call_.op, call_.root, call_options_);
    case Collective::broadcast:
      return communicator_.broadcast(in, out, call_.root, call_options_);
    case Collective::all_gather:
      return communicator_.all_gather(in, out, call_options_);
    case Collective::reduce_scatter:
      return communicator_.reduce_scatter(in, out, call_.op, call_options_);
    case Collective::gather:
      return communicator_.gather(in, out, call_.root, call_options_);
    case Collective::scatter:
      return communicator_.scatter(in, out, call_.root, call_options_);
    case Collective::all_to_all:
      return communicator_.all_to_all(in, out, call_options_);
    case Collective::all_gather_v:
      return communicator_.all_gather_v(in, out, counts_, call_options_);
    case Collective::reduce_scatter_v:
      return communicator_.reduce_scatter_v(in, out, counts_, call_.op, call_options_);
    case Collective::send:
      return exchange(operands);
    default:
      return communicator_.barrier(call_options_);
  }
}

Work Measurement::exchange(const Operands& operands) {
  const int receiver = (call_.rank + 1) % call_.size;
  const std::array transfers{Transfer{Transfer::Kind::receive, operands.out, sender()},
                             Transfer{Transfer::Kind::send, operands.in, receiver}};
  return communicator_.batch(transfers, call_options_);
}

std::uint64_t Measurement::check(const Operands& operands, std::uint64_t data) const {
  std::uint64_t wrong = 0;
  if (!writes()) return wrong;
  for_each_part(operands, [&](const Part& part) {
    wrong += pattern_.count_wrong(host(part.data), part.first, part.count, data, part.block);
  });
  return wrong;
}

// Writes the inputs of an iteration, after the outputs where they are checked: in place both may
// overlap.
void Measurement::write_all(const Operands& first, bool in_place) {
  for (std::size_t call = 0; call < works_.size(); ++call) {
    const Operands operands = operands_of(call, first);
    ++calls_;
    if (checked_) poison(operands, in_place, calls_);
    if (reads()) pattern_.fill_input(host(bytes_of(operands.in)), 0, operands.in.count, calls_);
  }
  in_.bring_to_gpu(used_);
  out_.bring_to_gpu(used_);
}

// Returns the wrong elements of the calls that write_all() has prepared, if they are checked.
std::uint64_t Measurement::check_all(const Operands& first) {
  std::uint64_t wrong = 0;
  if (!checked_) return wrong;
  out_.bring_to_host(used_);
  for (std::size_t call = 0; call < works_.size(); ++call)
    wrong += check(operands_of(call, first), calls_ - works_.size() + call + 1);
  return wrong;
}

// Sleeps for --delay, in parts, so that a run that ends does not wait for it.
void Measurement::be_late() const {
  constexpr std::chrono::milliseconds part{50};
  const auto end = Clock::now() + conditions_.delay;
  while (!stop_.asked() && Clock::now() < end)
    std::this_thread::sleep_until(std::min(end, Clock::now() + part));
}

// Runs one iteration.
Timed Measurement::iterate(const Operands& first, bool in_place) {
  if (fresh_) write_all(first, in_place);
  communicator_.barrier().wait();
  be_late();
  const auto begin = Clock::now();
  for (std::size_t call = 0; call < works_.size(); ++call)
    works_[call] = start(operands_of(call, first));
  for (Work& work : works_) work.wait();
  const auto end = Clock::now();
  const std::chrono::duration<double, std::micro> time = end - begin;
  return {time.count() / static_cast<double>(works_.size()), begin, end};
}

Row Measurement::describe(std::uint64_t bytes, bool in_place) const {
  const std::size_t width = size_of(call_.type);
  const std::size_t ranks = static_cast<std::size_t>(call_.size);
  const std::size_t parts = traits().counts_one_block() ? ranks : 1;
  Row row;
  row.operation = call_.operation;
  row.calls = works_.size();
  row.count = bytes / width / parts;
  if (call_.operation == Collective::all_to_all) row.count -= row.count % ranks;
  row.bytes = row.count * width * parts;
  row.type = call_.type;
  row.op = call_.op;
  row.root = traits().rooted() ? call_.root : -1;
  row.in_place = in_place;
  row.algorithm = traits().messages ? "messages"
                                    : communicator_.algorithm(traits().operation, row.count,
                                                              call_.type, device());
  row.traffic = traffic_of(call_.operation, call_.size, row.bytes, in_place);
  return row;
}

void Measurement::measure_calls(Row& row, const Operands& first) {
  if (!fresh_ && row.bytes > 0) write_all(first, row.in_place);
  iterations_.measure(
      row, true, [&] { return iterate(first, row.in_place); }, [&] { return check_all(first); });
}

void Measurement::measure_pairs(Row& row, const Operands& first) {
  Messages messages(communicator_, pattern_, role_of(call_.operation, call_.rank, call_.size),
                    {first.in, first.out, distance_, works_.size()}, {in_, out_, call_options_},
                    fresh_, checked_);
  const auto measure_into = [&](Row& measured, double (Messages::*iterate)()) {
    iterations_.measure(
        measured, false,
        [&] {
          return Timed{(messages.*iterate)(), {}, {}};
        },
        [&] { return messages.count_wrong(); });
  };
  Row ping_pong = row;
  measure_into(row, call_.operation.windowed() ? &Messages::window : &Messages::ping_pong);
  if (call_.operation != Operation::one_way()) return;
  measure_into(ping_pong, &Messages::ping_pong);
  row.latency = ping_pong.time;
  row.wrong += ping_pong.wrong;
  row.cut_short |= ping_pong.cut_short;
}

Row Measurement::measure(std::uint64_t bytes, bool in_place, std::uint64_t iterations) {
  Row row = describe(bytes, in_place);
  row.iterations = iterations;
  cut(row.count);
  const Operands operands = place(row.count, in_place);
  checked_ = conditions_.check && row.bytes > 0;
  distance_ = distance_of(row.bytes);
  used_ = row.bytes + (works_.size() - 1) * distance_;
  fresh_ = conditions_.writes_anew() && row.bytes > 0;
  if (call_.operation.between_pairs())
    measure_pairs(row, operands);
  else
    measure_calls(row, operands);
  const double p50 = row.time.p50_us;
  if (p50 <= 0 || call_.operation == Operation::latency()) return row;
  const double streams = streams_of(call_.operation, call_.size);
  row.algbw = streams * static_cast<double>(row.bytes) / p50 / 1e3;
  row.busbw = row.algbw * bus_factor(call_.operation, call_.size);
  if (call_.operation.windowed() && call_.operation != Operation::one_way())
    row.rate = streams * 1e6 / p50;
  return row;
}

}  // namespace rondo::tools
