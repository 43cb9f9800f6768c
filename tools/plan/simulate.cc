// SPDX-License-Identifier: Apache-2.0
#include "tools/plan/plan.h"

#include <fmt/format.h>
#include <rondo/plan.h>

#include <nlohmann/json.hpp>
#include <vector>

#include <rondo/error.h>

#include "base/text.h"
#include "tools/records/result_file.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

// In JSON these have the names of their fields.
namespace rondo {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Simulation, algorithm, segment_bytes, depth, segments, seconds,
                                   predicted_seconds, first_done_seconds, last_rank, critical_rank,
                                   critical_seconds, frames, bytes, link_bytes, busiest_link_bytes,
                                   busiest_host, busiest_link_share, mean_link_share,
                                   busiest_rank_share, mean_rank_share, stragglers, one_host)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SimulatedHosts, hosts, ranks_per_host, link_latency_s,
                                   link_bytes_per_s, link_burst_bytes, host_latency_s,
                                   host_bytes_per_s, frame_s, byte_s, reduce_bytes_per_s,
                                   cores_per_host)
}  // namespace rondo

namespace rondo::tools {
namespace {

constexpr std::uint64_t most_simulated = 1'000'000;

SimulatedHosts read_hosts(const PlanFlags& flags) {
  SimulatedHosts h;
  h.ranks_per_host = parse_int("--ranks-per-host", flags.hosts.ranks_per_host, 0, most_simulated);
  if (h.ranks_per_host == 0) h.ranks_per_host = 1;
  const auto per_host = static_cast<std::uint64_t>(h.ranks_per_host);
  if (!flags.hosts.hosts.empty()) {
    h.hosts = parse_int("--hosts", flags.hosts.hosts, 1, most_simulated / per_host);
  } else if (!flags.ranks.empty()) {
    const int ranks = parse_int("--ranks", flags.ranks, 1, most_simulated);
    if (ranks % h.ranks_per_host != 0)
      throw UsageError(fmt::format("--ranks {}: not a multiple of --ranks-per-host {}", ranks,
                                   h.ranks_per_host));
    h.hosts = ranks / h.ranks_per_host;
  }
  if (!flags.hosts.hosts.empty() && !flags.ranks.empty() &&
      parse_int("--ranks", flags.ranks, 1, most_simulated) != h.hosts * h.ranks_per_host)
    throw UsageError(fmt::format("--ranks {}: --hosts {} with {} ranks each gives {}", flags.ranks,
                                 h.hosts, h.ranks_per_host, h.hosts * h.ranks_per_host));
  if (flags.hosts.placement != "blocks" && flags.hosts.placement != "turns")
    throw UsageError(
        fmt::format("--placement {}: possible are blocks and turns", flags.hosts.placement));
  h.in_turns = flags.hosts.placement == "turns";
  h.link_latency_s = parse_seconds("--link-latency", flags.link_latency);
  h.link_bytes_per_s = parse_rate("--link-rate", flags.link_rate);
  h.link_burst_bytes = parse_bytes("--link-burst", flags.link_burst);
  h.host_latency_s = parse_seconds("--host-latency", flags.host_latency);
  h.host_bytes_per_s = parse_rate("--host-rate", flags.host_rate);
  h.frame_s = parse_seconds("--frame-cost", flags.frame_cost);
  h.byte_s = parse_seconds("--byte-cost", flags.byte_cost);
  h.reduce_bytes_per_s = parse_rate("--reduce-rate", flags.reduce_rate);
  h.cores_per_host = parse_int("--cores", flags.cores, 0, most_simulated);
  h.cores = parse_int("--shared-cores", flags.shared_cores, 0, most_simulated);
  return h;
}

SimulatedStragglers read_stragglers(const PlanFlags& flags) {
  return {.count = parse_int("--stragglers", flags.stragglers, 0, most_simulated),
          .hosts = flags.straggler_hosts,
          .factor = parse_positive("--straggler-factor", flags.straggler_factor),
          .delay_s = parse_seconds("--straggler-delay", flags.straggler_delay),
          .seed = parse_number("--seed", flags.seed, 0, UINT64_MAX)};
}

SimulationQuery read_query(const PlanFlags& flags, Collective operation) {
  SimulationQuery query;
  query.operation = operation;
  query.bytes = parse_bytes("--bytes", flags.bytes);
  query.hosts = read_hosts(flags);
  query.root = parse_int("--root", flags.root, 0,
                         static_cast<std::uint64_t>(query.hosts.hosts) *
                                 static_cast<std::uint64_t>(query.hosts.ranks_per_host) -
                             1);
  if (!flags.depth.empty()) query.depth = parse_int("--depth", flags.depth, 1, most_simulated);
  if (!flags.segment.empty()) query.segment_bytes = parse_bytes("--segment-bytes", flags.segment);
  query.reproducible = flags.reproducible;
  query.stragglers = read_stragglers(flags);
  return query;
}

struct Simulated {
  std::string algorithm, problem;  // problem: why it could not be simulated
  Simulation result;
};

std::vector<Simulated> simulate_all(SimulationQuery query, const std::string& algorithms) {
  std::vector<Simulated> rows;
  const bool listed = !algorithms.empty();
  for (const std::string& name :
       listed ? split(algorithms, ',') : list_algorithms(query.operation)) {
    query.algorithm = name;
    try {
      rows.push_back({name, {}, simulate_plan(query)});
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
      rows.push_back({name, error.what(), {}});
    }
  }
  return rows;
}

std::string percent(double share) {
  return fmt::format("{:.0f}%", 100 * share);
}

void print_table(const SimulationQuery& query, const std::vector<Simulated>& rows) {
  const SimulatedHosts& h = query.hosts;
  print("{} of {} over {} ranks on {} hosts\n", name_of(query.operation),
        base::describe_bytes(query.bytes), h.hosts * h.ranks_per_host, h.hosts);
  for (const Simulated& row : rows)
    if (row.problem.empty() && !row.result.stragglers.empty()) {
      print("stragglers: {}", query.stragglers.hosts ? "hosts" : "ranks");
      for (const int one : row.result.stragglers)
        print("{} {}", one == row.result.stragglers.front() ? "" : ",", one);
      print("\n");
      break;
    }
  print("{:<10} {:>10} {:>5} {:>11} {:>11} {:>9} {:>11} {:>11} {:>6} {:>6}  {}\n", "algorithm",
        "segment", "depth", "simulated", "formula", "frames", "link max", "links", "link", "rank",
        "critical");
  for (const Simulated& row : rows) {
    const Simulation& s = row.result;
    if (!row.problem.empty()) {
      print("{:<10} {}\n", row.algorithm, row.problem);
      continue;
    }
    print("{:<10} {:>10} {:>5} {:>11} {:>11} {:>9} {:>11} {:>11} {:>6} {:>6}  rank {}{}\n",
          s.algorithm, base::describe_bytes(s.segment_bytes), s.depth, format_seconds(s.seconds),
          format_seconds(s.predicted_seconds), s.frames, base::describe_bytes(s.busiest_link_bytes),
          base::describe_bytes(s.link_bytes), percent(s.busiest_link_share),
          percent(s.busiest_rank_share), s.critical_rank, s.one_host ? "; one host for all" : "");
  }
}

nlohmann::json to_json(const Simulated& row) {
  if (!row.problem.empty()) return {{"algorithm", row.algorithm}, {"problem", row.problem}};
  return row.result;
}

nlohmann::json to_json(const SimulationQuery& query, const std::vector<Simulated>& rows) {
  const SimulatedStragglers& s = query.stragglers;
  nlohmann::json json = query.hosts, results = nlohmann::json::array();
  for (const Simulated& row : rows) results.push_back(to_json(row));
  json.update({{"operation", name_of(query.operation)},
               {"bytes", query.bytes},
               {"root", query.root},
               {"placement", query.hosts.in_turns ? "turns" : "blocks"},
               {"shared_cores", query.hosts.cores},
               {"straggler_count", s.count},
               {"straggler_hosts", s.hosts},
               {"straggler_factor", s.factor},
               {"straggler_delay_s", s.delay_s},
               {"seed", s.seed},
               {"results", results}});
  return json;
}

}  // namespace

void add_simulate_flags(CLI::App& command, PlanFlags& flags) {
  const auto add = [&](const char* name, std::string& value, const std::string& text) {
    command.add_option(name, value, "Simulate: " + text)->capture_default_str();
  };
  command.add_option("--hosts", flags.hosts.hosts,
                     "Number of hosts (default: what --ranks and --ranks-per-host give, or 4 with "
                     "--simulate)");
  command
      .add_option("--placement", flags.hosts.placement,
                  "blocks: ranks of a host follow each other; turns: hosts take turns")
      ->capture_default_str();
  add("--link-latency", flags.link_latency, "latency of the network, without the frame costs");
  add("--link-rate", flags.link_rate, "payload rate of a host's link in each direction");
  add("--link-burst", flags.link_burst, "bytes that an idle link takes at once");
  add("--host-latency", flags.host_latency, "latency between ranks of one host");
  add("--host-rate", flags.host_rate, "rate of each rank to ranks of its host");
  add("--frame-cost", flags.frame_cost, "processor time of a frame, at each end");
  add("--byte-cost", flags.byte_cost, "processor time of a payload byte, at each end");
  add("--reduce-rate", flags.reduce_rate, "bytes combined per second");
  add("--shared-cores", flags.shared_cores,
      "cores that all hosts share, as network namespaces do; 0: they share none");
  add("--stragglers", flags.stragglers, "number of ranks that are slow or late, chosen by --seed");
  add("--straggler-factor", flags.straggler_factor, "factor by which stragglers are slower");
  add("--straggler-delay", flags.straggler_delay, "stragglers call the operation this much later");
  add("--seed", flags.seed, "seed of the random choice of stragglers");
  command.add_flag("--straggler-hosts", flags.straggler_hosts,
                   "Simulate: stragglers are whole hosts with their links");
}

void simulate(const PlanFlags& flags, Collective operation) {
  const SimulationQuery query = read_query(flags, operation);
  const std::vector<Simulated> rows = simulate_all(query, flags.algorithm);
  if (!flags.json.empty()) write_report("--json", flags.json, to_json(query, rows).dump(2) + "\n");
  if (!is_standard_output(flags.json)) print_table(query, rows);
}

}  // namespace rondo::tools
