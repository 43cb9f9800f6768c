// SPDX-License-Identifier: Apache-2.0
#include <rondo/plan.h>

#include <fmt/format.h>

#include <rondo/error.h>
#include <rondo/options.h>

#include "base/cores.h"
#include "collectives/plan/planner.h"
#include "collectives/proof/checker.h"
#include "collectives/schedules/schedule.h"
#include "lib/plan_checks.h"
#include "lib/settings/settings.h"
#include "lib/wire/constants.h"

namespace rondo {

namespace {

constexpr int most_ranks = 1'000'000, most_checked_ranks = 1024;
constexpr std::uint64_t most_checked_segments = 1000;

std::string join_algorithms(Collective operation) {
  std::string text;
  for (const std::string& name : list_algorithms(operation))
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

schedules::Algorithm check_query(const ScheduleQuery& query, int limit) {
  lib::require_between("ranks", query.ranks, 1, limit);
  lib::require_between("root", query.root, 0, query.ranks - 1);
  if (!query.hosts.empty() && query.hosts.size() != static_cast<std::size_t>(query.ranks))
    throw Error(Errc::invalid_argument,
                fmt::format("hosts has {} elements, but there are {} ranks: give one for each rank",
                            query.hosts.size(), query.ranks));
  return lib::find_algorithm(query.algorithm, query.operation);
}

PlanConstants without_links(PlanConstants constants, double PlanLinkCosts::*cost) {
  constants.host.*cost = constants.network.*cost = 0;
  return constants;
}

std::string describe(const schedules::Step& step, std::uint32_t slices) {
  const std::string what = step.slice == slices ? "token" : fmt::format("slice {}", step.slice);
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (step.from != schedules::no_rank) add(fmt::format("receive {} from {}", what, step.from));
  if (step.reduce) add("reduce");
  if (step.keep) add(step.from == schedules::no_rank ? "keep " + what : "keep");
  if (step.to != schedules::no_rank)
    add(text.empty() ? fmt::format("send {} to {}", what, step.to)
                     : fmt::format("send to {}", step.to));
  return fmt::format("round {}: {}", step.round, text);
}

}  // namespace

schedules::Algorithm lib::find_algorithm(std::string_view name, Collective operation) {
  const auto algorithm = schedules::parse_algorithm(name);
  if (!algorithm)
    throw Error(Errc::invalid_argument,
                fmt::format("algorithm is '{}'; possible for {}: {}", name, name_of(operation),
                            join_algorithms(operation)));
  if (!schedules::supports(*algorithm, operation))
    throw Error(Errc::unsupported,
                fmt::format("algorithm {} does not exist for {}; possible: {}", name,
                            name_of(operation), join_algorithms(operation)));
  return *algorithm;
}

void lib::require_between(std::string_view name, std::int64_t value, std::int64_t first,
                          std::int64_t last) {
  if (value < first || value > last)
    throw Error(Errc::invalid_argument,
                fmt::format("{} is {}; possible are {} to {}", name, value, first, last));
}

std::vector<std::string> list_algorithms(Collective operation) {
  std::vector<std::string> names;
  for (int i = 0; i < schedules::algorithm_count; ++i)
    if (const auto algorithm = static_cast<schedules::Algorithm>(i);
        schedules::supports(algorithm, operation))
      names.emplace_back(schedules::name_of(algorithm));
  return names;
}

std::vector<std::string> describe_schedule(const ScheduleQuery& query, int rank) {
  const schedules::Algorithm algorithm = check_query(query, most_ranks);
  lib::require_between("rank", rank, 0, query.ranks - 1);
  const schedules::Schedule schedule = schedules::make_schedule(
      algorithm, query.operation, rank, query.ranks, query.root, schedules::Hosts(query.hosts));
  std::vector<std::string> lines;
  for (const schedules::Step& step : schedule.steps)
    lines.push_back(describe(step, schedule.slices));
  return lines;
}

ScheduleProof check_schedule(const ScheduleQuery& query, const ScheduleCheck& options) {
  const schedules::Algorithm algorithm = check_query(query, most_checked_ranks);
  lib::require_between("segments", static_cast<std::int64_t>(options.segments), 1,
                       most_checked_segments);
  lib::require_between("depth", options.depth, 1, 1'000'000);
  const schedules::Hosts hosts(query.hosts);
  std::vector<schedules::Schedule> schedules;
  schedules.reserve(static_cast<std::size_t>(query.ranks));
  for (int rank = 0; rank < query.ranks; ++rank)
    schedules.push_back(
        schedules::make_schedule(algorithm, query.operation, rank, query.ranks, query.root, hosts));
  proof::CheckOptions proof_options{
      .segments = options.segments, .depth = options.depth, .credits = options.credits};
  proof::CheckReport report = proof::check(schedules, query.operation, query.root, proof_options);
  if (report.ok()) {
    proof_options.in_place = true;
    report = proof::check(schedules, query.operation, query.root, proof_options);
  }
  return {report.problem, schedules.front().slices, report.rounds, report.slices_sent};
}

std::vector<PlanCandidate> explain_plan(const PlanQuery& query) {
  lib::require_between("ranks", query.ranks, 1, most_ranks);
  lib::require_between("ranks per host", query.ranks_per_host, 0, query.ranks);
  lib::require_between("hosts", query.hosts, 0, query.ranks);
  lib::require_between("cores per host", query.cores_per_host, 0, most_ranks);
  lib::require_between("depth", query.depth, 0, most_ranks);
  plan::Topology topology{.ranks = query.ranks,
                          .ranks_per_host = query.ranks_per_host,
                          .cores_per_host = query.cores_per_host};
  if (topology.ranks_per_host == 0) topology.ranks_per_host = query.ranks;
  topology.hosts = query.hosts > 0 ? query.hosts : (query.ranks - 1) / topology.ranks_per_host + 1;
  if (topology.cores_per_host == 0) topology.cores_per_host = base::usable_cores();
  plan::PlanOptions options{.algorithm = std::nullopt,
                            .segment_bytes = query.segment_bytes,
                            .depth = query.depth,
                            .staging_bytes = settings::default_staging_bytes / lane_count,
                            .reproducible = query.reproducible};
  if (!query.algorithm.empty())
    options.algorithm = lib::find_algorithm(query.algorithm, query.operation);
  const PlanConstants& constants = query.constants;
  if (!wire::is_sane(constants))
    throw Error(Errc::invalid_argument,
                "the constants are out of range: " + format_constants(constants));
  std::vector<PlanCandidate> candidates;
  for (const plan::Plan& plan :
       plan::list_plans(query.operation, query.bytes, topology, constants, options)) {
    const auto saved = [&](const PlanConstants& without) {
      plan::PlanOptions same = options;
      same.algorithm = plan.algorithm;
      same.segment_bytes = plan.segment_bytes;
      same.depth = plan.depth;
      const auto seconds = [&](const PlanConstants& c) {
        return plan::choose_plan(query.operation, query.bytes, topology, c, same).seconds;
      };
      return seconds(constants) - seconds(without);
    };
    candidates.push_back(
        {.algorithm = std::string(schedules::name_of(plan.algorithm)),
         .segment_bytes = plan.segment_bytes,
         .depth = plan.depth,
         .seconds = plan.seconds,
         .latency_seconds = saved(without_links(constants, &PlanLinkCosts::latency_s)),
         .byte_seconds = saved(without_links(constants, &PlanLinkCosts::seconds_per_byte)),
         .frame_seconds = saved(without_links(constants, &PlanLinkCosts::frame_s)),
         .reduce_seconds = saved({constants.host, constants.network, 0})});
  }
  return candidates;
}

}  // namespace rondo
