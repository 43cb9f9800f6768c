// SPDX-License-Identifier: Apache-2.0
#include "tools/pairs/survey.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

constexpr Quantity quantities[] = {Quantity::bandwidth, Quantity::latency, Quantity::resent};
constexpr Where places[] = {Where::between, Where::within};
constexpr double unsteady_part = 0.1;

// Keeps the better of the two. Of times and rates only those above zero are measurements.
void keep_better(Quantity quantity, double value, double& kept) {
  if (!std::isfinite(value) || (quantity != Quantity::resent && value <= 0)) return;
  if (std::isnan(kept))
    kept = value;
  else
    kept = quantity == Quantity::bandwidth ? std::max(kept, value) : std::min(kept, value);
}

}  // namespace

Survey::Survey(std::span<const End> ends, const Thresholds& thresholds)
    : ends_(ends),
      thresholds_(thresholds),
      bandwidth_(ends.size()),
      latency_(ends.size()),
      resent_(ends.size()) {
  fix_scales();
}

void Survey::add(const Pair& pair, const PairValues& values) {
  const auto [first, second] = pair;
  keep_better(Quantity::bandwidth, values.forward, bandwidth_.at(first, second));
  keep_better(Quantity::bandwidth, values.back, bandwidth_.at(second, first));
  keep_better(Quantity::resent, values.forward_resent, resent_.at(first, second));
  keep_better(Quantity::resent, values.back_resent, resent_.at(second, first));
  keep_better(Quantity::latency, values.latency_us, latency_.at(first, second));
  latency_.at(second, first) = latency_.at(first, second);
}

void Survey::fix_scales() {
  for (const Quantity quantity : quantities)
    for (const Where where : places)
      scales_[{quantity, where}] = scale_of(quantity, of(quantity), ends_, where);
}

void Survey::update_medians() {
  for (auto& [of_what, scale] : scales_) {
    const auto [quantity, where] = of_what;
    const Scale now = scale_of(quantity, of(quantity), ends_, where);
    scale.median = now.median;
    scale.worst = now.worst;
  }
}

bool Survey::unsteady() const {
  return std::ranges::any_of(places, [&](Where where) {
    const Scale& scale = scales_.at({Quantity::bandwidth, where});
    return scale.deviation > unsteady_part * scale.median;
  });
}

bool Survey::is_out(Quantity quantity, std::size_t from, std::size_t to) const {
  const double value = of(quantity).at(from, to);
  return !std::isnan(value) && scale(quantity, where_of(from, to)).is_out(quantity, value);
}

bool Survey::misses(Quantity quantity, std::size_t from, std::size_t to) const {
  const double value = of(quantity).at(from, to);
  if (std::isnan(value) || quantity == Quantity::resent) return false;
  if (quantity == Quantity::latency)
    return thresholds_.max_latency && value > *thresholds_.max_latency;
  if (thresholds_.min_bandwidth && value < *thresholds_.min_bandwidth) return true;
  return thresholds_.max_spread &&
         value < scale(quantity, where_of(from, to)).median * (1 - *thresholds_.max_spread / 100);
}

bool Survey::misses_spread(const Judgement& judgement) const {
  return judgement.quantity == Quantity::bandwidth && thresholds_.max_spread &&
         judgement.scale.spread(judgement.quantity) > *thresholds_.max_spread;
}

std::vector<Pair> Survey::suspects() const {
  std::vector<Pair> pairs;
  for (std::size_t first = 0; first < ends_.size(); ++first)
    for (std::size_t second = first + 1; second < ends_.size(); ++second) {
      const bool suspect = std::ranges::any_of(quantities, [&](Quantity q) {
        return is_out(q, first, second) || is_out(q, second, first) || misses(q, first, second) ||
               misses(q, second, first);
      });
      if (suspect) pairs.push_back({first, second});
    }
  return pairs;
}

std::vector<Pair> Survey::single_suspects() const {
  std::vector<Pair> pairs;
  for (const Finding& finding : findings()) {
    if (finding.kind != Finding::Kind::link) continue;
    const auto [first, second] = std::minmax(finding.subject, finding.other);
    add_once(pairs, Pair{first, second});
  }
  return pairs;
}

std::vector<Finding> Survey::findings() const {
  std::vector<Finding> all;
  for (const Quantity quantity : quantities)
    for (const Where where : places) {
      auto found = find_outliers(quantity, of(quantity), scale(quantity, where), ends_, where);
      std::move(found.begin(), found.end(), std::back_inserter(all));
    }
  // A slow host loses some of what faster ones send until they have found its rate.
  const auto is_slow = [&](std::size_t end) {
    return std::ranges::any_of(all, [&](const Finding& one) {
      return one.quantity == Quantity::bandwidth && one.kind == Finding::Kind::host &&
             one.subject == ends_[end].host;
    });
  };
  std::vector<Finding> kept;
  std::ranges::copy_if(all, std::back_inserter(kept), [&](const Finding& one) {
    return one.quantity != Quantity::resent || one.kind != Finding::Kind::link ||
           (!is_slow(one.subject) && !is_slow(one.other));
  });
  return kept;
}

std::vector<Survey::Judgement> Survey::judgements() const {
  std::vector<Judgement> all;
  for (const auto& [of_what, scale] : scales_)
    if (scale.links > 0) all.push_back({of_what.first, of_what.second, scale});
  return all;
}

}  // namespace rondo::tools
