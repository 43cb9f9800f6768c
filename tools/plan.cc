// SPDX-License-Identifier: Apache-2.0
#include <rondo/plan.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "tools/commands.h"
#include "tools/text.h"

namespace rondo::tools {
namespace {

struct PlanFlags {
  std::string operation, algorithm, ranks, root = "0", rank, bytes = "64M";
  std::string segments = "12", depth, credits = "1", ranks_per_host = "0", cores = "0";
  bool check = false, explain = false, reproducible = false;
};

int number(std::string_view flag, const std::string& text, std::uint64_t first, std::uint64_t last) {
  return static_cast<int>(parse_number(flag, text, first, last));
}

std::vector<Collective> chosen_operations(const PlanFlags& flags, bool all) {
  std::vector<Collective> operations;
  if (flags.operation.empty() && !all) return {Collective::all_reduce};
  for (int i = 0; i < collective_count; ++i) operations.push_back(static_cast<Collective>(i));
  if (flags.operation.empty()) return operations;
  const auto operation = parse_collective(flags.operation);
  if (operation) return {*operation};
  std::vector<std::string> names;
  for (const Collective each : operations) names.emplace_back(name_of(each));
  throw UsageError(fmt::format("operation {}: possible are {}", flags.operation, join(names)));
}

void print_schedule(const PlanFlags& flags) {
  ScheduleQuery query;
  query.operation = chosen_operations(flags, false).front();
  query.algorithm = flags.algorithm.empty() ? list_algorithms(query.operation).front() : flags.algorithm;
  query.ranks = flags.ranks.empty() ? 4 : number("--ranks", flags.ranks, 1, 100'000);
  query.root = number("--root", flags.root, 0, static_cast<std::uint64_t>(query.ranks - 1));
  int first = 0, last = query.ranks - 1;
  if (!flags.rank.empty()) first = last = number("--rank", flags.rank, 0, static_cast<std::uint64_t>(last));
  for (int rank = first; rank <= last; ++rank) {
    const std::vector<std::string> lines = describe_schedule(query, rank);
    fmt::print("rank {} of {}, {} {}\n", rank, query.ranks, query.algorithm, name_of(query.operation));
    for (const std::string& line : lines) fmt::print("  {}\n", line);
  }
}

// Everything that is not restricted by a flag: the sizes that the test suite proves, and for few ranks every root.
struct CheckRun {
  ScheduleCheck options;
  std::vector<std::uint32_t> depths;
  bool terminal = isatty(STDERR_FILENO) != 0;
  std::uint64_t proved = 0, wrong = 0;

  void prove(const ScheduleQuery& query) {
    for (const std::uint32_t depth : depths) {
      options.depth = depth;
      const ScheduleProof proof = check_schedule(query, options);
      ++proved;
      if (proof.problem.empty()) continue;
      ++wrong;
      clear_progress();
      fmt::print("WRONG {} {}, {} ranks, root {}, depth {}: {}\n", query.algorithm, name_of(query.operation),
                 query.ranks, query.root, depth, proof.problem);
    }
  }
  void progress(const ScheduleQuery& query) const {
    if (terminal)
      fmt::print(stderr, "\r\033[K{} {}, {} ranks", query.algorithm, name_of(query.operation), query.ranks);
  }
  void clear_progress() const {
    if (terminal) fmt::print(stderr, "\r\033[K");
  }
};

std::vector<int> checked_sizes(const PlanFlags& flags) {
  if (!flags.ranks.empty()) return {number("--ranks", flags.ranks, 1, 1024)};
  std::vector<int> sizes;
  for (int ranks = 1; ranks <= 33; ++ranks) sizes.push_back(ranks);
  for (const int ranks : {64, 100, 128}) sizes.push_back(ranks);
  return sizes;
}

void check_one(CheckRun& run, ScheduleQuery query, const std::vector<int>& sizes) {
  constexpr int all_roots =
      9;  // up to so many ranks every root is tried, beyond the first, the last and one between
  const bool rooted = query.operation == Collective::reduce || query.operation == Collective::broadcast;
  const std::uint64_t before = run.proved, wrong = run.wrong;
  for (const int ranks : sizes) {
    query.ranks = ranks;
    run.progress(query);
    const int step = ranks <= all_roots ? 1 : std::max(1, (ranks - 1) / 2);
    for (query.root = 0; query.root < (rooted ? ranks : 1); query.root += step) run.prove(query);
  }
  run.clear_progress();
  fmt::print("{:<8} {:<14} {}\n", query.algorithm, name_of(query.operation),
             run.wrong == wrong
                 ? fmt::format("{} cases proved", run.proved - before)
                 : fmt::format("{} of {} cases wrong", run.wrong - wrong, run.proved - before));
}

int check_schedules(const PlanFlags& flags) {
  CheckRun run;
  run.options.segments = parse_number("--segments", flags.segments, 1, 1000);
  run.options.credits = static_cast<std::uint32_t>(parse_number("--credits", flags.credits, 0, 1'000'000));
  run.depths = {1, 2, 4, 7};
  if (!flags.depth.empty())
    run.depths = {static_cast<std::uint32_t>(parse_number("--depth", flags.depth, 1, 1'000'000))};
  const std::vector<int> sizes = checked_sizes(flags);
  for (const Collective operation : chosen_operations(flags, true)) {
    const std::vector<std::string> names = list_algorithms(operation);
    const bool known = std::find(names.begin(), names.end(), flags.algorithm) != names.end();
    if (!flags.algorithm.empty() && !known && !flags.operation.empty())
      throw UsageError(fmt::format("--algorithm {}: possible for {} are {}", flags.algorithm,
                                   name_of(operation), join(names)));
    for (const std::string& name : names)
      if (flags.algorithm.empty() || flags.algorithm == name)
        check_one(run, {.operation = operation, .algorithm = name, .ranks = 1, .root = 0}, sizes);
  }
  if (run.proved == 0)
    throw UsageError(
        fmt::format("--algorithm {}: no operation has it; possible are ring, tree, star, doubling, chain",
                    flags.algorithm));
  fmt::print("{} cases, {} wrong\n", run.proved, run.wrong);
  return run.wrong == 0 ? exit_fine : exit_missed;
}

void explain(const PlanFlags& flags) {
  PlanQuery query;
  query.operation = chosen_operations(flags, false).front();
  query.bytes = parse_bytes("--bytes", flags.bytes);
  query.ranks = flags.ranks.empty() ? 4 : number("--ranks", flags.ranks, 1, 100'000);
  query.ranks_per_host =
      number("--ranks-per-host", flags.ranks_per_host, 0, static_cast<std::uint64_t>(query.ranks));
  query.cores_per_host = number("--cores", flags.cores, 0, 100'000);
  query.algorithm = flags.algorithm;
  if (!flags.depth.empty()) query.depth = number("--depth", flags.depth, 1, 100'000);
  query.reproducible = flags.reproducible;
  fmt::print("{} of {} over {} ranks\n", name_of(query.operation), format_bytes(query.bytes), query.ranks);
  fmt::print("{:<10} {:>14} {:>6} {:>12}\n", "algorithm", "segment", "depth", "predicted");
  bool first = true;
  for (const PlanCandidate& candidate : explain_plan(query)) {
    fmt::print("{:<10} {:>14} {:>6} {:>9.1f} us{}\n", candidate.algorithm,
               format_bytes(candidate.segment_bytes), candidate.depth, candidate.seconds * 1e6,
               first ? "  <- chosen" : "");
    first = false;
  }
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "plan", "Print the schedule of an operation, prove schedules, or explain the planner's choice");
  auto flags = std::make_shared<PlanFlags>();
  auto* check =
      command->add_flag("--check", flags->check,
                        "Prove schedules; without other flags all of them, 1 to 33 ranks and 64, 100, 128");
  command->add_flag("--explain", flags->explain, "Show the candidates for --bytes with their predicted times")
      ->excludes(check);
  command->add_option("operation,--operation", flags->operation,
                      "all_reduce (default), reduce, broadcast, all_gather, reduce_scatter, barrier");
  command->add_option("--algorithm", flags->algorithm, "ring, tree, star, doubling or chain");
  command->add_option("--ranks", flags->ranks, "Number of ranks (default 4)");
  command->add_option("--root", flags->root, "Root of reduce and broadcast, when printing");
  command->add_option("--rank", flags->rank, "Print this rank only");
  command->add_option("--segments", flags->segments, "Check: segments of the buffer");
  command->add_option("--depth", flags->depth, "Segments in flight");
  command->add_option("--credits", flags->credits,
                      "Check: frames that a link takes before its receiver does");
  command->add_option("--bytes", flags->bytes, "Explain: size of the whole buffer (default 64M)");
  command->add_option("--ranks-per-host", flags->ranks_per_host, "Explain: 0 means all");
  command->add_option("--cores", flags->cores, "Explain: cores of each host; 0 means as many as here");
  command->add_flag("--reproducible", flags->reproducible, "Explain: only algorithms that sum in rank order");
  command->callback([flags, &exit_code] {
    exit_code = exit_fine;
    try {
      if (flags->check)
        exit_code = check_schedules(*flags);
      else if (flags->explain)
        explain(*flags);
      else
        print_schedule(*flags);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  });
}

}  // namespace rondo::tools
