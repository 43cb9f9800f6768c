// SPDX-License-Identifier: Apache-2.0
//
// Chooses which rows of which records share a chart, and what its axes, lines and bands show.
// chart.h draws.
#include "tools/plots/figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "tools/plots/heat_map.h"
#include "tools/plots/svg.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// A chart with more lines is split into one for each operation.
constexpr std::size_t many_lines = 8;
// The lines of a chart, at most. The others are named in a note.
constexpr std::size_t most_lines = 20;
constexpr std::size_t most_named = 4;
// The hosts or ranks of a heat map, at most: a cell has some pixels then.
constexpr std::size_t most_ends = 128;

// The parts that may tell lines apart, in the order of their names.
enum : std::size_t {
  of_record,
  operation,
  in_place,
  type,
  op,
  root,
  ranks,
  transport,
  size,
  parts
};
using LineKey = std::array<std::string, parts>;

struct ByLine {
  std::vector<LineKey> order;
  std::map<LineKey, std::vector<const ResultRow*>> rows;

  void add(const LineKey& key, const ResultRow& row) {
    const auto [place, is_new] = rows.try_emplace(key);
    if (is_new) order.push_back(key);
    place->second.push_back(&row);
  }
};

LineKey key_of(const ResultRow& row, const std::string& record) {
  LineKey key;
  key[of_record] = record;
  key[operation] = row.operation;
  key[in_place] = row.in_place ? "in place" : "out of place";
  key[type] = row.type;
  key[op] = row.op == "none" ? "" : row.op;
  key[root] = row.root > 0 ? fmt::format("root {}", row.root) : "";
  key[ranks] = fmt::format("{} {}", row.ranks, row.ranks == 1 ? "rank" : "ranks");
  key[transport] = row.transport;
  return key;
}

// Names the lines by what differs between some of them: place, reduction and root only where they
// differ between lines of one operation.
std::vector<std::string> line_names(const std::vector<LineKey>& keys) {
  std::array<std::set<std::string>, parts> all;
  std::map<std::string, std::array<std::set<std::string>, parts>> by_operation;
  for (const LineKey& key : keys)
    for (std::size_t part = 0; part < parts; ++part) {
      all[part].insert(key[part]);
      by_operation[key[operation]][part].insert(key[part]);
    }
  std::vector<std::string> names;
  for (const LineKey& key : keys) {
    std::vector<std::string> words;
    for (std::size_t part = 0; part < parts; ++part) {
      const bool own = part == in_place || part == op || part == root;
      const auto& values = own ? by_operation[key[operation]][part] : all[part];
      if (values.size() > 1 && !key[part].empty()) words.push_back(key[part]);
    }
    names.push_back(words.empty() ? key[operation] : join(words));
  }
  return names;
}

std::string hint_of(const ResultRow& row) {
  return fmt::format("{} {} {}, {}: p50 {}, p99 {}, bus bandwidth {}", row.operation,
                     base::describe_bytes(row.bytes), row.type,
                     row.in_place ? "in place" : "out of place",
                     describe(AxisQuantity::microseconds, row.time.p50_us),
                     describe(AxisQuantity::microseconds, row.time.p99_us),
                     describe(AxisQuantity::gigabytes_per_second, row.busbw));
}

const Times& times_of(const ResultRow& row) {
  return row.latency ? *row.latency : row.time;
}

ChartPoint point_of(const ResultRow& row, bool bandwidth, double x) {
  if (bandwidth) return {x, row.busbw, {}, hint_of(row)};
  const Times& time = times_of(row);
  return {x, time.p50_us, std::max(time.p99_us, time.p50_us), hint_of(row)};
}

// A chart of the lines that have a point. take: the point of a row; no value: it has none.
template <class Take>
void add_lines(Chart& chart, const ByLine& lines, Take take) {
  std::vector<LineKey> keys;
  std::vector<std::vector<ChartPoint>> found;
  std::size_t left_out = 0;
  for (const LineKey& key : lines.order) {
    std::vector<ChartPoint> points;
    for (const ResultRow* row : lines.rows.at(key))
      if (const std::optional<ChartPoint> point = take(*row)) points.push_back(*point);
    if (points.empty()) continue;
    if (keys.size() == most_lines) {
      ++left_out;
      continue;
    }
    std::ranges::stable_sort(points, {}, &ChartPoint::x);
    keys.push_back(key);
    found.push_back(thinned(points, chart.x_logarithmic, most_points));
  }
  const std::vector<std::string> names = line_names(keys);
  for (std::size_t i = 0; i < keys.size(); ++i)
    chart.lines.push_back({names[i], std::move(found[i])});
  if (left_out > 0)
    chart.notes.push_back(
        fmt::format("{} more lines are not drawn: plot fewer operations or records.", left_out));
}

std::string band_words(const Chart& chart) {
  if (chart.lines.size() > most_edges) return "p50";
  return chart.lines.size() > most_bands ? "line: p50; dots: p99" : "line: p50; band: up to p99";
}

// "all_reduce: " where all lines are of one operation.
std::string prefix_of(const ByLine& lines) {
  std::set<std::string> operations;
  for (const LineKey& key : lines.order) operations.insert(key[operation]);
  return operations.size() == 1 ? *operations.begin() + ": " : "";
}

Chart chart_over_size(const ByLine& lines, bool bandwidth) {
  Chart chart;
  chart.x_title = "size";
  chart.y = bandwidth ? AxisQuantity::gigabytes_per_second : AxisQuantity::microseconds;
  std::vector<std::string> without_size;
  std::set<std::string> halves;  // operations with a round trip
  add_lines(chart, lines, [&](const ResultRow& row) -> std::optional<ChartPoint> {
    const ChartPoint point = point_of(row, bandwidth, static_cast<double>(row.bytes));
    if (row.latency) halves.insert(row.operation);
    if (row.bytes > 0 && point.y > 0) return point;
    if (!bandwidth && row.bytes == 0 && without_size.size() < most_named)
      without_size.push_back(fmt::format("{}{} {}", row.operation, row.in_place ? " in place" : "",
                                         describe(AxisQuantity::microseconds, row.time.p50_us)));
    return {};
  });
  if (!without_size.empty())
    chart.notes.push_back("p50 without bytes: " + join(without_size) + ".");
  if (bandwidth) {
    chart.title = prefix_of(lines) + "bus bandwidth over size";
    chart.subtitle = "from the p50 of the time; more is better";
    chart.y_title = "bus bandwidth";
  } else {
    chart.title = prefix_of(lines) + "time over size";
    chart.subtitle =
        band_words(chart) + "; less is better" +
        (halves.empty() ? "" : "; half of a round trip: " + join({halves.begin(), halves.end()}));
    chart.y_title = "time of a call";
  }
  return chart;
}

ByLine lines_of_benches(std::span<const Record> records) {
  const std::vector<std::string> labels = names_of(records);
  ByLine lines;
  for (std::size_t i = 0; i < records.size(); ++i)
    if (records[i].kind == "bench")
      for (const ResultRow& row : records[i].rows) lines.add(key_of(row, labels[i]), row);
  return lines;
}

// One for all, or for each operation where there are many.
std::vector<ByLine> split_lines(ByLine all) {
  if (all.order.size() <= many_lines) return {std::move(all)};
  std::vector<ByLine> groups;
  std::map<std::string, std::size_t> group_of;
  for (const LineKey& key : all.order) {
    const auto [place, is_new] = group_of.try_emplace(key[operation], groups.size());
    if (is_new) groups.emplace_back();
    ByLine& group = groups[place->second];
    group.order.push_back(key);
    group.rows[key] = std::move(all.rows[key]);
  }
  return groups;
}

// A note for each of the records, with its name.
using Notes = std::map<std::string, std::string>;

Notes notes_of(std::span<const Record> records) {
  const std::vector<std::string> labels = names_of(records);
  Notes notes;
  for (std::size_t i = 0; i < records.size(); ++i)
    notes[labels[i]] = fmt::format("{}: {}", labels[i], describe(records[i]));
  return notes;
}

// Adds a chart with the notes of its records.
void add(std::vector<Chart>& charts, Chart chart, const ByLine& lines, const Notes& notes) {
  if (chart.lines.empty()) {
    // A barrier has no chart, but a time.
    if (!charts.empty())
      charts.back().notes.insert(charts.back().notes.begin(), chart.notes.begin(),
                                 chart.notes.end());
    return;
  }
  std::set<std::string> told;
  for (const LineKey& key : lines.order)
    if (told.size() < most_lines && told.insert(key[of_record]).second)
      chart.notes.push_back(notes.at(key[of_record]));
  charts.push_back(std::move(chart));
}

// Values that differ little are seen best on a linear axis from zero.
bool wants_logarithm(const Chart& chart) {
  double low = INFINITY, high = 0;
  for (const ChartLine& line : chart.lines)
    for (const ChartPoint& point : line.points) {
      low = std::min(low, point.y);
      high = std::max({high, point.y, point.edge.value_or(0)});
    }
  return low > 0 && high > 20 * low;
}

ByLine lines_of_soak(const Record& record, const std::string& label) {
  ByLine lines;
  for (const ResultRow& row : record.rows) {
    LineKey key = key_of(row, label);
    key[size] = base::describe_bytes(row.bytes);
    lines.add(key, row);
  }
  return lines;
}

Chart chart_over_time(const Record& record, const ByLine& lines, bool bandwidth) {
  Chart chart;
  chart.x = AxisQuantity::seconds;
  chart.y = bandwidth ? AxisQuantity::gigabytes_per_second : AxisQuantity::microseconds;
  chart.x_logarithmic = false;
  chart.x_title = "time since the run began";
  bool thin = false;
  add_lines(chart, lines, [&](const ResultRow& row) -> std::optional<ChartPoint> {
    const ChartPoint point = point_of(row, bandwidth, row.second.value_or(0));
    return point.y > 0 ? std::optional(point) : std::nullopt;
  });
  for (const LineKey& key : lines.order) thin = thin || lines.rows.at(key).size() > most_points;
  chart.y_logarithmic = wants_logarithm(chart);
  for (const ResultRow& row : record.rows)
    if (row.wrong > 0 || row.errors > 0)
      chart.alarms.push_back(
          {row.second.value_or(0), fmt::format("{} s: {} wrong elements, {} errors",
                                               row.second.value_or(0), row.wrong, row.errors)});
  chart.title =
      prefix_of(lines) + (bandwidth ? "bus bandwidth of a soak" : "time of a call in a soak");
  chart.subtitle = bandwidth ? "p50 of each interval; more is better"
                             : band_words(chart) + " of each interval; less is better";
  chart.y_title = bandwidth ? "bus bandwidth" : "time of a call";
  if (thin)
    chart.notes.push_back(fmt::format(
        "Of more than {} intervals, neighbours are drawn as one: their median, and the greatest "
        "p99.",
        most_points));
  if (!chart.alarms.empty())
    chart.notes.push_back(
        fmt::format("Red: {} intervals with wrong elements or errors.", chart.alarms.size()));
  return chart;
}

}  // namespace

std::vector<std::string> names_of(std::span<const Record> records) {
  std::map<std::string, int> uses;
  std::vector<std::string> names;
  for (const Record& record : records) {
    std::string stem = std::filesystem::path(record.path).stem().string();
    if (stem.empty()) stem = record.path;
    ++uses[stem];
    names.push_back(std::move(stem));
  }
  for (std::size_t i = 0; i < records.size(); ++i)
    if (uses[names[i]] > 1) names[i] = fmt::format("{} {}", i + 1, records[i].path);
  return names;
}

namespace {

// The ends of the pairs of a record, in the order of their ranks.
std::map<int, std::string> ends_of(const Record& record) {
  std::map<int, std::string> ends;
  for (const PairResult& pair : record.pairs) {
    ends.emplace(pair.from_rank, pair.from_host);
    ends.emplace(pair.to_rank, pair.to_host);
  }
  while (ends.size() > most_ends) ends.erase(std::prev(ends.end()));
  return ends;
}

// One quantity over all pairs. Of a pair that was measured again the best value counts, and what
// its last row says of it.
HeatMap heat_map_of(const Record& record, bool bandwidth) {
  struct Cell {
    double value = std::nan("");
    bool outlier = false;
  };
  HeatMap map{
      bandwidth ? "Bandwidth" : "Latency", bandwidth ? "GB/s" : "us", {}, {}, {}, bandwidth};
  std::map<std::pair<int, int>, Cell> cells;
  for (const PairResult& pair : record.pairs) {
    const auto value = bandwidth ? pair.bandwidth : pair.latency_us;
    if (!value) continue;
    Cell& cell = cells[{pair.from_rank, pair.to_rank}];
    cell.value = bandwidth ? std::fmax(cell.value, *value) : std::fmin(cell.value, *value);
    cell.outlier = pair.outlier.find(bandwidth ? "bandwidth" : "latency") != std::string::npos;
  }
  const std::map<int, std::string> ends = ends_of(record);
  for (const auto& from : ends) {
    map.labels.push_back(fmt::format("{} ({})", from.second, from.first));
    for (const auto& to : ends) {
      const Cell cell = cells[{from.first, to.first}];
      map.values.push_back(cell.value);
      map.framed.push_back(cell.outlier);
    }
  }
  return map;
}

std::vector<HeatMap> heat_maps_of(const Record& record, Part part) {
  std::vector<HeatMap> maps;
  if (part != Part::latency) maps.push_back(heat_map_of(record, true));
  if (part != Part::bandwidth) maps.push_back(heat_map_of(record, false));
  return maps;
}

}  // namespace

std::vector<Chart> charts_of(std::span<const Record> records, Part part) {
  std::vector<Chart> charts;
  const Notes notes = notes_of(records);
  for (const ByLine& lines : split_lines(lines_of_benches(records))) {
    if (part != Part::latency) add(charts, chart_over_size(lines, true), lines, notes);
    if (part != Part::bandwidth) add(charts, chart_over_size(lines, false), lines, notes);
  }
  const std::vector<std::string> labels = names_of(records);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].kind != "soak") continue;
    const ByLine lines = lines_of_soak(records[i], labels[i]);
    if (part != Part::bandwidth)
      add(charts, chart_over_time(records[i], lines, false), lines, notes);
    if (part != Part::latency) add(charts, chart_over_time(records[i], lines, true), lines, notes);
  }
  return charts;
}

std::vector<Picture> pictures_of(std::span<const Record> records, Part part) {
  std::vector<Picture> pictures;
  for (const Chart& chart : charts_of(records, part)) pictures.push_back(draw(chart));
  const std::vector<std::string> labels = names_of(records);
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (records[i].kind != "pairs" || records[i].pairs.empty()) continue;
    const std::string title = fmt::format("{}: pairs", labels[i]);
    const HeatPicture picture = draw_heat_maps(title, heat_maps_of(records[i], part));
    // Maps of many hosts are wider than the page: they are drawn smaller.
    const double scale = std::min(1.0, static_cast<double>(picture_width) / picture.width);
    const double height = scale * picture.height;
    pictures.push_back(
        {title,
         fmt::format("<svg width=\"{:.0f}\" height=\"{:.0f}\" viewBox=\"0 0 {} {}\">\n{}</svg>\n",
                     scale * picture.width, height, picture.width, picture.height, picture.svg),
         height});
  }
  return pictures;
}

std::string one_below_the_other(const std::vector<Picture>& pictures) {
  std::string elements;
  std::vector<std::string> described;
  double height = 0;
  for (const Picture& picture : pictures) {
    elements +=
        fmt::format("<g transform=\"translate(0 {:.1f})\">\n{}</g>\n", height, picture.elements);
    described.push_back(picture.described);
    height += picture.height + 12;
  }
  return whole_svg(elements, picture_width, height, join(described, "; "), true);
}

}  // namespace rondo::tools
