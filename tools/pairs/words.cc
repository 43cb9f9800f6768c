// SPDX-License-Identifier: Apache-2.0
#include "tools/pairs/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace rondo::tools {
namespace {

// Two medians this close are one number in a sentence.
constexpr double alike = 0.1;

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
  // Of a host with several ranks each pair of ranks counts.
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

}  // namespace rondo::tools
