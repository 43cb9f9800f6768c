// SPDX-License-Identifier: Apache-2.0
//
// Collects what was measured so far, and judges it.
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/pairs/judge.h"
#include "tools/pairs/schedule.h"

namespace rondo::tools {

// The values of one measurement of a pair; 0: not measured.
struct PairValues {
  double latency_us = 0;         // of both directions
  double forward = 0, back = 0;  // GB/s from the first end to the second, and back
  // Percent of segments sent again; NaN: not over TCP.
  double forward_resent = std::numeric_limits<double>::quiet_NaN(), back_resent = forward_resent;
  std::string lost{};  // why nothing more could be measured; empty: all was
};

// The thresholds of the user. A link that misses one is measured again before that counts, too.
struct Thresholds {
  std::optional<double> min_bandwidth;  // GB/s
  std::optional<double> max_latency;    // microseconds
  std::optional<double> max_spread;     // percent
};

// The best measurement of each link counts. fix_scales() sets the limits, when every pair
// was measured once. At the end update_medians() sets the medians and the worst values to those of
// the best measurements, and leaves the limits.
class Survey {
 public:
  // One kind of link that was measured, with one scale.
  struct Judgement {
    Quantity quantity;
    Where where;
    Scale scale;
  };

  Survey(std::span<const End> ends, const Thresholds& thresholds);
  void add(const Pair& pair, const PairValues& values);
  void fix_scales();
  void update_medians();
  // Whether links that should be alike differ much in bandwidth, as where hosts are busy: by more
  // than 10 percent, as a median.
  bool unsteady() const;
  // The pairs with a value that is out or misses a threshold.
  std::vector<Pair> suspects() const;
  // The pairs of links that would be named alone.
  std::vector<Pair> single_suspects() const;
  std::vector<Finding> findings() const;

  const Matrix& of(Quantity quantity) const {
    return quantity == Quantity::bandwidth ? bandwidth_
           : quantity == Quantity::latency ? latency_
                                           : resent_;
  }
  std::vector<Judgement> judgements() const;
  const Scale& scale(Quantity quantity, Where where) const { return scales_.at({quantity, where}); }
  bool is_out(Quantity quantity, std::size_t from, std::size_t to) const;
  // Whether the value of a link misses --min-bandwidth, --max-latency or --max-spread.
  bool misses(Quantity quantity, std::size_t from, std::size_t to) const;
  bool misses_spread(const Judgement& judgement) const;
  std::size_t measured_again() const noexcept { return again_; }
  void count_again(std::size_t pairs) noexcept { again_ += pairs; }
  std::span<const End> ends() const noexcept { return ends_; }
  Where where_of(std::size_t from, std::size_t to) const {
    return is_where(ends_, Where::within, from, to) ? Where::within : Where::between;
  }

 private:
  const std::span<const End> ends_;
  const Thresholds thresholds_;
  Matrix bandwidth_, latency_, resent_;
  std::map<std::pair<Quantity, Where>, Scale> scales_;
  std::size_t again_ = 0;
};

}  // namespace rondo::tools
