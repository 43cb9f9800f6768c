// SPDX-License-Identifier: Apache-2.0
//
// The commands of `rondo plan`: print a schedule, prove schedules, explain the planner's choice,
// simulate. Here flags become a query; the public functions of rondo/plan.h answer it.
#include "tools/plan/plan.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "base/traits.h"
#include "tools/shared/commands.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/lists.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::uint64_t most_ranks_of_plan = 100'000;

std::vector<int> counts_of(const HostFlags& flags) {
  std::vector<int> counts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = flags.ranks_per_host.find(',', begin);
    const std::string part =
        flags.ranks_per_host.substr(begin, end == std::string::npos ? end : end - begin);
    counts.push_back(parse_int("--ranks-per-host", part, 0, most_ranks_of_plan));
  }
  return counts;
}

bool lists(const HostFlags& flags) {
  return flags.ranks_per_host.find(',') != std::string::npos;
}

// Whether the flags give a number of hosts or of ranks on a host.
bool any(const HostFlags& flags) {
  return !flags.hosts.empty() || lists(flags) || counts_of(flags).front() > 0;
}

// The number of ranks when --ranks-per-host is a list, otherwise 0.
int ranks_of(const HostFlags& flags) {
  if (!lists(flags)) return 0;
  const std::vector<int> counts = counts_of(flags);
  if (contains(counts, 0))
    throw UsageError(
        fmt::format("--ranks-per-host {}: a host has at least one rank", flags.ranks_per_host));
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (sum > most_ranks_of_plan)
    throw UsageError(fmt::format("--ranks-per-host {}: too many ranks", flags.ranks_per_host));
  return static_cast<int>(sum);
}

// The host of each rank; empty unless any().
std::vector<int> hosts_of(const HostFlags& flags, int ranks) {
  if (!any(flags)) return {};
  std::vector<int> hosts;
  if (const int listed = ranks_of(flags); listed > 0) {
    if (listed != ranks || !flags.hosts.empty())
      throw UsageError(
          fmt::format("--ranks-per-host {}: this list places {} ranks; leave out --ranks and "
                      "--hosts",
                      flags.ranks_per_host, listed));
    int host = 0;
    for (const int count : counts_of(flags))
      hosts.insert(hosts.end(), static_cast<std::size_t>(count), host++);
    return hosts;
  }
  const int each = counts_of(flags).front();
  int count = flags.hosts.empty() ? (ranks - 1) / std::max(1, each) + 1
                                  : parse_int("--hosts", flags.hosts, 1, most_ranks_of_plan);
  count = std::min(count, ranks);
  if (each > 0 && (count != (ranks - 1) / each + 1))
    throw UsageError(
        fmt::format("--ranks-per-host {}: does not fit {} ranks on {} hosts", each, ranks, count));
  const auto share = [&](int rank) {
    return static_cast<int>(static_cast<std::int64_t>(rank) * count / ranks);
  };
  for (int rank = 0; rank < ranks; ++rank)
    hosts.push_back(flags.placement == "turns" ? rank % count
                    : each > 0                 ? rank / each
                                               : share(rank));
  return hosts;
}

std::vector<Collective> chosen_operations(const PlanFlags& flags, bool all) {
  std::vector<Collective> operations;
  if (flags.operation.empty() && !all) return {Collective::all_reduce};
  for (int i = 0; i < collective_count; ++i)
    if (const auto each = static_cast<Collective>(i); !list_algorithms(each).empty())
      operations.push_back(each);
  if (flags.operation.empty()) return operations;
  const auto operation = parse_collective(flags.operation);
  if (operation && contains(operations, *operation)) return {*operation};
  std::vector<std::string> names;
  names.reserve(operations.size());
  for (const Collective each : operations) names.emplace_back(name_of(each));
  refuse_unknown("operation", flags.operation, names);
}

int chosen_ranks(const PlanFlags& flags) {
  if (!flags.ranks.empty()) return parse_int("--ranks", flags.ranks, 1, 100'000);
  const int listed = ranks_of(flags.hosts);
  return listed > 0 ? listed : 4;
}

void print_schedule(const PlanFlags& flags) {
  ScheduleQuery query;
  query.operation = chosen_operations(flags, false).front();
  query.algorithm =
      flags.algorithm.empty() ? list_algorithms(query.operation).front() : flags.algorithm;
  query.ranks = chosen_ranks(flags);
  query.hosts = hosts_of(flags.hosts, query.ranks);
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
      const auto host = std::ranges::max_element(query.hosts);
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
  if (const int listed = ranks_of(flags.hosts); listed > 0) return {listed};
  std::vector<int> sizes;
  for (int ranks = 1; ranks <= 33; ++ranks) sizes.push_back(ranks);
  for (const int ranks : {64, 100, 128}) sizes.push_back(ranks);
  return sizes;
}

// Without flags all ranks are on one host, but two_level is proved on several.
std::vector<HostFlags> checked_hosts(const PlanFlags& flags, const std::string& algorithm) {
  if (any(flags.hosts) || algorithm != "two_level") return {flags.hosts};
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
    const bool known = contains(names, flags.algorithm);
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
  if (const std::vector<int> hosts = hosts_of(flags.hosts, query.ranks); !hosts.empty()) {
    query.hosts = *std::ranges::max_element(hosts) + 1;
    for (int host = 0; host < query.hosts; ++host)
      query.ranks_per_host =
          std::max(query.ranks_per_host, static_cast<int>(std::ranges::count(hosts, host)));
  }
  query.cores_per_host = parse_int("--cores", flags.cores, 0, 100'000);
  query.algorithm = flags.algorithm;
  if (!flags.depth.empty()) query.depth = parse_int("--depth", flags.depth, 1, 100'000);
  if (!flags.segment.empty()) query.segment_bytes = parse_bytes("--segment-bytes", flags.segment);
  if (!flags.constants.empty()) query.constants = read_constants(flags.constants);
  query.reproducible = flags.reproducible;
  explain(query, flags.json);
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
      "--ranks-per-host", flags->hosts.ranks_per_host,
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
  add_simulate_flags(*command, *flags);
  command->callback([flags, &exit_code] {
    exit_code = exit_fine;
    try {
      if (flags->check)
        exit_code = check_schedules(*flags);
      else if (flags->simulate)
        simulate(*flags, chosen_operations(*flags, false).front());
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
