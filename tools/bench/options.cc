// SPDX-License-Identifier: Apache-2.0
//
// Turns the flags of `rondo bench` into options, after all of them are known: what several flags
// say together, what a flag means for these operations, and what no run can have. The error names
// the flag.
#include "tools/bench/flags.h"

#include <rondo/error.h>
#include <rondo/info.h>
#include <rondo/plan.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/text.h"
#include "tools/ranks/spawn.h"
#include "tools/records/record_file.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::uint64_t default_min = 8, default_max = std::uint64_t{64} << 20, default_factor = 4,
                        default_step = std::uint64_t{1} << 20;
constexpr std::uint64_t default_pair_max = std::uint64_t{4} << 20;
// For pairs: enough messages under way to keep a link busy, and a slow link ends them soon.
constexpr std::uint64_t default_pairs_window = 4, default_pairs_bytes = std::uint64_t{1} << 20;
constexpr std::size_t most_rows = 100'000;

Operation read_operation(const std::string& text) {
  constexpr std::array messages{Operation::sendrecv(), Operation::latency(), Operation::bandwidth(),
                                Operation::bibandwidth(), Operation::rate()};
  std::vector<std::string> names;
  for (int i = 0; i < collective_count; ++i) {
    const auto operation = static_cast<Collective>(i);
    if (list_algorithms(operation).empty()) continue;
    if (parse_collective(text) == operation) return operation;
    names.emplace_back(name_of(operation));
  }
  for (const Operation& operation : messages) {
    if (text == name_of(operation)) return operation;
    names.emplace_back(name_of(operation));
  }
  names.emplace_back("pairs");
  if (text == "pairs")
    throw UsageError("operation pairs: stands alone; measure the others in a run of their own");
  refuse_unknown("operation", text, names);
}

const std::string& name_of_run(const BenchFlags& flags) {
  static const std::string usual = "all_reduce";
  return flags["operation"].empty() ? usual : flags["operation"];
}

std::vector<Operation> read_operations(const BenchFlags& flags) {
  std::vector<Operation> operations;
  const std::string& named = name_of_run(flags);
  for (const std::string& word : split(named, ',')) {
    // nccl-tests has a program for each operation: all_reduce_perf.
    const Operation operation =
        read_operation(word.ends_with("_perf") ? word.substr(0, word.size() - 5) : word);
    if (!add_once(operations, operation))
      throw UsageError(fmt::format("operation {}: named twice; name each once", word));
  }
  if (operations.empty()) refuse_unknown("operation", named, {"all_reduce"});
  if (!flags.on("--one-way")) return operations;
  if (operations != std::vector{Operation::sendrecv()})
    throw UsageError(
        fmt::format("--one-way: only for rondo bench sendrecv, and the operation is {}; leave the "
                    "flag out",
                    name_of_run(flags)));
  return {Operation::one_way()};
}

// Refuses what says nothing of pairs, and what says something of pairs or soaks alone.
void check_suits(const BenchFlags& flags, bool pairs) {
  const bool soak = !flags["--seconds"].empty();
  for (const Flag& flag : bench_flags()) {
    if (!flags.has(flag) || flag.suits == Suits::all) continue;
    const std::string name = flag.name();
    if (pairs && flag.suits != Suits::pairs)
      throw UsageError(fmt::format("{}: {}; leave the flag out", name, flag.not_pairs));
    if (!pairs && flag.suits == Suits::pairs)
      throw UsageError(
          fmt::format("{}: only for rondo bench pairs, and the operation is {}; leave the flag out",
                      name, name_of_run(flags)));
    if (!soak && flag.suits == Suits::soak)
      throw UsageError(fmt::format("{} {}: only with --seconds, which says how long to measure",
                                   name, flags[name]));
  }
}

// Refuses flags that say nothing of these operations.
void check_flags_of_messages(const BenchFlags& flags, const std::vector<Operation>& operations) {
  const auto refuse = [&](const char* flag, const std::string& why) {
    if (!flags[flag].empty())
      throw UsageError(fmt::format("{} {}: {}; leave the flag out", flag, flags[flag], why));
  };
  if (std::ranges::none_of(operations, &Operation::windowed))
    refuse("--window",
           operations.front() == Operation::sendrecv()
               ? "only with --one-way; --agg_iters says how many calls of sendrecv are under way"
               : "only for sendrecv --one-way, bandwidth, bibandwidth and rate, and the operation "
                 "is " +
                     name_of_run(flags));
  if (!std::ranges::all_of(operations, &Operation::messages)) return;
  const bool one_way = flags.on("--one-way");
  const std::string name = one_way ? "sendrecv" : name_of_run(flags);
  refuse("--op", name + " reduces nothing");
  refuse("--root", name + " has no root");
  refuse("--algorithm", "messages have no algorithm to choose");
  if (!std::ranges::all_of(operations, &Operation::between_pairs)) return;
  refuse("--delay", name + " does not name late ranks, only calls of all ranks do");
  refuse("--agg_iters", one_way
                            ? "with --one-way an iteration has --window messages"
                            : "an iteration of " + name + " has --window messages, of latency one");
}

// Values of an enumeration of so many, each once: names with commas, or all.
template <class T>
std::vector<T> read_list(const char* flag, const std::string& text, int count,
                         std::optional<T> (*parse)(std::string_view)) {
  std::vector<T> all, values;
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    all.push_back(static_cast<T>(i));
    names.emplace_back(name_of(all.back()));
  }
  if (text == "all") return all;
  names.emplace_back("all");
  for (const std::string& word : split(text, ',')) {
    const std::optional<T> value = parse(word);
    if (!value) refuse_unknown(flag, word, names);
    add_once(values, *value);
  }
  if (values.empty()) refuse_unknown(flag, text, names);
  return values;
}

void read_types_and_ops(const BenchFlags& flags, BenchOptions& options) {
  const std::string &types = flags["--datatype"], &ops = flags["--op"];
  options.types = read_list("--datatype", types.empty() ? "f32" : types, dtype_count, parse_dtype);
  options.ops = read_list("--op", ops.empty() ? "sum" : ops, reduce_op_count, parse_reduce_op);
  for (const ReduceOp op : options.ops)
    if (std::ranges::none_of(options.types, [op](DType type) { return supports(type, op); }))
      throw UsageError(
          fmt::format("--op {}: not defined for {}; the bit operations need an integer type",
                      name_of(op), name_of(options.types.front())));
}

// The value of --sizes, in ascending order.
std::vector<std::uint64_t> read_list_of_sizes(const BenchFlags& flags) {
  for (const char* flag : {"--minbytes", "--maxbytes", "--stepbytes", "--stepfactor"})
    if (!flags[flag].empty())
      throw UsageError(
          fmt::format("{} {}: --sizes {} lists the sizes already; leave one of the two flags out",
                      flag, flags[flag], flags["--sizes"]));
  std::vector<std::uint64_t> sizes;
  for (const std::string& word : split(flags["--sizes"], ','))
    sizes.push_back(parse_bytes("--sizes", word));
  if (sizes.empty()) throw UsageError("--sizes: names no size; give some, as in 8,64K,1M");
  std::ranges::sort(sizes);
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<std::uint64_t> read_sizes(const BenchFlags& flags, bool between_pairs) {
  if (!flags["--sizes"].empty()) return read_list_of_sizes(flags);
  const std::string &least = flags["--minbytes"], &most = flags["--maxbytes"],
                    &adds = flags["--stepbytes"], &multiplies = flags["--stepfactor"];
  std::uint64_t first = least.empty() ? default_min : parse_bytes("--minbytes", least);
  std::uint64_t last = between_pairs ? default_pair_max : default_max;
  last = most.empty() ? std::max(first, last) : parse_bytes("--maxbytes", most);
  if (least.empty()) first = std::min(first, last);
  if (first > last)
    throw UsageError(fmt::format("--minbytes {} is more than --maxbytes {}", least, most));
  const std::uint64_t step = adds.empty() ? default_step : parse_bytes("--stepbytes", adds);
  if (step == 0) throw UsageError("--stepbytes 0: give at least 1");
  const std::uint64_t factor = !multiplies.empty()
                                   ? parse_number("--stepfactor", multiplies, 1, 1 << 20)
                               : adds.empty() ? default_factor
                                              : 1;
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t size = first; size <= last;
       size = factor > 1 ? std::max<std::uint64_t>(size, 1) * factor : size + step) {
    sizes.push_back(size);
    if (factor > 1 && size > last / factor) break;  // the next would exceed `last`, or overflow
    if (sizes.size() > most_rows)
      throw UsageError(fmt::format("more than {} sizes from {} to {}: take a larger step",
                                   most_rows, base::describe_bytes(first),
                                   base::describe_bytes(last)));
  }
  // With the default step the largest size is always measured.
  if (adds.empty() && multiplies.empty() && sizes.back() != last) sizes.push_back(last);
  return sizes;
}

// Two results in one file would overwrite each other.
void refuse_one_file(const BenchFlags& flags) {
  constexpr std::array files{"--json", "--csv", "--jsonl", "--write-constants", "--svg"};
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const std::string &one = flags[files[j]], &other = flags[files[i]];
      if (!one.empty() && !other.empty() && is_one_file(one, other))
        throw UsageError(
            fmt::format("{} {} and {} {}: both name the same output; give each its own", files[j],
                        one, files[i], other));
    }
}

// Under a launcher an invalid environment is not reported here. Communicator::connect reports it,
// and then all ranks get the error.
Options read_environment(bool launched) {
  try {
    Options options = Options::from_environment();
    // Communicator::connect reads both again, and its messages then name what has set them.
    options.rank = -1;
    options.size = 0;
    return options;
  } catch (const Error&) {
    if (!launched) throw;
    return {};
  }
}

// Algorithms belong to collectives; messages have refused the flag already.
void check_algorithm(const std::string& algorithm, const Operation& operation) {
  if (algorithm.empty() || operation.traits().messages) return;
  auto algorithms = list_algorithms(operation.traits().operation);
  algorithms.emplace_back(
      "direct");  // has no schedule; where it is not possible, connect() throws and says why
  if (!contains(algorithms, algorithm)) refuse_unknown("--algorithm", algorithm, algorithms);
}

// Checks what the flags and the environment say of the connection.
void check_connect(const BenchFlags& flags, const BenchOptions& options, bool launched) {
  const SystemInfo info = gather_info(options.connect);
  std::vector<std::string> names;
  for (const TransportInfo& transport : info.transports) names.push_back(transport.name);
  for (const std::string& wanted : options.connect.transports)
    if (!contains(names, wanted) && (!launched || !flags["--transport"].empty()))
      refuse_unknown("--transport", wanted, names);
  if (!info.interface_error.empty() && (!launched || !flags["--interfaces"].empty()))
    throw UsageError(info.interface_error);
  if (options.pairs) return;
  for (const Operation& operation : options.operations)
    check_algorithm(options.connect.algorithm, operation);
}

}  // namespace

std::vector<std::uint64_t> BenchOptions::sizes_of(const Operation& operation) const {
  if (operation == Collective::barrier) return {0};
  std::vector<std::uint64_t> own = sizes;
  if (sizes_from_zero && operation == Operation::latency() && own.front() > 0)
    own.insert(own.begin(), 0);
  return own;
}

std::vector<Variant> BenchOptions::variants_of(const Operation& operation) const {
  if (operation == Collective::barrier) return {{DType::u8, ReduceOp::sum, 0}};
  const base::Traits& traits = operation.traits();
  std::vector<Variant> variants;
  for (const DType type : types)
    for (const ReduceOp op : traits.reduces ? ops : std::vector{ReduceOp::sum})
      for (const int root : traits.rooted() ? roots : std::vector{0})
        if (!traits.reduces || supports(type, op)) variants.push_back({type, op, root});
  return variants;
}

bool BenchOptions::between_pairs() const {
  return !pairs && std::ranges::any_of(operations, &Operation::between_pairs);
}

std::uint64_t BenchOptions::most_calls() const {
  std::uint64_t most = 1;
  for (const Operation& operation : operations)
    most = std::max(most, conditions.calls_of(operation));
  return most;
}

void try_files(const BenchOptions& options) {
  const auto attempt = [](const char* flag, const std::string& path) {
    if (!path.empty()) const ResultFile tried(flag, path);
  };
  const RecordFile tried(options.json, options.csv, options.jsonl);
  attempt("--write-constants", options.constants);
  if (options.pairs) attempt("--svg", options.pairs->svg);
}

bool BenchOptions::shows_table() const {
  return !quiet && !is_standard_output(jsonl) && !is_standard_output(json) &&
         !is_standard_output(csv) && !is_standard_output(constants) &&
         !(pairs && is_standard_output(pairs->svg));
}

namespace {

// Sets what a soak changes of the rows, and refuses what it cannot have.
void settle_soak(const BenchFlags& flags, BenchOptions& options) {
  if (!options.seconds) return;
  if (!flags["--iters"].empty())
    throw UsageError(fmt::format(
        "--iters {}: with --seconds an interval has as many iterations as fit; leave the flag out",
        flags["--iters"]));
  if (options.between_pairs() && options.one_way())
    throw UsageError("--seconds: not for sendrecv --one-way; measure latency or bandwidth");
  for (const auto& [flag, given] :
       {std::pair{"--write-constants", !options.constants.empty()},
        std::pair{"--stragglers", options.stragglers}, std::pair{"--wide", options.wide}})
    if (given)
      throw UsageError(fmt::format("{}: not with --seconds; leave one of the two out", flag));
  // The first interval of a row finds out how many iterations fit into the others.
  options.conditions.row_time = std::chrono::nanoseconds(
      static_cast<std::int64_t>(std::min(options.interval, *options.seconds) * 1e9));
  options.conditions.keep_times = true;
  options.conditions.warmups = 1;
  options.conditions.fewest = 1;
  options.ceiling = false;
}

// Beyond that the bytes of all ranks, for which start_ranks() finds memory, overflow 64 bits.
void check_memory(const BenchOptions& options) {
  if (options.sizes.back() >
      std::numeric_limits<std::uint64_t>::max() / (2 * most_ranks) / options.most_calls())
    throw UsageError(fmt::format(
        "--maxbytes {}, {} {}: so many buffers of that size fit "
        "into no memory; give a smaller size or fewer calls",
        base::describe_bytes(options.sizes.back()), options.calls_flag(), options.most_calls()));
}

// A bound of what no operation has is a mistake.
void check_bounds(const BenchFlags& flags, const BenchOptions& options) {
  if (options.min_bandwidth && std::ranges::none_of(options.operations, &Operation::has_bandwidth))
    throw UsageError(options.operations.front() == Operation::latency()
                         ? "--min-bandwidth: latency has one message under way, so it has no "
                           "bandwidth; give --max-latency, or measure bandwidth"
                         : "--min-bandwidth: a barrier moves no data, so it has no bandwidth; "
                           "leave the flag out, or give --max-latency");
  if (options.max_latency && std::ranges::none_of(options.operations, &Operation::has_latency))
    throw UsageError(
        fmt::format("--max-latency {}: times of {} are shares of a window of messages; measure "
                    "latency, or give --min-bandwidth",
                    flags["--max-latency"], name_of_run(flags)));
}

// Sets what pairs measures unless its flags say otherwise.
void begin_pairs(BenchOptions& options) {
  options.pairs.emplace();
  options.operations = {Operation::bandwidth(), Operation::latency()};
  options.conditions.check = false;
  options.conditions.window = default_pairs_window;
  options.types = {DType::u8};
  options.ops = {ReduceOp::sum};
}

void read_rows(const BenchFlags& flags, BenchOptions& options) {
  options.sizes = read_sizes(flags, options.between_pairs());
  options.sizes_from_zero = flags["--sizes"].empty() && flags["--minbytes"].empty();
  if (options.operations == std::vector<Operation>{Collective::barrier}) options.sizes = {0};
  read_types_and_ops(flags, options);
}

void read_sizes_of_pairs(const BenchFlags& flags, BenchOptions& options) {
  const std::string& text = flags["--sizes"];
  options.sizes = text.empty() ? std::vector{default_pairs_bytes} : read_list_of_sizes(flags);
  if (options.sizes.back() < sizeof(std::uint64_t))
    throw UsageError(fmt::format("--sizes {}: a message of pairs has at least 8 bytes", text));
}

}  // namespace

BenchOptions interpret(const BenchFlags& flags) {
  BenchOptions options;
  const bool pairs = flags["operation"] == "pairs";
  check_suits(flags, pairs);
  if (pairs)
    begin_pairs(options);
  else
    options.operations = read_operations(flags);
  if (!pairs) check_flags_of_messages(flags, options.operations);
  const bool launched = gather_place({}).source != "alone";
  options.connect = read_environment(launched);
  for (const Flag& flag : bench_flags())
    if (flag.read != nullptr && flags.has(flag))
      flag.read(flag.name(), flag.value == nullptr ? "" : flags[flag.name()], options);
  if (pairs)
    read_sizes_of_pairs(flags, options);
  else
    read_rows(flags, options);
  options.conditions.largest = options.sizes.back();
  check_memory(options);
  check_bounds(flags, options);
  refuse_one_file(flags);
  settle_soak(flags, options);
  check_connect(flags, options, launched);
  if (!options.constants.empty()) options.connect.measure = true;
  return options;
}

void settle(BenchOptions& options, int ranks, int rank) {
  for (const Operation& operation : options.operations) {
    if (options.pairs || !operation.between_pairs()) continue;
    const bool fits = operation == Operation::rate() ? ranks % 2 == 0 : ranks == 2;
    if (fits) continue;
    if (options.one_way())
      throw UsageError(fmt::format(
          "--one-way: rank 0 sends to rank 1, so there must be 2 ranks, not {}; start 2, or leave "
          "--one-way out: then each rank sends to the next one",
          ranks));
    throw UsageError(fmt::format(
        "{}: {}, not {}; {}", name_of(operation),
        operation == Operation::rate() ? "every rank has a partner, so the number of ranks is even"
                                       : "it is between rank 0 and rank 1, so there are 2 ranks",
        ranks,
        operation == Operation::rate() ? "start one more or one less"
                                       : "start 2, or measure rate or pairs"));
  }
  if (options.delay && options.delay->rank >= ranks)
    throw UsageError(fmt::format("--delay: there are {} ranks, so give rank 0 to {}, not {}", ranks,
                                 ranks - 1, options.delay->rank));
  if (options.delay && options.delay->rank == rank) options.conditions.delay = options.delay->time;
  if (options.roots.front() >= ranks)
    throw UsageError(fmt::format("--root {}: there are {} ranks, so give 0 to {} or all",
                                 options.roots.front(), ranks, ranks - 1));
  if (options.roots.front() >= 0) return;
  options.roots.clear();
  for (int root = 0; root < ranks; ++root) options.roots.push_back(root);
}

}  // namespace rondo::tools
