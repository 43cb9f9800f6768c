// SPDX-License-Identifier: Apache-2.0
#include "tools/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/records/result_file.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PlanLinkCosts, latency_s, seconds_per_byte, frame_s)
}

namespace rondo::tools {
namespace {

using Term = std::pair<const char*, double PlanCandidate::*>;
constexpr std::array<Term, 4> terms{{{"latency", &PlanCandidate::latency_seconds},
                                     {"bytes", &PlanCandidate::byte_seconds},
                                     {"frames", &PlanCandidate::frame_seconds},
                                     {"reduction", &PlanCandidate::reduce_seconds}}};

// "1.8 ms more: bytes +1.9 ms, latency -0.1 ms": the terms that make the difference, the largest
// first.
std::string compare(const PlanCandidate& chosen, const PlanCandidate& other) {
  const double more = other.seconds - chosen.seconds;
  if (more < 0)
    return "faster here, but not chosen: as sizes grow, an algorithm once left does not come back";
  std::vector<std::pair<double, const char*>> differences;
  for (const auto& [name, term] : terms) {
    const double difference = other.*term - chosen.*term;
    if (std::abs(difference) >= 0.05 * more) differences.emplace_back(difference, name);
  }
  std::ranges::sort(differences, [](const auto& a, const auto& b) {
    return std::abs(a.first) > std::abs(b.first);
  });
  std::string text;
  for (const auto& [difference, name] : differences)
    text += fmt::format("{}{} {}{}", text.empty() ? ": " : ", ", name, difference < 0 ? "-" : "+",
                        format_seconds(std::abs(difference)));
  return fmt::format("{} more{}", format_seconds(more), text);
}

nlohmann::json to_json(const PlanQuery& query, const std::vector<PlanCandidate>& candidates) {
  nlohmann::json rows = nlohmann::json::array();
  for (const PlanCandidate& c : candidates) {
    nlohmann::json row = {
        {"algorithm", c.algorithm},
        {"segment_bytes", c.segment_bytes},
        {"depth", c.depth},
        {"seconds", c.seconds},
        {"why", &c == &candidates.front() ? "chosen" : compare(candidates.front(), c)}};
    for (const auto& [name, term] : terms) row[fmt::format("{}_seconds", name)] = c.*term;
    rows.push_back(row);
  }
  return {{"operation", name_of(query.operation)},
          {"bytes", query.bytes},
          {"ranks", query.ranks},
          {"hosts", query.hosts},
          {"ranks_per_host", query.ranks_per_host},
          {"cores_per_host", query.cores_per_host},
          {"reproducible", query.reproducible},
          {"constants",
           {{"host", query.constants.host},
            {"network", query.constants.network},
            {"reduce_seconds_per_byte", query.constants.reduce_seconds_per_byte}}},
          {"candidates", rows}};
}

void print_table(const PlanQuery& query, const std::vector<PlanCandidate>& candidates) {
  print("{} of {} over {} ranks on {}\n", name_of(query.operation),
        base::describe_bytes(query.bytes), query.ranks,
        query.hosts > 1 ? fmt::format("{} hosts", query.hosts) : "one host");
  print("{:<10} {:>10} {:>5} {:>11} {:>11} {:>11} {:>11} {:>11}  {}\n", "algorithm", "segment",
        "depth", "predicted", "latency", "bytes", "frames", "reduction", "why");
  for (const PlanCandidate& c : candidates)
    print("{:<10} {:>10} {:>5} {:>11} {:>11} {:>11} {:>11} {:>11}  {}\n", c.algorithm,
          base::describe_bytes(c.segment_bytes), c.depth, format_seconds(c.seconds),
          format_seconds(c.latency_seconds), format_seconds(c.byte_seconds),
          format_seconds(c.frame_seconds), format_seconds(c.reduce_seconds),
          &c == &candidates.front() ? "<- chosen" : compare(candidates.front(), c));
}

}  // namespace

void explain(const PlanQuery& query, const std::string& json) {
  const std::vector<PlanCandidate> candidates = explain_plan(query);
  if (!json.empty()) write_report("--json", json, to_json(query, candidates).dump(2) + "\n");
  if (!is_standard_output(json)) print_table(query, candidates);
}

}  // namespace rondo::tools
