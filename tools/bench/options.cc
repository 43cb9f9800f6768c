// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/options.h"

#include <rondo/error.h>
#include <rondo/info.h>
#include <rondo/plan.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/text.h"
#include "tools/ranks/spawn.h"
#include "tools/records/result_file.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::uint64_t default_min = 8, default_max = std::uint64_t{64} << 20, default_factor = 4,
                        default_step = std::uint64_t{1} << 20;
// Every message of a window has memory of its own. OSU's benchmarks end here too.
constexpr std::uint64_t default_pair_max = std::uint64_t{4} << 20, most_window = 65'536;
// Of pairs: enough messages under way to keep a link busy, and a slow link ends them soon.
constexpr std::uint64_t default_pairs_window = 4, default_pairs_bytes = std::uint64_t{1} << 20;
constexpr std::size_t most_rows = 100'000;
constexpr std::uint64_t most_in_a_row = 100'000;

template <class T>
std::vector<std::string> all_names(int count) {
  std::vector<std::string> names;
  names.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) names.emplace_back(name_of(static_cast<T>(i)));
  return names;
}

[[noreturn]] void fail_unknown(std::string_view flag, std::string_view given,
                               const std::vector<std::string>& possible) {
  throw UsageError(fmt::format("{} {}: unknown{}; possible: {}", flag, given,
                               suggest(given, possible), join(possible)));
}

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
  fail_unknown("operation", text, names);
}

std::vector<Operation> read_operations(const BenchFlags& flags) {
  std::vector<Operation> operations;
  for (const std::string& word : split(flags.operation, ',')) {
    // nccl-tests has a program for each operation: all_reduce_perf.
    const Operation operation =
        read_operation(word.ends_with("_perf") ? word.substr(0, word.size() - 5) : word);
    if (std::find(operations.begin(), operations.end(), operation) != operations.end())
      throw UsageError(fmt::format("operation {}: named twice; name each once", word));
    operations.push_back(operation);
  }
  if (operations.empty()) fail_unknown("operation", flags.operation, {"all_reduce"});
  if (!flags.one_way) return operations;
  if (operations != std::vector{Operation::sendrecv()})
    throw UsageError(
        fmt::format("--one-way: only for rondo bench sendrecv, and the operation is {}; leave the "
                    "flag out",
                    flags.operation));
  return {Operation::one_way()};
}

// Refuses flags that say nothing of these operations.
void check_flags_of_messages(const BenchFlags& flags, const std::vector<Operation>& operations) {
  const auto any = [&](auto is) { return std::any_of(operations.begin(), operations.end(), is); };
  const auto refuse = [](const char* flag, const std::string& value, const std::string& why) {
    if (!value.empty())
      throw UsageError(fmt::format("{} {}: {}; leave the flag out", flag, value, why));
  };
  if (!any([](const Operation& operation) { return operation.windowed(); }))
    refuse("--window", flags.window,
           operations.front() == Operation::sendrecv()
               ? "only with --one-way; --agg_iters says how many calls of sendrecv are under way"
               : "only for sendrecv --one-way, bandwidth, bibandwidth and rate, and the operation "
                 "is " +
                     flags.operation);
  if (any([](const Operation& operation) { return !operation.traits().messages; })) return;
  const std::string name = flags.one_way ? "sendrecv" : flags.operation;
  refuse("--op", flags.op, name + " reduces nothing");
  refuse("--root", flags.root, name + " has no root");
  refuse("--algorithm", flags.algorithm, "messages have no algorithm to choose");
  if (any([](const Operation& operation) { return !operation.between_pairs(); })) return;
  refuse("--delay", flags.delay, name + " does not name late ranks, only calls of all ranks do");
  refuse("--agg_iters", flags.in_a_row,
         flags.one_way ? "with --one-way an iteration has --window messages"
                       : "an iteration of " + name + " has --window messages, of latency one");
}

std::vector<DType> read_types(const std::string& text) {
  std::vector<DType> types;
  if (text == "all") {
    for (int i = 0; i < dtype_count; ++i) types.push_back(static_cast<DType>(i));
    return types;
  }
  auto names = all_names<DType>(dtype_count);
  names.emplace_back("all");
  for (const std::string& word : split(text, ',')) {
    const auto type = parse_dtype(word);
    if (!type) fail_unknown("--datatype", word, names);
    if (std::find(types.begin(), types.end(), *type) == types.end()) types.push_back(*type);
  }
  if (types.empty()) fail_unknown("--datatype", text, names);
  return types;
}

std::vector<ReduceOp> read_ops(const std::string& text, const std::vector<DType>& types) {
  if (text.empty()) return {ReduceOp::sum};
  std::vector<ReduceOp> ops;
  auto names = all_names<ReduceOp>(reduce_op_count);
  names.emplace_back("all");
  for (int i = 0; text == "all" && i < reduce_op_count; ++i)
    ops.push_back(static_cast<ReduceOp>(i));
  for (const std::string& word : text == "all" ? std::vector<std::string>{} : split(text, ',')) {
    const auto op = parse_reduce_op(word);
    if (!op) fail_unknown("--op", word, names);
    ops.push_back(*op);
  }
  if (ops.empty()) fail_unknown("--op", text, names);
  for (const ReduceOp op : ops)
    if (std::none_of(types.begin(), types.end(), [op](DType type) { return supports(type, op); }))
      throw UsageError(
          fmt::format("--op {}: not defined for {}; the bit operations need an integer type",
                      name_of(op), name_of(types.front())));
  return ops;
}

// The value of --sizes, in ascending order.
std::vector<std::uint64_t> read_list_of_sizes(const BenchFlags& flags) {
  for (const auto& [flag, value] :
       std::initializer_list<std::pair<const char*, const std::string*>>{
           {"--minbytes", &flags.min_bytes},
           {"--maxbytes", &flags.max_bytes},
           {"--stepbytes", &flags.step_bytes},
           {"--stepfactor", &flags.step_factor}})
    if (!value->empty())
      throw UsageError(
          fmt::format("{} {}: --sizes {} lists the sizes already; leave one of the two flags out",
                      flag, *value, flags.sizes));
  std::vector<std::uint64_t> sizes;
  for (const std::string& word : split(flags.sizes, ','))
    sizes.push_back(parse_bytes("--sizes", word));
  if (sizes.empty()) throw UsageError("--sizes: names no size; give some, as in 8,64K,1M");
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<std::uint64_t> read_sizes(const BenchFlags& flags, bool between_pairs) {
  if (!flags.sizes.empty()) return read_list_of_sizes(flags);
  std::uint64_t first =
      flags.min_bytes.empty() ? default_min : parse_bytes("--minbytes", flags.min_bytes);
  std::uint64_t last = between_pairs ? default_pair_max : default_max;
  if (!flags.max_bytes.empty()) last = parse_bytes("--maxbytes", flags.max_bytes);
  if (flags.max_bytes.empty()) last = std::max(first, last);
  if (flags.min_bytes.empty()) first = std::min(first, last);
  if (first > last)
    throw UsageError(
        fmt::format("--minbytes {} is more than --maxbytes {}", flags.min_bytes, flags.max_bytes));
  const bool stepped = !flags.step_bytes.empty() && flags.step_factor.empty();
  const std::uint64_t step =
      flags.step_bytes.empty() ? default_step : parse_bytes("--stepbytes", flags.step_bytes);
  if (step == 0) throw UsageError("--stepbytes 0: give at least 1");
  std::uint64_t factor = flags.step_factor.empty()
                             ? default_factor
                             : parse_number("--stepfactor", flags.step_factor, 1, 1 << 20);
  if (stepped) factor = 1;
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
  const bool own_step = flags.step_bytes.empty() && flags.step_factor.empty();
  if (own_step && sizes.back() != last) sizes.push_back(last);
  return sizes;
}

std::vector<int> read_roots(const BenchFlags& flags) {
  if (flags.root.empty()) return {0};
  if (flags.root == "all") return {-1};
  return {parse_int("--root", flags.root, 0, std::numeric_limits<int>::max())};
}

// Two results in one file would overwrite each other.
void refuse_one_file(const BenchFlags& flags) {
  const std::array<std::pair<const char*, const std::string*>, 5> files{
      {{"--json", &flags.json},
       {"--csv", &flags.csv},
       {"--jsonl", &flags.jsonl},
       {"--write-constants", &flags.constants},
       {"--svg", &flags.pairs.svg}}};
  for (std::size_t i = 0; i < files.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (!files[i].second->empty() && !files[j].second->empty() &&
          is_one_file(*files[j].second, *files[i].second))
        throw UsageError(
            fmt::format("{} {} and {} {}: both name the same output; give each its own",
                        files[j].first, *files[j].second, files[i].first, *files[i].second));
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
  if (std::find(algorithms.begin(), algorithms.end(), algorithm) == algorithms.end())
    fail_unknown("--algorithm", algorithm, algorithms);
}

// Only the folder can be checked before the ranks start.
std::string read_metrics(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code unknown;
  if (!folder.empty() && !std::filesystem::is_directory(folder, unknown))
    throw UsageError(fmt::format("--metrics {}: there is no folder {}; make it, or name another",
                                 path, folder.string()));
  return path;
}

Options read_connect(const BenchFlags& flags, const std::vector<Operation>& operations) {
  const bool launched = gather_place({}).source != "alone";
  Options options = read_environment(launched);
  if (!flags.transport.empty()) options.transports = split(flags.transport, ',');
  if (!flags.interfaces.empty()) options.interfaces = {flags.interfaces};
  if (!flags.algorithm.empty()) options.algorithm = flags.algorithm;
  if (!flags.metrics.empty()) options.metrics = read_metrics(flags.metrics);
  if (!flags.deadline.empty())
    options.deadline =
        std::chrono::milliseconds(1000 * parse_number("--deadline", flags.deadline, 1, 1'000'000));
  const SystemInfo info = gather_info(options);
  std::vector<std::string> names;
  for (const TransportInfo& transport : info.transports) names.push_back(transport.name);
  for (const std::string& wanted : options.transports)
    if (std::find(names.begin(), names.end(), wanted) == names.end() &&
        (!launched || !flags.transport.empty()))
      fail_unknown("--transport", wanted, names);
  if (!info.interface_error.empty() && (!launched || !flags.interfaces.empty()))
    throw UsageError(info.interface_error);
  for (const Operation& operation : operations) check_algorithm(options.algorithm, operation);
  return options;
}

}  // namespace

std::vector<std::uint64_t> BenchOptions::sizes_of(const Operation& operation) const {
  if (operation == Collective::barrier) return {0};
  std::vector<std::uint64_t> own = sizes;
  if (sizes_from_zero && operation == Operation::latency() && own.front() > 0)
    own.insert(own.begin(), 0);
  return own;
}

std::vector<DType> BenchOptions::types_of(const Operation& operation) const {
  return operation == Collective::barrier ? std::vector{DType::u8} : types;
}

std::vector<ReduceOp> BenchOptions::ops_of(const Operation& operation) const {
  return operation.traits().reduces ? ops : std::vector{ReduceOp::sum};
}

std::vector<int> BenchOptions::roots_of(const Operation& operation) const {
  return operation.traits().rooted() ? roots : std::vector{0};
}

bool BenchOptions::between_pairs() const {
  return !pairs &&
         std::any_of(operations.begin(), operations.end(),
                     [](const Operation& operation) { return operation.between_pairs(); });
}

std::uint64_t BenchOptions::most_calls() const {
  std::uint64_t most = 1;
  for (const Operation& operation : operations)
    most = std::max(most, conditions.calls_of(operation));
  return most;
}

bool BenchOptions::shows_table() const {
  return !quiet && !is_standard_output(jsonl) && !is_standard_output(json) &&
         !is_standard_output(csv) && !is_standard_output(constants) &&
         !(pairs && is_standard_output(pairs->svg));
}

namespace {

Conditions read_conditions(const BenchFlags& flags) {
  Conditions conditions;
  if (!flags.iterations.empty())
    conditions.iterations = parse_number("--iters", flags.iterations, 1, 1'000'000'000);
  if (!flags.warmups.empty())
    conditions.warmups = parse_number("--warmup_iters", flags.warmups, 0, 1'000'000);
  if (!flags.window.empty())
    conditions.window = parse_number("--window", flags.window, 1, most_window);
  if (!flags.in_a_row.empty())
    conditions.in_a_row = parse_number("--agg_iters", flags.in_a_row, 1, most_in_a_row);
  if (!flags.check.empty())
    conditions.check = parse_number("--check", flags.check, 0, 1'000'000'000) != 0;
  conditions.allocate = flags.allocate;
  conditions.fresh = flags.fresh;
  return conditions;
}

// "3:5ms"
std::optional<Delay> read_delay(const std::string& text) {
  if (text.empty()) return {};
  const auto parts = split(text, ':');
  if (parts.size() != 2)
    throw UsageError(fmt::format("--delay {}: give a rank and a time, as in 3:5ms", text));
  const double seconds = parse_seconds("--delay", parts[1]);
  if (seconds > 60) throw UsageError(fmt::format("--delay {}: give at most 60s", text));
  return Delay{parse_int("--delay", parts[0], 0, most_ranks - 1),
               std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9))};
}

// "3600", "90s", "10m" or "1h".
double read_duration(const char* flag, const std::string& text) {
  double unit = 1;
  std::string number = text;
  if (text.ends_with('m') || text.ends_with('h')) {
    unit = text.back() == 'h' ? 3600 : 60;
    number.pop_back();
  } else if (text.ends_with("ms") || text.ends_with('s')) {
    unit = text.ends_with("ms") ? 1e-3 : 1;
    number.resize(text.size() - (text.ends_with("ms") ? 2 : 1));
  }
  const auto fail = [&](const char* why) -> double {
    throw UsageError(fmt::format("{} {}: {}; give seconds, or a number with ms, s, m or h: 90s, 1h",
                                 flag, text, why));
  };
  double value = 0;
  try {
    value = unit * parse_positive(flag, number);
  } catch (const UsageError&) {
    return fail("not a time above zero");
  }
  return value > 1e9 ? fail("too long") : value;
}

// The flags of a soak.
void read_soak(const BenchFlags& flags, BenchOptions& options) {
  if (flags.seconds.empty()) {
    for (const auto& [flag, value] :
         {std::pair{"--interval", &flags.interval}, std::pair{"--jsonl", &flags.jsonl}})
      if (!value->empty())
        throw UsageError(fmt::format("{} {}: only with --seconds, which says how long to measure",
                                     flag, *value));
    return;
  }
  if (!flags.iterations.empty())
    throw UsageError(fmt::format(
        "--iters {}: with --seconds an interval has as many iterations as fit; leave the flag out",
        flags.iterations));
  if (options.between_pairs() && options.one_way())
    throw UsageError("--seconds: not for sendrecv --one-way; measure latency or bandwidth");
  for (const auto& [flag, given] :
       {std::pair{"--write-constants", !flags.constants.empty()},
        std::pair{"--stragglers", flags.stragglers}, std::pair{"--wide", flags.wide}})
    if (given)
      throw UsageError(fmt::format("{}: not with --seconds; leave one of the two out", flag));
  options.seconds = read_duration("--seconds", flags.seconds);
  if (!flags.interval.empty()) options.interval = read_duration("--interval", flags.interval);
  if (options.interval < 0.01)
    throw UsageError(fmt::format("--interval {}: give at least 10ms", flags.interval));
  options.jsonl = flags.jsonl;
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

// Reads the bounds of all rows. A bound of what no operation has is a mistake.
void read_bounds(const BenchFlags& flags, BenchOptions& options) {
  const auto any = [&](auto has) {
    return std::any_of(options.operations.begin(), options.operations.end(), has);
  };
  if (!flags.min_bandwidth.empty()) {
    options.min_bandwidth = parse_positive("--min-bandwidth", flags.min_bandwidth);
    if (!any([](const Operation& operation) { return operation.has_bandwidth(); }))
      throw UsageError(options.operations.front() == Operation::latency()
                           ? "--min-bandwidth: latency has one message under way, so it has no "
                             "bandwidth; give --max-latency, or measure bandwidth"
                           : "--min-bandwidth: a barrier moves no data, so it has no bandwidth; "
                             "leave the flag out, or give --max-latency");
  }
  if (flags.max_latency.empty()) return;
  options.max_latency = parse_seconds("--max-latency", flags.max_latency);
  if (*options.max_latency <= 0)
    throw UsageError(
        fmt::format("--max-latency {}: give a time above 0, as in 50us", flags.max_latency));
  if (!any([](const Operation& operation) { return operation.has_latency(); }))
    throw UsageError(
        fmt::format("--max-latency {}: times of {} are shares of a window of messages; measure "
                    "latency, or give --min-bandwidth",
                    flags.max_latency, flags.operation));
}

void refuse_flags_of_other_operations(const BenchFlags& flags) {
  const auto check = [](bool given, const char* flag, const char* why) {
    if (given) throw UsageError(fmt::format("{}: {}; leave the flag out", flag, why));
  };
  constexpr auto sizes = "pairs has one size, the largest of --sizes",
                 time = "pairs measures for --pair-time", host = "pairs sends host memory only",
                 data = "pairs sends bytes and checks none";
  check(!flags.min_bytes.empty(), "--minbytes", sizes);
  check(!flags.max_bytes.empty(), "--maxbytes", sizes);
  check(!flags.step_bytes.empty(), "--stepbytes", sizes);
  check(!flags.step_factor.empty(), "--stepfactor", sizes);
  check(!flags.iterations.empty(), "--iters", time);
  check(!flags.warmups.empty(), "--warmup_iters", time);
  check(!flags.in_a_row.empty(), "--agg_iters", "pairs has --window messages under way");
  check(!flags.check.empty(), "--check", data);
  check(flags.fresh, "--fresh", data);
  check(flags.type != BenchFlags{}.type, "--datatype", data);
  check(!flags.op.empty(), "--op", "pairs reduces nothing");
  check(!flags.root.empty(), "--root", "pairs has no root");
  check(!flags.algorithm.empty(), "--algorithm", "messages have no algorithm to choose");
  check(!flags.device.empty() && flags.device != "cpu", "--device", host);
  check(flags.allocate, "--allocate", host);
  check(flags.one_way, "--one-way", "pairs measures both directions, each alone");
  check(!flags.delay.empty(), "--delay", "pairs has no calls to delay");
  check(!flags.constants.empty(), "--write-constants", "pairs measures no planner's constants");
  check(flags.stragglers, "--stragglers", "pairs names hosts and links instead");
  check(flags.wide, "--wide", "pairs prints matrices");
  check(!flags.seconds.empty(), "--seconds", time);
  check(!flags.interval.empty(), "--interval", "pairs has no intervals");
  check(!flags.jsonl.empty(), "--jsonl", "pairs has no intervals");
}

void read_files(const BenchFlags& flags, BenchOptions& options) {
  refuse_one_file(flags);
  options.json = flags.json;
  options.csv = flags.csv;
  options.constants = flags.constants;
  options.quiet = flags.quiet;
}

BenchOptions interpret_pairs(const BenchFlags& flags) {
  refuse_flags_of_other_operations(flags);
  BenchOptions options;
  options.pairs = interpret(flags.pairs);
  options.operations = {Operation::bandwidth(), Operation::latency()};
  options.sizes =
      flags.sizes.empty() ? std::vector{default_pairs_bytes} : read_list_of_sizes(flags);
  if (options.sizes.back() < sizeof(std::uint64_t))
    throw UsageError(
        fmt::format("--sizes {}: a message of pairs has at least 8 bytes", flags.sizes));
  options.conditions.largest = options.sizes.back();
  options.conditions.check = false;
  options.conditions.window = flags.window.empty()
                                  ? default_pairs_window
                                  : parse_number("--window", flags.window, 1, most_window);
  check_memory(options);
  options.types = {DType::u8};
  options.ops = {ReduceOp::sum};
  options.roots = {0};
  options.ceiling = false;
  if (!flags.ranks.empty()) options.ranks = parse_int("--ranks", flags.ranks, 1, most_ranks);
  options.binding = parse_binding(flags.bind);
  read_bounds(flags, options);
  read_files(flags, options);
  options.connect = read_connect(flags, {});
  return options;
}

}  // namespace

BenchOptions interpret(const BenchFlags& flags) {
  if (flags.operation == "pairs") return interpret_pairs(flags);
  refuse(flags.pairs, flags.operation);
  BenchOptions options;
  options.operations = read_operations(flags);
  check_flags_of_messages(flags, options.operations);
  options.conditions = read_conditions(flags);
  options.sizes = read_sizes(flags, options.between_pairs());
  options.sizes_from_zero = flags.sizes.empty() && flags.min_bytes.empty();
  if (options.operations == std::vector<Operation>{Collective::barrier}) options.sizes = {0};
  options.conditions.largest = options.sizes.back();
  check_memory(options);
  options.types = read_types(flags.type);
  options.ops = read_ops(flags.op, options.types);
  options.roots = read_roots(flags);
  if (!flags.ranks.empty()) options.ranks = parse_int("--ranks", flags.ranks, 1, most_ranks);
  options.binding = parse_binding(flags.bind);
  read_bounds(flags, options);
  options.delay = read_delay(flags.delay);
  options.ceiling = !flags.no_ceiling;
  for (const Operation& operation : options.operations)
    options.device = DeviceChoice::parse(flags.device, operation);
  read_files(flags, options);
  read_soak(flags, options);
  options.wide = flags.wide;
  options.stragglers = flags.stragglers;
  options.connect = read_connect(flags, options.operations);
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
