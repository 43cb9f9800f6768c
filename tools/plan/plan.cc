// SPDX-License-Identifier: Apache-2.0
#include <rondo/plan.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "base/traits.h"
#include "tools/plan/explain.h"
#include "tools/plan/hosts.h"
#include "tools/plan/simulate.h"
#include "tools/shared/commands.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

struct PlanFlags {
  std::string operation, algorithm, ranks, root = "0", rank, bytes = "64M";
  std::string segments = "12", depth, credits = "1", ranks_per_host = "0", cores = "0";
  std::string segment, json, constants;
  bool check = false, explain = false, simulate = false, reproducible = false;
  SimulateFlags simulation;
};

std::vector<Collective> chosen_operations(const PlanFlags& flags, bool all) {
  std::vector<Collective> operations;
  if (flags.operation.empty() && !all) return {Collective::all_reduce};
  for (int i = 0; i < collective_count; ++i)
    if (const auto each = static_cast<Collective>(i); !list_algorithms(each).empty())
      operations.push_back(each);
  if (flags.operation.empty()) return operations;
  const auto operation = parse_collective(flags.operation);
  if (operation && std::count(operations.begin(), operations.end(), *operation) != 0)
    return {*operation};
  std::vector<std::string> names;
  names.reserve(operations.size());
  for (const Collective each : operations) names.emplace_back(name_of(each));
  throw UsageError(fmt::format("operation {}: unknown{}; possible: {}", flags.operation,
                               suggest(flags.operation, names), join(names)));
}

HostFlags host_flags(const PlanFlags& flags) {
  return {flags.simulation.hosts, flags.ranks_per_host, flags.simulation.placement};
}

int chosen_ranks(const PlanFlags& flags) {
  if (!flags.ranks.empty()) return parse_int("--ranks", flags.ranks, 1, 100'000);
  const int listed = ranks_of(host_flags(flags));
  return listed > 0 ? listed : 4;
}

void print_schedule(const PlanFlags& flags) {
  ScheduleQuery query;
  query.operation = chosen_operations(flags, false).front();
  query.algorithm =
      flags.algorithm.empty() ? list_algorithms(query.operation).front() : flags.algorithm;
  query.ranks = chosen_ranks(flags);
  query.hosts = hosts_of(host_flags(flags), query.ranks);
  query.root = parse_int("--root", flags.root, 0, static_cast<std::uint64_t>(query.ranks - 1));
  int first = 0, last = query.ranks - 1;
  if (!flags.rank.empty())
    first = last = parse_int("--rank", flags.rank, 0, static_cast<std::uint64_t>(last));
  for (int rank = first; rank <= last; ++rank) {
    const std::vector<std::string> lines = describe_schedule(query, rank);
    print("rank {} of {}, {} {}\n", rank, query.ranks, query.algorithm, name_of(query.operation));
    for (const std::string& line : lines) print("  {}\n", line);
  }
}

// Proves every schedule that no flag excludes: for the numbers of ranks that the test suite proves,
// and with few ranks for every root.
struct CheckRun {
  ScheduleCheck options;
  std::vector<std::uint32_t> depths;
  std::vector<HostFlags> hosts;  // each is tried
  bool terminal = isatty(STDERR_FILENO) != 0;
  std::uint64_t proved = 0, wrong = 0;

  void prove(ScheduleQuery query) {
    for (const HostFlags& flags : hosts) {
      query.hosts = hosts_of(flags, query.ranks);
      prove_depths(query);
    }
  }
  void prove_depths(const ScheduleQuery& query) {
    for (const std::uint32_t depth : depths) {
      options.depth = depth;
      const ScheduleProof proof = check_schedule(query, options);
      ++proved;
      if (proof.problem.empty()) continue;
      ++wrong;
      clear_progress();
      const auto host = std::max_element(query.hosts.begin(), query.hosts.end());
      print("WRONG {} {}, {} ranks on {} hosts, root {}, depth {}: {}\n", query.algorithm,
            name_of(query.operation), query.ranks, host == query.hosts.end() ? 1 : *host + 1,
            query.root, depth, proof.problem);
    }
  }
  void progress(const ScheduleQuery& query) const {
    if (terminal)
      say("\r\033[K{} {}, {} ranks", query.algorithm, name_of(query.operation), query.ranks);
  }
  void clear_progress() const {
    if (terminal) say("\r\033[K");
  }
};

std::vector<int> checked_sizes(const PlanFlags& flags) {
  if (!flags.ranks.empty()) return {parse_int("--ranks", flags.ranks, 1, 1024)};
  if (const int listed = ranks_of(host_flags(flags)); listed > 0) return {listed};
  std::vector<int> sizes;
  for (int ranks = 1; ranks <= 33; ++ranks) sizes.push_back(ranks);
  for (const int ranks : {64, 100, 128}) sizes.push_back(ranks);
  return sizes;
}

// Without flags all ranks are on one host, but two_level is proved on several.
std::vector<HostFlags> checked_hosts(const PlanFlags& flags, const std::string& algorithm) {
  if (any(host_flags(flags)) || algorithm != "two_level") return {host_flags(flags)};
  return {{"", "4", "blocks"}, {"3", "0", "turns"}};
}

// With few ranks every root is tried; beyond, the first, the middle and the last rank.
std::vector<int> checked_roots(int ranks) {
  constexpr int few = 9;
  if (ranks > few) return {0, ranks / 2, ranks - 1};
  std::vector<int> roots(static_cast<std::size_t>(ranks));
  std::iota(roots.begin(), roots.end(), 0);
  return roots;
}

void check_one(CheckRun& run, ScheduleQuery query, const std::vector<int>& sizes) {
  const bool rooted = base::traits_of(query.operation).rooted();
  const std::uint64_t before = run.proved, wrong = run.wrong;
  for (const int ranks : sizes) {
    query.ranks = ranks;
    run.progress(query);
    for (const int root : rooted ? checked_roots(ranks) : std::vector<int>{0}) {
      query.root = root;
      run.prove(query);
    }
  }
  run.clear_progress();
  print("{:<9} {:<14} {}\n", query.algorithm, name_of(query.operation),
        run.wrong == wrong
            ? fmt::format("{} cases proved", run.proved - before)
            : fmt::format("{} of {} cases wrong", run.wrong - wrong, run.proved - before));
}

int check_schedules(const PlanFlags& flags) {
  CheckRun run;
  run.options.segments = parse_number("--segments", flags.segments, 1, 1000);
  run.options.credits =
      static_cast<std::uint32_t>(parse_number("--credits", flags.credits, 0, 1'000'000));
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
    for (const std::string& name : names) {
      run.hosts = checked_hosts(flags, name);
      if (flags.algorithm.empty() || flags.algorithm == name)
        check_one(run,
                  {.operation = operation, .algorithm = name, .ranks = 1, .root = 0, .hosts = {}},
                  sizes);
    }
  }
  if (run.proved == 0)
    throw UsageError(fmt::format(
        "--algorithm {}: no operation has it; possible are ring, tree, star, doubling, chain, "
        "pairwise, halving, two_shot, two_level",
        flags.algorithm));
  print("{} cases, {} wrong\n", run.proved, run.wrong);
  return run.wrong == 0 ? exit_fine : exit_missed;
}

void run_explanation(const PlanFlags& flags) {
  PlanQuery query;
  query.operation = chosen_operations(flags, false).front();
  query.bytes = parse_bytes("--bytes", flags.bytes);
  query.ranks = chosen_ranks(flags);
  if (const std::vector<int> hosts = hosts_of(host_flags(flags), query.ranks); !hosts.empty()) {
    query.hosts = *std::max_element(hosts.begin(), hosts.end()) + 1;
    for (int host = 0; host < query.hosts; ++host)
      query.ranks_per_host = std::max(
          query.ranks_per_host, static_cast<int>(std::count(hosts.begin(), hosts.end(), host)));
  }
  query.cores_per_host = parse_int("--cores", flags.cores, 0, 100'000);
  query.algorithm = flags.algorithm;
  if (!flags.depth.empty()) query.depth = parse_int("--depth", flags.depth, 1, 100'000);
  if (!flags.segment.empty()) query.segment_bytes = parse_bytes("--segment-bytes", flags.segment);
  if (!flags.constants.empty()) query.constants = read_constants(flags.constants);
  query.reproducible = flags.reproducible;
  explain(query, flags.json);
}

void run_simulation(const PlanFlags& flags) {
  simulate(flags.simulation, {.operation = chosen_operations(flags, false).front(),
                              .bytes = flags.bytes,
                              .algorithms = flags.algorithm,
                              .ranks = flags.ranks,
                              .root = flags.root,
                              .ranks_per_host = flags.ranks_per_host,
                              .cores = flags.cores,
                              .depth = flags.depth,
                              .segment = flags.segment,
                              .json = flags.json,
                              .reproducible = flags.reproducible});
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "plan",
      "Print the schedule of an operation, prove schedules, or explain the planner's choice");
  auto flags = std::make_shared<PlanFlags>();
  auto* check = command->add_flag(
      "--check", flags->check,
      "Prove schedules; without other flags all of them, with 1 to 33, 64, 100 and 128 ranks");
  auto* explained = command->add_flag("--explain", flags->explain,
                                      "Show the candidates for --bytes with their predicted times");
  explained->excludes(check);
  command
      ->add_flag("--simulate", flags->simulate,
                 "Run the schedules of all ranks against a model of hosts and links "
                 "(docs/reference/simulator.md)")
      ->excludes(check)
      ->excludes(explained);
  command->add_option("operation,--operation", flags->operation,
                      "all_reduce (default), reduce, broadcast, all_gather, reduce_scatter, "
                      "barrier, gather, scatter, "
                      "all_to_all, all_gather_v or reduce_scatter_v");
  command->add_option(
      "--algorithm", flags->algorithm,
      "ring, tree, star, doubling, chain, pairwise, halving, two_shot or two_level; "
      "several with commas for --simulate");
  command->add_option("--ranks", flags->ranks, "Number of ranks (default 4)");
  command->add_option("--root", flags->root,
                      "Print, simulate: root of reduce, broadcast, gather and scatter (default 0)");
  command->add_option("--rank", flags->rank, "Print: this rank only");
  command->add_option("--segments", flags->segments, "Check: segments of the buffer (default 12)");
  command->add_option("--depth", flags->depth, "Segments in flight");
  command->add_option("--credits", flags->credits,
                      "Check: frames that a link holds before the receiver takes them (default 1)");
  command->add_option("--bytes", flags->bytes,
                      "Explain, simulate: size of the whole buffer (default 64M)");
  command->add_option(
      "--ranks-per-host", flags->ranks_per_host,
      "Ranks on each host: one number (0 means all, or 1 with --simulate), or a list such as 3,5 "
      "with a number for each host (not with --simulate)");
  command->add_option(
      "--cores", flags->cores,
      "Cores of each host; 0 means as many as here, or with --simulate one for each rank");
  command->add_flag("--reproducible", flags->reproducible,
                    "Only algorithms that sum in rank order");
  command->add_option("--segment-bytes", flags->segment,
                      "Explain, simulate: bytes of a segment (default: the planner chooses)");
  command->add_option(
      "--json", flags->json,
      "Explain, simulate: write the results to this file as JSON; - is the standard "
      "output, without the table");
  command->add_option("--constants", flags->constants,
                      "Explain: use the costs in this file, from rondo bench --write-constants");
  add_simulate_flags(*command, flags->simulation);
  command->callback([flags, &exit_code] {
    exit_code = exit_fine;
    try {
      if (flags->check)
        exit_code = check_schedules(*flags);
      else if (flags->simulate)
        run_simulation(*flags);
      else if (flags->explain)
        run_explanation(*flags);
      else
        print_schedule(*flags);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  });
}

}  // namespace rondo::tools
