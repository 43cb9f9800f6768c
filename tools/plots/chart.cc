// SPDX-License-Identifier: Apache-2.0
#include "tools/plots/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "tools/plots/svg.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// The colours of Okabe and Ito, which people with any colour vision can tell apart, without the
// yellow, which is hard to see on white.
constexpr std::array<std::string_view, 7> colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                  "#56b4e9", "#e69f00", "#222222"};
constexpr std::array<std::string_view, 3> all_dashes{"", "7 3", "2 3"};
constexpr std::string_view alarm_colour = "#b00020";

constexpr double title_size = 16, text_size = 12, note_size = 11;
constexpr double plot_height = 300, margin = 16, least_gap = 14;
// A mark on each of more points would be a thick line.
constexpr std::size_t most_marks = 64;
constexpr std::size_t most_alarms = 100;

struct Style {
  std::string_view colour, dash;
  std::size_t shape;
};

Style style_of(std::size_t line) {
  return {colours[line % colours.size()], all_dashes[line / colours.size() % all_dashes.size()],
          line};
}

struct Range {
  double low = 0, high = 0;
};

template <class Visit>
Range range_of(const Chart& chart, Visit visit) {
  Range range{INFINITY, -INFINITY};
  const auto add = [&](double value) {
    range = {std::min(range.low, value), std::max(range.high, value)};
  };
  for (const ChartLine& line : chart.lines)
    for (const ChartPoint& point : line.points) visit(point, add);
  return range;
}

bool shows_edges(const Chart& chart) {
  return chart.lines.size() <= most_edges;
}

AxisScale x_scale(const Chart& chart) {
  Range range = range_of(chart, [](const ChartPoint& point, auto add) { add(point.x); });
  return chart.x_logarithmic ? AxisScale::logarithmic(chart.x, range.low, range.high)
                             : AxisScale::linear(chart.x, range.low, range.high);
}

AxisScale y_scale(const Chart& chart) {
  const bool edges = shows_edges(chart);
  const Range range = range_of(chart, [edges](const ChartPoint& point, auto add) {
    add(point.y);
    if (edges && point.edge) add(*point.edge);
  });
  return chart.y_logarithmic ? AxisScale::logarithmic(chart.y, range.low, range.high)
                             : AxisScale::linear(chart.y, 0, range.high);
}

double widest(AxisQuantity quantity, const std::vector<double>& ticks) {
  double width = 0;
  for (const double tick : ticks)
    width = std::max(width, width_of_text(describe(quantity, tick), text_size));
  return width;
}

// The rectangle of the axes, and what maps values into it.
struct Frame {
  AxisScale x, y;
  std::vector<double> x_ticks, y_ticks;
  double left, top, right, bottom;

  Place place(double at, double value) const {
    return {left + x.place(at) * (right - left), bottom - y.place(value) * (bottom - top)};
  }
};

Frame frame_of(const Chart& chart, double top) {
  Frame frame{x_scale(chart), y_scale(chart), {}, {}, 0, top, 0, top + plot_height};
  frame.y_ticks = frame.y.ticks(9);
  frame.left = margin + 18 + widest(chart.y, frame.y_ticks) + 8;
  // As many ticks as have room, when the widest of all their texts is known.
  std::size_t most = 14;
  do {
    frame.x_ticks = frame.x.ticks(most);
    const double width = widest(chart.x, frame.x_ticks);
    frame.right = picture_width - margin - width / 2;
    const auto fits =
        static_cast<std::size_t>((frame.right - frame.left) / (width + least_gap)) + 1;
    if (frame.x_ticks.size() <= std::max<std::size_t>(fits, 2)) break;
    most = frame.x_ticks.size() - 1;
  } while (most > 1);
  return frame;
}

void draw_axes(Svg& svg, const Chart& chart, const Frame& frame) {
  for (const double tick : frame.y_ticks) {
    const double y = frame.place(frame.x.low(), tick).y;
    svg.line({frame.left, y}, {frame.right, y}, Svg::faint, 1);
    svg.text({frame.left - 8, y + 4}, describe(chart.y, tick), text_size, Anchor::end);
  }
  for (const double tick : frame.x_ticks) {
    const double x = frame.place(tick, frame.y.low()).x;
    svg.line({x, frame.top}, {x, frame.bottom}, Svg::faint, 1);
    svg.line({x, frame.bottom}, {x, frame.bottom + 5}, Svg::grey, 1);
    svg.text({x, frame.bottom + 19}, describe(chart.x, tick), text_size, Anchor::middle);
  }
  svg.line({frame.left, frame.top}, {frame.left, frame.bottom}, Svg::grey, 1);
  svg.line({frame.left, frame.bottom}, {frame.right, frame.bottom}, Svg::grey, 1);
  svg.upright({margin + 8, (frame.top + frame.bottom) / 2}, chart.y_title, text_size);
  svg.text({(frame.left + frame.right) / 2, frame.bottom + 39}, chart.x_title, text_size,
           Anchor::middle);
}

void draw_edge(Svg& svg, const ChartLine& line, const Frame& frame, const Style& style,
               bool filled) {
  std::vector<Place> corners, back;
  for (const ChartPoint& point : line.points) {
    if (!point.edge) continue;
    corners.push_back(frame.place(point.x, point.y));
    back.push_back(frame.place(point.x, *point.edge));
  }
  if (corners.size() == 1) svg.line(corners.front(), back.front(), style.colour, 1);
  if (corners.size() < 2) return;
  if (!filled) return svg.path(back, style.colour, 1, "1.5 2.5");
  corners.insert(corners.end(), back.rbegin(), back.rend());
  svg.area(corners, style.colour);
}

void draw_line(Svg& svg, const ChartLine& line, const Frame& frame, const Style& style) {
  std::vector<Place> places;
  for (const ChartPoint& point : line.points) places.push_back(frame.place(point.x, point.y));
  if (places.size() > 1) svg.path(places, style.colour, 1.8, style.dash);
  if (places.size() > most_marks) return;
  for (std::size_t i = 0; i < places.size(); ++i)
    svg.mark(places[i], style.shape, style.colour, line.points[i].hint);
}

void draw_alarms(Svg& svg, const Chart& chart, const Frame& frame) {
  const std::size_t every = chart.alarms.size() / most_alarms + 1;
  for (std::size_t i = 0; i < chart.alarms.size(); i += every) {
    const double x = frame.place(chart.alarms[i].x, frame.y.low()).x;
    svg.line({x, frame.top}, {x, frame.bottom}, alarm_colour, 1, "4 3");
    svg.mark({x, frame.top}, 4, alarm_colour, chart.alarms[i].hint);
  }
}

// Columns of equal width below the axes. Returns where the next thing goes.
double draw_legend(Svg& svg, const Chart& chart, double left, double top) {
  constexpr double sample = 34, row = 20;
  const double room = picture_width - left - margin;
  double widest = 0;
  for (const ChartLine& line : chart.lines)
    widest = std::max(widest, width_of_text(line.name, text_size));
  const double column = std::min(widest + sample + 24, room);
  const auto columns =
      std::clamp<std::size_t>(static_cast<std::size_t>(room / column), 1, chart.lines.size());
  const auto most = static_cast<std::size_t>((room - sample) / (0.6 * text_size));
  for (std::size_t i = 0; i < chart.lines.size(); ++i) {
    const double x = left + static_cast<double>(i % columns) * column;
    const std::size_t line = i / columns;
    const double y = top + static_cast<double>(line) * row;
    const Style style = style_of(i);
    svg.line({x, y}, {x + 26, y}, style.colour, 1.8, style.dash);
    svg.mark({x + 13, y}, style.shape, style.colour);
    svg.text({x + sample, y + 4}, shortened(chart.lines[i].name, most), text_size, Anchor::start);
  }
  const std::size_t lines = (chart.lines.size() - 1) / columns + 1;
  return top + static_cast<double>(lines) * row;
}

}  // namespace

std::vector<std::string> wrapped(const std::string& text, double size, double width) {
  const auto most = static_cast<std::size_t>(std::max(8.0, width / (0.66 * size)));
  std::vector<std::string> lines;
  std::string line;
  for (const std::string& given : split(text, ' ')) {
    const std::string word = shortened(given, most);
    const std::string longer = line.empty() ? word : fmt::format("{} {}", line, word);
    if (!line.empty() && width_of_text(longer, size) > width) {
      lines.push_back(line);
      line = word;
    } else {
      line = longer;
    }
  }
  if (!line.empty()) lines.push_back(line);
  return lines;
}

std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, bool logarithmic,
                                std::size_t most) {
  if (points.size() <= most) return points;
  const auto at = [&](const ChartPoint& point) {
    return logarithmic ? std::log(point.x) : point.x;
  };
  const double low = at(points.front()), span = at(points.back()) - low;
  const auto slot_of = [&](const ChartPoint& point) {
    const double share = span > 0 ? (at(point) - low) / span : 0;
    return std::min(static_cast<std::size_t>(share * static_cast<double>(most)), most - 1);
  };
  std::vector<ChartPoint> fewer;
  for (std::size_t first = 0, end; first < points.size(); first = end) {
    std::vector<ChartPoint> slot;
    for (end = first; end < points.size() && slot_of(points[end]) == slot_of(points[first]); ++end)
      slot.push_back(points[end]);
    std::optional<double> edge;
    for (const ChartPoint& point : slot)
      if (point.edge &&
          (!edge || (*point.edge > point.y ? *point.edge > *edge : *point.edge < *edge)))
        edge = point.edge;
    const auto middle = slot.begin() + static_cast<std::ptrdiff_t>(slot.size() / 2);
    const double x = middle->x;
    std::ranges::nth_element(slot, middle, {}, &ChartPoint::y);
    fewer.push_back({x, middle->y, edge, {}});
  }
  return fewer;
}

Picture draw(const Chart& chart) {
  const double room = picture_width - 2 * margin;
  Svg svg;
  double y = 26;
  for (const std::string& line : wrapped(chart.title, title_size, room)) {
    svg.text({margin, y}, line, title_size, Anchor::start, Svg::dark, true);
    y += 20;
  }
  for (const std::string& line : wrapped(chart.subtitle, text_size, room)) {
    svg.text({margin, y}, line, text_size, Anchor::start, Svg::grey);
    y += 16;
  }
  const Frame frame = frame_of(chart, y + 4);
  draw_axes(svg, chart, frame);
  for (std::size_t i = 0; shows_edges(chart) && i < chart.lines.size(); ++i)
    draw_edge(svg, chart.lines[i], frame, style_of(i), chart.lines.size() <= most_bands);
  for (std::size_t i = 0; i < chart.lines.size(); ++i)
    draw_line(svg, chart.lines[i], frame, style_of(i));
  draw_alarms(svg, chart, frame);
  y = draw_legend(svg, chart, frame.left, frame.bottom + 64) + 4;
  for (const std::string& note : chart.notes)
    for (const std::string& line : wrapped(note, note_size, room)) {
      svg.text({margin, y}, line, note_size, Anchor::start, Svg::grey);
      y += 15;
    }
  return {chart.title, svg.elements(), y + 8};
}

}  // namespace rondo::tools
