// SPDX-License-Identifier: Apache-2.0
//
// Which hosts and links differ from the others. Pure functions of what was measured.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "tools/pairs/schedule.h"

namespace rondo::tools {

// A value for each ordered pair of ends; NaN: not measured.
class Matrix {
 public:
  explicit Matrix(std::size_t ends)
      : ends_(ends), values_(ends * ends, std::numeric_limits<double>::quiet_NaN()) {}
  std::size_t ends() const noexcept { return ends_; }
  double& at(std::size_t from, std::size_t to) { return values_[from * ends_ + to]; }
  double at(std::size_t from, std::size_t to) const { return values_[from * ends_ + to]; }
  std::span<const double> values() const noexcept { return values_; }

 private:
  std::size_t ends_;
  std::vector<double> values_;
};

// bandwidth: GB/s, more is better. latency: microseconds, less is better, the same in both
// directions. resent: percent of the TCP segments that the network lost, so that they were sent
// again; less is better.
enum class Quantity : unsigned char { bandwidth, latency, resent };

// Links between hosts and links within hosts are judged apart.
enum class Where : unsigned char { between, within };

bool is_where(std::span<const End> ends, Where where, std::size_t from, std::size_t to);

// Calls a function with the ends and the value of each link there that was measured.
template <class Function>
void for_each_value(const Matrix& values, std::span<const End> ends, Where where,
                    Function function) {
  for (std::size_t from = 0; from < ends.size(); ++from)
    for (std::size_t to = 0; to < ends.size(); ++to)
      if (const double value = values.at(from, to);
          is_where(ends, where, from, to) && !std::isnan(value))
        function(from, to, value);
}

// The measure that values are compared with.
struct Scale {
  double median = 0;     // over the ends, of the median over the links of each
  double deviation = 0;  // the same of the distances from it
  double limit = 0;      // a worse value is an outlier
  std::size_t links = 0;
  double worst = 0;  // over all links

  bool is_out(Quantity quantity, double value) const {
    return quantity == Quantity::bandwidth ? value < limit : value > limit;
  }
  // The distance of the worst value from the median, in percent.
  double spread(Quantity quantity) const;
};

// The rule of docs/pairs.md. With less than two links there is nothing to compare: no value is out.
Scale scale_of(Quantity quantity, const Matrix& values, std::span<const End> ends, Where where);

// A group of links, or one link, that is out.
struct Finding {
  enum class Kind : unsigned char { host, end, link };
  // One direction. For latency, and where a direction is not out, `out` is 0 there.
  struct Side {
    std::size_t out = 0, links = 0;  // that are out, of so many
    double value = 0;                // median of those that are out; of a link in any case
  };
  Quantity quantity = Quantity::bandwidth;
  Where where = Where::between;
  Kind kind = Kind::link;
  std::size_t subject = 0;  // host: its place in the list of hosts; else an end
  std::size_t other = 0;    // of a link: the end at the other side
  Side from, to;            // from the subject and to it; latency has only `from`
  double others = 0;        // the median of the scale
};

// Names each value that is out once. A host (then, if there are several ends on a host, an end) is
// named when most of its links in one direction are out, to at least two others; those with the
// largest part come first, and a link that one explains counts for no other. All links left over
// are named alone.
std::vector<Finding> find_outliers(Quantity quantity, const Matrix& values, const Scale& scale,
                                   std::span<const End> ends, Where where);

}  // namespace rondo::tools
