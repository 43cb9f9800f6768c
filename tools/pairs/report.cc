// SPDX-License-Identifier: Apache-2.0
//
// The words, tables and pictures for what a Survey has found. Each value is written by one
// function, so that a table, a sentence and the record show the same.
#include "tools/pairs/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "tools/plots/heat_map.h"
#include "tools/shared/output.h"

namespace rondo::tools {
namespace {

// Two medians this close are one number in a sentence.
constexpr double alike = 0.1;

constexpr std::size_t most_in_a_matrix = 12;
constexpr std::size_t name_width = 14;

std::string_view unit_of(Quantity quantity) {
  return quantity == Quantity::bandwidth ? "GB/s" : quantity == Quantity::latency ? "us" : "%";
}

std::string cell(const Survey& survey, Quantity quantity, std::size_t from, std::size_t to) {
  const double value = survey.of(quantity).at(from, to);
  if (std::isnan(value)) return "-";
  const std::string text = quantity == Quantity::latency && value >= 1000
                               ? fmt::format("{:.0f}", value)
                               : fmt::format("{:.3g}", value);
  return survey.is_out(quantity, from, to) ? text + "*" : text;
}

void print_matrix(const Survey& survey, const Words& words, Quantity quantity) {
  const auto ends = survey.ends();
  print("#\n# {} ({}){}; rows: from, columns: to; *: an outlier\n", name_of(quantity),
        unit_of(quantity),
        quantity == Quantity::latency  ? ", half of a round trip of 8 bytes"
        : quantity == Quantity::resent ? " of TCP segments, because the network lost them"
                                       : "");
  print("#{:>5} {:<{}}", "rank", "host", name_width);
  for (const End& end : ends) print(" {:>7}", end.rank);
  print("\n");
  for (std::size_t from = 0; from < ends.size(); ++from) {
    print(" {:>5} {:<{}}", ends[from].rank, base::first_bytes(words.host_of(from), name_width),
          name_width);
    for (std::size_t to = 0; to < ends.size(); ++to)
      print(" {:>7}", cell(survey, quantity, from, to));
    print("\n");
  }
}

void print_quantiles(const Survey& survey, const Survey::Judgement& judgement) {
  std::vector<double> values;
  for_each_value(survey.of(judgement.quantity), survey.ends(), judgement.where,
                 [&](std::size_t, std::size_t, double value) { values.push_back(value); });
  if (values.empty()) return;
  std::ranges::sort(values);
  const auto at = [&](double share) {
    return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
  };
  print("#{:>10} {:<14} {:>9.3g} {:>9.3g} {:>9.3g} {:>9.3g} {:>9.3g}  {}\n",
        name_of(judgement.quantity), name_of(judgement.where), at(0), at(0.1), at(0.5), at(0.9),
        at(1), unit_of(judgement.quantity));
}

std::string heading_of(const Survey::Judgement& judgement) {
  std::string name(name_of(judgement.quantity));
  return fmt::format("{} {}", name, name_of(judgement.where));
}

void print_summary(const Survey& survey, const Words& words) {
  print("#\n");
  for (const Survey::Judgement& judgement : survey.judgements()) {
    const auto& [quantity, where, scale] = judgement;
    const std::string spread =
        quantity == Quantity::resent
            ? ""
            : fmt::format(" ({:+.0f} %)",
                          scale.spread(quantity) * (quantity == Quantity::bandwidth ? -1 : 1));
    print("# {:<23}: median {}, worst {}{}: {}\n", heading_of(judgement),
          value_of(quantity, scale.median), value_of(quantity, scale.worst), spread,
          worst_link(survey, words, judgement));
  }
  if (survey.measured_again() > 0)
    print("# {:<23}: {} measurements of pairs\n", "Measured again", survey.measured_again());
}

// Warns where links are too few to tell which one is slow.
void print_limits_of(const Survey& survey) {
  for (const Survey::Judgement& judgement : survey.judgements()) {
    if (judgement.quantity != Quantity::bandwidth || judgement.scale.links > 3) continue;
    if (judgement.scale.links == 1)
      print("# One link {}: there is no other to compare it with\n", name_of(judgement.where));
    else if (judgement.scale.links == 3)
      print("# Three links {}: two bad links look the same as the end that they share\n",
            name_of(judgement.where));
  }
}

Json side_of(const Finding::Side& side) {
  return {{"out", side.out}, {"links", side.links}, {"value", rounded(side.value, 1e6)}};
}

std::string_view name_of(Finding::Kind kind) {
  if (kind == Finding::Kind::host) return "host";
  return kind == Finding::Kind::end ? "rank" : "link";
}

Json json_of(const Finding& finding, const Survey& survey, const Words& words) {
  Json json{{"what", tools::name_of(finding.quantity)},
            {"links", tools::name_of(finding.where)},
            {"kind", name_of(finding.kind)}};
  const auto rank_of = [&](std::size_t end) { return survey.ends()[end].rank; };
  if (finding.kind == Finding::Kind::host)
    json["host"] = finding.subject;
  else
    json["rank"] = rank_of(finding.subject);
  if (finding.kind == Finding::Kind::link) json["to_rank"] = rank_of(finding.other);
  json["from"] = side_of(finding.from);
  if (finding.quantity != Quantity::latency) json["to"] = side_of(finding.to);
  json["others"] = rounded(finding.others, 1e6);
  json["text"] = words.sentence(finding);
  return json;
}

}  // namespace

std::string_view name_of(Where where) noexcept {
  return where == Where::between ? "between hosts" : "within hosts";
}

std::string_view name_of(Quantity quantity) noexcept {
  return quantity == Quantity::bandwidth ? "bandwidth"
         : quantity == Quantity::latency ? "latency"
                                         : "resent";
}

std::string value_of(Quantity quantity, double value) {
  if (quantity == Quantity::bandwidth) return fmt::format("{:.3g} GB/s", value);
  if (quantity == Quantity::resent) return fmt::format("{:.2g} % of segments", value);
  if (value < 1e3) return fmt::format("{:.3g} us", value);
  return value < 1e6 ? fmt::format("{:.3g} ms", value / 1e3) : fmt::format("{:.3g} s", value / 1e6);
}

std::string Words::end(std::size_t end) const {
  const int rank = ends_[end].rank;
  return every_rank_ ? fmt::format("rank {} (host {})", rank, host_of(end))
                     : fmt::format("{} (rank {})", host_of(end), rank);
}

std::string Words::link(Quantity quantity, std::size_t from, std::size_t to) const {
  return fmt::format("{} {} {}", end(from), quantity == Quantity::latency ? "-" : "->", end(to));
}

std::string Words::about_link(const Finding& finding) const {
  std::string text =
      fmt::format("link {}: {}", link(finding.quantity, finding.subject, finding.other),
                  value_of(finding.quantity, finding.from.value));
  if (finding.quantity != Quantity::latency && !std::isnan(finding.to.value))
    text += fmt::format(", back {}", value_of(finding.quantity, finding.to.value));
  return text;
}

// "every other host", "5 of 7 other hosts"
std::string Words::others(const Finding& finding, const Finding::Side& side) const {
  const bool every = side.out == side.links;
  std::string what = finding.where == Where::within ? "other ranks of its host"
                     : every_rank_                  ? "ranks of other hosts"
                                                    : "other hosts";
  // With several ranks on a host each pair of ranks counts.
  if (every_rank_ && finding.kind == Finding::Kind::host) what = "links to other hosts";
  if (!every) return fmt::format("{} of {} {}", side.out, side.links, what);
  if (finding.where == Where::within) return "every other rank of its host";
  return every_rank_ ? "every rank of other hosts" : "every other host";
}

std::string Words::about_group(const Finding& finding) const {
  const auto value = [&](const Finding::Side& side) {
    return value_of(finding.quantity, side.value);
  };
  std::string text;
  if (finding.kind == Finding::Kind::host) {
    const HostRecord& host = hosts_[finding.subject];
    text = fmt::format("host {} ({} {}): ", host.name, host.ranks.size() == 1 ? "rank" : "ranks",
                       ranks_of(host));
  } else {
    text = end(finding.subject) + ": ";
  }
  const Finding::Side &from = finding.from, &to = finding.to;
  if (from.out == 0) return text + fmt::format("{} from {}", value(to), others(finding, to));
  if (to.out == 0) return text + fmt::format("{} to {}", value(from), others(finding, from));
  const bool one = std::abs(from.value - to.value) <= alike * std::max(from.value, to.value);
  if (one && from.out == to.out)
    return text + fmt::format("{} to and from {}", value(from), others(finding, from));
  return text + fmt::format("{} to {}, {} from {}", value(from), others(finding, from), value(to),
                            others(finding, to));
}

std::string Words::sentence(const Finding& finding) const {
  const std::string text =
      finding.kind == Finding::Kind::link ? about_link(finding) : about_group(finding);
  return fmt::format("{}, others {}", text, value_of(finding.quantity, finding.others));
}

std::string worst_link(const Survey& survey, const Words& words,
                       const Survey::Judgement& judgement) {
  std::string worst;
  for_each_value(survey.of(judgement.quantity), survey.ends(), judgement.where,
                 [&](std::size_t from, std::size_t to, double value) {
                   if (worst.empty() && value == judgement.scale.worst)
                     worst = words.link(judgement.quantity, from, to);
                 });
  return worst;
}

void print_survey(const Survey& survey, const Words& words) {
  if (survey.ends().size() <= most_in_a_matrix) {
    print_matrix(survey, words, Quantity::bandwidth);
    print_matrix(survey, words, Quantity::latency);
    if (std::ranges::any_of(survey.of(Quantity::resent).values(), [](double v) { return v > 0; }))
      print_matrix(survey, words, Quantity::resent);
  } else {
    print("#\n#{:>10} {:<14} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "", "links", "least", "p10", "p50",
          "p90", "most");
    for (const Survey::Judgement& judgement : survey.judgements())
      print_quantiles(survey, judgement);
  }
  print_summary(survey, words);
  print_limits_of(survey);
  const std::vector<Finding> findings = survey.findings();
  print("# {:<23}: {}\n", "Outliers", findings.empty() ? "none" : std::to_string(findings.size()));
  for (const Finding& finding : findings)
    print("#   {} {}\n", tools::name_of(finding.quantity), words.sentence(finding));
  flush_output();
}

Json row_of(const Measured& measured, const Survey& survey, const Words& words) {
  const End& from = survey.ends()[measured.from];
  const End& to = survey.ends()[measured.to];
  std::string outlier;
  for (const Quantity quantity : {Quantity::bandwidth, Quantity::latency, Quantity::resent})
    if (survey.is_out(quantity, measured.from, measured.to))
      outlier += fmt::format("{}{}", outlier.empty() ? "" : ", ", tools::name_of(quantity));
  if (measured.is_lost) outlier = "lost";
  const auto if_known = [](bool known, double value, double steps) {
    return known ? Json(rounded(value, steps)) : Json(nullptr);
  };
  return {{"from", from.host},
          {"to", to.host},
          {"from_host", words.host_of(measured.from)},
          {"to_host", words.host_of(measured.to)},
          {"from_rank", from.rank},
          {"to_rank", to.rank},
          {"round", measured.round},
          {"bandwidth", if_known(measured.bandwidth > 0, measured.bandwidth, 1e6)},
          {"latency_us", if_known(measured.latency_us > 0, measured.latency_us, 1e3)},
          {"resent_percent", if_known(measured.resent >= 0, measured.resent, 1e4)},
          {"measured_again", measured.again},
          {"outlier", outlier.empty() ? Json(nullptr) : Json(outlier)}};
}

std::vector<std::string> columns_of_pairs() {
  return {"from",  "to",        "from_host",  "to_host",        "from_rank",      "to_rank",
          "round", "bandwidth", "latency_us", "resent_percent", "measured_again", "outlier"};
}

Json tail_of(const Survey& survey, const Words& words) {
  Json scales = Json::array(), findings = Json::array();
  for (const Survey::Judgement& judgement : survey.judgements())
    scales.push_back(
        {{"what", tools::name_of(judgement.quantity)},
         {"links", tools::name_of(judgement.where)},
         {"median", rounded(judgement.scale.median, 1e6)},
         {"deviation", rounded(judgement.scale.deviation, 1e6)},
         {"limit", std::isfinite(judgement.scale.limit) ? Json(rounded(judgement.scale.limit, 1e6))
                                                        : Json(nullptr)},
         {"worst", rounded(judgement.scale.worst, 1e6)}});
  for (const Finding& finding : survey.findings())
    findings.push_back(json_of(finding, survey, words));
  return {{"scales", std::move(scales)}, {"findings", std::move(findings)}};
}

std::string heat_maps_of(const Survey& survey, const Words& words, const std::string& title) {
  std::vector<HeatMap> maps;
  const auto ends = survey.ends();
  for (const Quantity quantity : {Quantity::bandwidth, Quantity::latency}) {
    const auto values = survey.of(quantity).values();
    HeatMap map{quantity == Quantity::bandwidth ? "Bandwidth" : "Latency",
                std::string(unit_of(quantity)),
                {},
                {values.begin(), values.end()},
                {},
                quantity == Quantity::bandwidth};
    for (std::size_t from = 0; from < ends.size(); ++from) {
      map.labels.push_back(fmt::format("{} ({})", words.host_of(from), ends[from].rank));
      for (std::size_t to = 0; to < ends.size(); ++to)
        map.framed.push_back(from != to && survey.is_out(quantity, from, to));
    }
    maps.push_back(std::move(map));
  }
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" + draw_heat_maps(title, maps).svg;
}

}  // namespace rondo::tools
