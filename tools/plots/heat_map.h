// SPDX-License-Identifier: Apache-2.0
//
// Draws matrices as heat maps, in an SVG that stands alone.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace rondo::tools {

// A square of values. Rows: from; columns: to.
struct HeatMap {
  std::string title, unit;          // "Bandwidth", "GB/s"
  std::vector<std::string> labels;  // of rows and columns
  std::vector<double> values;       // row by row; NaN: grey
  std::vector<bool> framed;         // likewise: drawn with a frame; empty: none
  bool more_is_better = true;       // the better a value, the brighter
};

// The maps side by side, each with its scale. The colours (viridis) grow in brightness alone, so
// people who see few colours can order them, too. A scale spans at
// least a factor of two, and is logarithmic when the largest value is more than ten times the
// smallest. Up to 16 labels the values stand in the cells; in each case a
// browser shows them under the pointer. Any text may be given: it is escaped.
std::string draw_heat_maps(const std::string& title, std::span<const HeatMap> maps);

}  // namespace rondo::tools
