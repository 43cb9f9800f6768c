// SPDX-License-Identifier: Apache-2.0
#include "tools/plots/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/text.h"
#include "tools/plots/svg.h"
#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

constexpr int map_margin = 24, title_height = 34, map_title_height = 26, gap = 48,
              legend_width = 14, legend_gap = 16, tick_width = 64, character = 7, legend_steps = 32;
constexpr std::size_t most_with_values = 16, most_with_labels = 48, most_label = 18;

struct Colour {
  double red, green, blue;
};
// Nine colours of matplotlib's viridis, from dark to bright.
constexpr std::array<Colour, 9> viridis{{{68, 1, 84},
                                         {71, 44, 122},
                                         {59, 81, 139},
                                         {44, 113, 142},
                                         {33, 144, 141},
                                         {39, 173, 129},
                                         {92, 200, 99},
                                         {170, 220, 50},
                                         {253, 231, 37}}};

std::string colour_at(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * (viridis.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(place), viridis.size() - 2);
  const double part = place - static_cast<double>(below);
  const auto mixed = [&](double Colour::*of) {
    return static_cast<int>(
        std::lround(viridis[below].*of + part * (viridis[below + 1].*of - viridis[below].*of)));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mixed(&Colour::red), mixed(&Colour::green),
                     mixed(&Colour::blue));
}

std::string escaped(const std::string& text) {
  return attribute_text(base::printable(text));
}

// Where a value stands between the worst and the best.
class ColourScale {
 public:
  explicit ColourScale(const HeatMap& map) : inverted_(!map.more_is_better) {
    bool first = true;
    for (const double value : map.values) {
      if (!std::isfinite(value)) continue;
      least_ = first ? value : std::min(least_, value);
      most_ = first ? value : std::max(most_, value);
      first = false;
    }
    // Values that are nearly alike get nearly the same colour.
    if (inverted_)
      most_ = std::max(most_, 2 * least_);
    else
      least_ = std::min(least_, most_ / 2);
    logarithmic_ = least_ > 0 && most_ > 10 * least_;
  }
  bool logarithmic() const { return logarithmic_; }

  // How bright a value is, from 0 to 1.
  double brightness(double value) const {
    if (most_ <= least_) return 1;
    const double share = logarithmic_ ? std::log(value / least_) / std::log(most_ / least_)
                                      : (value - least_) / (most_ - least_);
    return inverted_ ? 1 - share : share;
  }
  double at(double share) const {
    return logarithmic_ ? least_ * std::pow(most_ / least_, share)
                        : least_ + share * (most_ - least_);
  }

 private:
  double least_ = 0, most_ = 0;
  bool inverted_, logarithmic_ = false;
};

std::string in_words(double value) {
  if (!std::isfinite(value)) return "not measured";
  return std::abs(value) < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

int cell_size(std::size_t labels) {
  if (labels <= 8) return 46;
  if (labels <= most_with_values) return 38;
  return std::max(4, 640 / static_cast<int>(labels));
}

// One map, drawn with its left upper corner at a place.
class Drawing {
 public:
  Drawing(const HeatMap& map, int x, int y)
      : map_(map), scale_(map), x_(x), y_(y), count_(map.labels.size()), cell_(cell_size(count_)) {
    std::size_t longest = 0;
    for (const std::string& label : map.labels)
      longest = std::max(longest, shortened(label, most_label).size());
    if (count_ <= most_with_labels) label_ = static_cast<int>(longest) * character + 10;
  }
  int width() const {
    const int title = static_cast<int>(map_.title.size() + map_.unit.size() + 30) * character;
    return std::max(label_ + side() + legend_gap + legend_width + tick_width, title);
  }
  int height() const { return map_title_height + label_ + side(); }

  std::string draw() const {
    std::string text = fmt::format(
        "<text x=\"{}\" y=\"{}\" class=\"map\">{}, {}{}: rows from, columns to</text>\n", x_,
        y_ + 14, escaped(map_.title), escaped(map_.unit),
        scale_.logarithmic() ? " (logarithmic)" : "");
    if (label_ > 0)
      for (std::size_t i = 0; i < count_; ++i) text += labels_of(i);
    std::string frames;
    for (std::size_t row = 0; row < count_; ++row)
      for (std::size_t column = 0; column < count_; ++column) text += cell(row, column, frames);
    return text + frames + legend();
  }

 private:
  int side() const { return static_cast<int>(count_) * cell_; }
  int left(std::size_t column) const { return x_ + label_ + static_cast<int>(column) * cell_; }
  int top(std::size_t row) const {
    return y_ + map_title_height + label_ + static_cast<int>(row) * cell_;
  }

  std::string labels_of(std::size_t i) const {
    const std::string label = escaped(shortened(map_.labels[i], most_label));
    const int row_y = top(i) + cell_ / 2 + 4, column_x = left(i) + cell_ / 2 + 4;
    return fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n"
        "<text transform=\"translate({},{}) rotate(-90)\">{}</text>\n",
        left(0) - 6, row_y, label, column_x, top(0) - 6, label);
  }

  std::string cell(std::size_t row, std::size_t column, std::string& frames) const {
    const std::size_t place = row * count_ + column;
    const double value = place < map_.values.size() ? map_.values[place] : std::nan("");
    const bool known = std::isfinite(value);
    if (!known && row == column) return {};
    const double brightness = known ? scale_.brightness(value) : 0;
    std::string text = fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"><title>{} to {}: {}{}"
        "</title></rect>\n",
        left(column), top(row), cell_ - 1, cell_ - 1, known ? colour_at(brightness) : "#c8c8c8",
        escaped(map_.labels[row]), escaped(map_.labels[column]), in_words(value),
        known ? " " + escaped(map_.unit) : "");
    if (known && count_ <= most_with_values)
      text += fmt::format(
          "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\" class=\"value\" "
          "style=\"fill:{}\">{}</text>\n",
          left(column) + cell_ / 2, top(row) + cell_ / 2 + 3,
          brightness > 0.55 ? "#000000" : "#ffffff", in_words(value));
    if (place < map_.framed.size() && map_.framed[place])
      frames += fmt::format(
          "<rect x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{2}\" class=\"outer\" "
          "stroke-width=\"{3:.2g}\"/>\n"
          "<rect x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{2}\" class=\"inner\" "
          "stroke-width=\"{4:.2g}\"/>\n",
          left(column), top(row), cell_ - 1, std::min(5.0, cell_ / 6.0),
          std::min(2.5, cell_ / 8.0));
    return text;
  }

  // A bar with the best colour on top.
  std::string legend() const {
    const int x = left(count_) + legend_gap, y = top(0), height = side();
    std::string text;
    for (int step = 0; step < legend_steps; ++step) {
      const int from = height * step / legend_steps, to = height * (step + 1) / legend_steps;
      text += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>\n", x,
                          y + from, legend_width, to - from,
                          colour_at(1 - (step + 0.5) / legend_steps));
    }
    for (int tick = 0; tick <= 4; ++tick) {
      const double share = tick / 4.0;  // from the top
      const double value = scale_.at(map_.more_is_better ? 1 - share : share);
      text += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", x + legend_width + 5,
                          y + static_cast<int>(share * (height - 8)) + 8, in_words(value));
    }
    return text;
  }

  const HeatMap& map_;
  const ColourScale scale_;
  const int x_, y_;
  const std::size_t count_;
  const int cell_;
  int label_ = 0;  // pixels for a label; 0: none is shown
};

constexpr std::string_view map_style =
    "<style>.heat text{font:12px sans-serif;fill:#202020} .heat .title{font-size:16px} "
    ".heat .map{font-weight:bold} .heat .value{font-size:11px} "
    ".heat .outer{fill:none;stroke:#ffffff} "
    ".heat .inner{fill:none;stroke:#d00000}</style>\n";

}  // namespace

HeatPicture draw_heat_maps(const std::string& title, std::span<const HeatMap> maps) {
  std::string body;
  int x = map_margin, height = 0;
  bool framed = false;
  for (const HeatMap& map : maps) {
    const Drawing drawing(map, x, map_margin + title_height);
    body += drawing.draw();
    x += drawing.width() + gap;
    height = std::max(height, drawing.height());
    framed = framed || contains(map.framed, true);
  }
  const int width =
      std::max(x - (maps.empty() ? 0 : gap), static_cast<int>(title.size()) * 9 + map_margin) +
      map_margin;
  const int bottom = map_margin + title_height + height + map_margin;
  if (framed)
    body +=
        fmt::format("<text x=\"{}\" y=\"{}\">Framed: an outlier</text>\n", map_margin, bottom - 2);
  HeatPicture picture{{}, width, bottom + map_margin / 2};
  picture.svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\">\n{2}<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n"
      "<g class=\"heat\">\n<text x=\"{3}\" y=\"{4}\" class=\"title\">{5}</text>\n{6}</g>\n</svg>\n",
      picture.width, picture.height, map_style, map_margin, map_margin + 12, escaped(title), body);
  return picture;
}

}  // namespace rondo::tools
