// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace rondo::tools {

// The quantity of an axis. It chooses the ticks and their texts.
enum class AxisQuantity : unsigned char { bytes, microseconds, gigabytes_per_second, seconds };

// "64 KiB", "1.5 ms", "200 MB/s", "5 min"
std::string describe(AxisQuantity quantity, double value);

// Maps values to places from 0 to 1. Logarithmic scales are for values above zero.
class AxisScale {
 public:
  // The least scale that holds low and high, widened to ticks where the quantity is not bytes.
  // Needs finite values with low <= high; a logarithmic scale needs low > 0.
  static AxisScale linear(AxisQuantity quantity, double low, double high);
  static AxisScale logarithmic(AxisQuantity quantity, double low, double high);

  double place(double value) const;
  // At most `most` ticks in ascending order; the numbers 1, 2 and 5 times a power of ten, powers of
  // two for bytes, what divides minutes and hours for seconds. At least one.
  std::vector<double> ticks(std::size_t most) const;
  AxisQuantity quantity() const noexcept { return quantity_; }
  double low() const noexcept { return low_; }
  double high() const noexcept { return high_; }

 private:
  AxisScale(AxisQuantity quantity, bool logarithmic, double low, double high);

  AxisQuantity quantity_;
  bool logarithmic_;
  double low_, high_;
};

}  // namespace rondo::tools
