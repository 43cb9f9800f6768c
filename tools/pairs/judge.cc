// SPDX-License-Identifier: Apache-2.0
#include "tools/pairs/judge.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

// A value differs when it is this far from the median: a part of it, and for latency also so many
// microseconds, and in any case three standard deviations of values with a normal distribution,
// which are 1.4826 median deviations. It need not be worse than half of the median bandwidth, or
// three times the median latency and half a millisecond more.
constexpr double bandwidth_part = 0.15, latency_part = 0.2, latency_us = 20;
constexpr double deviations = 3 * 1.4826;
constexpr double bandwidth_cap = 0.5, latency_cap = 3, latency_cap_us = 500;
// Links that are full lose some segments. Many more than the others means a bad cable, port or NIC.
constexpr double resent_times = 3, resent_percent = 0.3;

// The median; for an even number of values, the smaller or the larger one in the middle.
double median_of(std::vector<double>& values, bool larger) {
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>((values.size() - (larger ? 0 : 1)) / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// The median over the ends of the median over each end's links. Of two values in the middle the
// better one counts. So with one bad host of three the median is that of a good link.
double repeated_median(const Matrix& values, std::span<const End> ends, Where where, bool larger,
                       const std::function<double(double)>& of) {
  std::vector<double> medians, own;
  for (std::size_t end = 0; end < ends.size(); ++end) {
    own.clear();
    for (std::size_t other = 0; other < ends.size(); ++other)
      if (is_where(ends, where, end, other))
        for (const double value : {values.at(end, other), values.at(other, end)})
          if (!std::isnan(value)) own.push_back(of(value));
    if (!own.empty()) medians.push_back(median_of(own, larger));
  }
  return medians.empty() ? 0 : median_of(medians, larger);
}

double limit_of(Quantity quantity, double median, double deviation) {
  if (quantity == Quantity::bandwidth)
    return std::max(bandwidth_cap * median,
                    median - std::max(bandwidth_part * median, deviations * deviation));
  if (quantity == Quantity::resent)
    return std::max(resent_times * median,
                    median + std::max(resent_percent, deviations * deviation));
  return std::min(latency_cap * median + latency_cap_us,
                  median + std::max({latency_part * median, latency_us, deviations * deviation}));
}

// An ordered pair of ends whose value is judged.
struct Judged {
  std::size_t from = 0, to = 0;
  double value = 0;
  bool out = false;
  bool named = false;  // by a finding
};

enum class Direction : unsigned char { from, to, either };

// Names hosts, ends and links, from the links that are left.
class Search {
 public:
  Search(Quantity quantity, const Matrix& values, const Scale& scale, std::span<const End> ends,
         Where where)
      : quantity_(quantity), values_(values), scale_(scale), ends_(ends), where_(where) {
    for_each_value(values, ends, where, [&](std::size_t from, std::size_t to, double value) {
      // A latency is that of both directions.
      if (quantity != Quantity::latency || from < to)
        links_.push_back({from, to, value, scale.is_out(quantity, value), false});
    });
  }

  std::vector<Finding> run() {
    const bool single = std::ranges::adjacent_find(ends_, {}, &End::host) == ends_.end();
    if (where_ == Where::between) name_groups(Finding::Kind::host);
    if (!single || where_ == Where::within) name_groups(Finding::Kind::end);
    for (const Judged& link : links_)
      if (link.out && !link.named) add_link(link);
    return std::move(findings_);
  }

 private:
  std::size_t subject_of(Finding::Kind kind, std::size_t end) const {
    return kind == Finding::Kind::host ? ends_[end].host : end;
  }

  bool is_of(const Judged& link, Finding::Kind kind, std::size_t subject,
             Direction direction) const {
    const bool sends = subject_of(kind, link.from) == subject;
    const bool receives = subject_of(kind, link.to) == subject;
    return direction == Direction::from ? sends
           : direction == Direction::to ? receives
                                        : sends || receives;
  }

  Finding::Side side_of(Finding::Kind kind, std::size_t subject, Direction direction) const {
    Finding::Side side;
    for (const Judged& link : links_) {
      if (link.named || !is_of(link, kind, subject, direction)) continue;
      ++side.links;
      if (link.out) ++side.out;
    }
    return side;
  }

  // The number of hosts, or ends, at the other sides of the links that are out. With only one other
  // it is not known which of the two is at fault.
  std::size_t others_of(Finding::Kind kind, std::size_t subject, Direction direction) const {
    std::vector<std::size_t> others;
    for (const Judged& link : links_) {
      if (!link.out || link.named || !is_of(link, kind, subject, direction)) continue;
      const std::size_t from = subject_of(kind, link.from), to = subject_of(kind, link.to);
      const std::size_t other = from == subject ? to : from;
      add_once(others, other);
    }
    return others.size();
  }

  // Names the subjects of this kind, the one with the largest part of its links out first.
  void name_groups(Finding::Kind kind) {
    const auto directions = quantity_ == Quantity::latency
                                ? std::vector{Direction::either}
                                : std::vector{Direction::from, Direction::to};
    std::vector<std::size_t> subjects;
    for (std::size_t end = 0; end < ends_.size(); ++end) add_once(subjects, subject_of(kind, end));
    for (;;) {
      Finding::Side best;
      std::size_t found = 0;
      Direction way = Direction::either;
      for (const std::size_t subject : subjects)
        for (const Direction direction : directions) {
          const Finding::Side side = side_of(kind, subject, direction);
          const bool most = 2 * side.out > side.links && others_of(kind, subject, direction) >= 2;
          const bool better =
              side.out * best.links > best.out * side.links ||
              (side.out * best.links == best.out * side.links && side.out > best.out);
          if (!most || (best.links > 0 && !better)) continue;
          best = side;
          found = subject;
          way = direction;
        }
      if (best.links == 0) return;
      name(kind, found, way);
    }
  }

  void name(Finding::Kind kind, std::size_t subject, Direction direction) {
    std::vector<double> out;
    Finding::Side side;
    for (Judged& link : links_) {
      if (!is_of(link, kind, subject, direction)) continue;
      ++side.links;
      if (!link.out) continue;
      ++side.out;
      out.push_back(link.value);
      link.named = true;
    }
    side.value = median_of(out, false);
    Finding& finding = finding_of(kind, subject);
    (direction == Direction::to ? finding.to : finding.from) = side;
  }

  // The two directions of a subject are one finding.
  Finding& finding_of(Finding::Kind kind, std::size_t subject) {
    const auto known = std::ranges::find_if(
        findings_, [&](const Finding& one) { return one.kind == kind && one.subject == subject; });
    if (known != findings_.end()) return *known;
    findings_.push_back({quantity_, where_, kind, subject, 0, {}, {}, scale_.median});
    return findings_.back();
  }

  void add_link(const Judged& link) {
    const auto known = std::ranges::find_if(findings_, [&](const Finding& one) {
      return one.kind == Finding::Kind::link && one.subject == link.to && one.other == link.from;
    });
    if (known != findings_.end()) {
      known->to.out = 1;
      return;
    }
    const Finding::Side back{0, 1, values_.at(link.to, link.from)};
    findings_.push_back({quantity_,
                         where_,
                         Finding::Kind::link,
                         link.from,
                         link.to,
                         {1, 1, link.value},
                         back,
                         scale_.median});
  }

  const Quantity quantity_;
  const Matrix& values_;
  const Scale& scale_;
  const std::span<const End> ends_;
  const Where where_;
  std::vector<Judged> links_;
  std::vector<Finding> findings_;
};

}  // namespace

bool is_where(std::span<const End> ends, Where where, std::size_t from, std::size_t to) {
  return from != to && (ends[from].host == ends[to].host) == (where == Where::within);
}

double Scale::spread(Quantity quantity) const {
  if (links == 0 || median <= 0) return 0;
  return 100 * (quantity == Quantity::bandwidth ? 1 - worst / median : worst / median - 1);
}

Scale scale_of(Quantity quantity, const Matrix& values, std::span<const End> ends, Where where) {
  const bool larger = quantity == Quantity::bandwidth;
  Scale scale;
  for_each_value(values, ends, where, [&](std::size_t from, std::size_t to, double value) {
    const bool worse = larger ? value < scale.worst : value > scale.worst;
    if (scale.links == 0 || worse) scale.worst = value;
    if (from < to) ++scale.links;
  });
  scale.median = repeated_median(values, ends, where, larger, [](double value) { return value; });
  scale.deviation = repeated_median(values, ends, where, false,
                                    [&](double value) { return std::abs(value - scale.median); });
  scale.limit = scale.links < 2 ? (larger ? 0 : std::numeric_limits<double>::infinity())
                                : limit_of(quantity, scale.median, scale.deviation);
  return scale;
}

std::vector<Finding> find_outliers(Quantity quantity, const Matrix& values, const Scale& scale,
                                   std::span<const End> ends, Where where) {
  return Search(quantity, values, scale, ends, where).run();
}

}  // namespace rondo::tools
