// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/plots/scale.h"

namespace rondo::tools {

struct ChartPoint {
  double x = 0, y = 0;
  std::optional<double> edge;  // the other end of its band
  std::string hint;
};

struct ChartLine {
  std::string name;
  std::vector<ChartPoint> points;  // in ascending order of x
};

// Something went wrong there.
struct ChartAlarm {
  double x = 0;
  std::string hint;
};

struct Chart {
  std::string title, subtitle, x_title, y_title;
  AxisQuantity x = AxisQuantity::bytes, y = AxisQuantity::microseconds;
  bool x_logarithmic = true, y_logarithmic = true;  // values must then be above zero
  std::vector<ChartLine> lines;                     // at least one, each with a point
  std::vector<ChartAlarm> alarms;
  std::vector<std::string> notes;  // below it
};

// The bands of more lines would hide each other: up to most_edges they are thin lines at the edges,
// and beyond they are not drawn.
inline constexpr std::size_t most_bands = 2, most_edges = 6;
// Points of a line that are drawn, at most; of more, each is the middle of its neighbours.
inline constexpr std::size_t most_points = 400;
inline constexpr double picture_width = 800;

struct Picture {
  std::string described, elements;
  double height = 0;
};

Picture draw(const Chart& chart);

// At most `most` points over the range of x: y of each is the median of its neighbours, edge is the
// one that is farthest from it, so that a single late call is still seen.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, bool logarithmic,
                                std::size_t most);

// Breaks a text between words into lines that are not wider.
std::vector<std::string> wrapped(const std::string& text, double size, double width);

}  // namespace rondo::tools
