// SPDX-License-Identifier: Apache-2.0
//
// A candidate's predicted time is the minimum of straight lines in the number of bytes: one line
// for a single segment, and one for each frame size of a pipeline. The lower envelope of all
// candidates' lines does not depend on the number of bytes. The choice walks along it from 0 to the
// number of bytes, which makes it monotone by construction.
#include "collectives/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <rondo/error.h>

#include "collectives/plan/costs.h"
#include "collectives/plan/formulas.h"
#include "collectives/plan/tuning.h"
#include "collectives/schedules/algorithms.h"
#include "collectives/schedules/call.h"
#include "transports/transport.h"

namespace rondo::plan {

namespace {

// A frame's header holds the segment's number in 32 bits.
constexpr std::size_t most_segments = std::size_t{1} << 31;

struct Line {
  double start = 0, slope = 0;  // seconds, seconds per byte
  std::size_t segment_bytes = 0;
  std::uint32_t depth = 1;
  double at(double bytes) const { return start + slope * bytes; }
};

struct Estimate {
  schedules::Algorithm algorithm = schedules::Algorithm::ring;
  std::array<Line, frame_ladder.size() + 1> lines;
  std::size_t line_count = 0;
  std::size_t grain = 1;  // segments are multiples of this

  const Line& best(double bytes) const {
    return *std::min_element(
        lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(line_count),
        [&](const Line& a, const Line& b) { return a.at(bytes) < b.at(bytes); });
  }
  double final_slope() const { return best(0x1p60).slope; }
};

struct Candidates {
  std::array<Estimate, schedules::algorithm_count> items;
  std::size_t count = 0;

  // Sorts by the slope for large messages, steepest first: the order in which growing messages may
  // use them.
  void insert(const Estimate& candidate) {
    std::size_t place = count++;
    for (; place > 0 && items[place - 1].final_slope() < candidate.final_slope(); --place)
      items[place] = items[place - 1];
    items[place] = candidate;
  }
  const Estimate* begin() const { return items.data(); }
  const Estimate* end() const { return items.data() + count; }
};

class Estimator {
 public:
  Estimator(Collective operation, const Topology& topology, const PlanConstants& constants,
            const PlanOptions& options)
      : operation_(operation), topology_(topology), costs_(constants), options_(options) {
    topology_.ranks = std::max(1, topology.ranks);
    const int together = std::clamp(topology.ranks_per_host, 1, topology_.ranks);
    const int cores = std::max(1, topology.cores_per_host);
    if (together <= cores) return;
    share_ = static_cast<double>(together) / topology_.ranks / cores;
    idle_ = 1 - 1.0 / cores;
  }

  Estimate estimate(schedules::Algorithm algorithm) const;

 private:
  // With a core for each rank, the time is that of what must happen in a row. With fewer cores it
  // is Graham's bound for list scheduling: the host's work divided by its cores, plus the part of
  // what must happen in a row in which other cores may be idle. The network needs no core.
  double crowded(double in_a_row, double network, double frames, double bytes,
                 double reduce) const {
    if (share_ == 0) return in_a_row + network;
    const double work = frames * 2 * costs_.host.frame_s + bytes * costs_.host.seconds_per_byte +
                        reduce * costs_.reduce_seconds_per_byte;
    return share_ * work + idle_ * in_a_row + network;
  }
  Line alone(const Shape& shape) const;
  Line pipelined(const Shape& shape, const Line& single, std::size_t segment_bytes) const;
  bool is_staged() const noexcept { return options_.staged || needs_staging(operation_); }
  std::size_t bounded_segment(std::size_t wanted, std::size_t grain, std::size_t slices,
                              schedules::Algorithm algorithm) const;

  Collective operation_;
  Topology topology_;
  const PlanConstants& costs_;
  const PlanOptions& options_;
  // The part of all ranks' work that one core of the fullest host does; 0: a core for every rank.
  double share_ = 0;
  double idle_ = 0;  // 1 - 1 / cores: the part of the cores that may be idle
};

std::size_t Estimator::bounded_segment(std::size_t wanted, std::size_t grain, std::size_t slices,
                                       schedules::Algorithm algorithm) const {
  if (cost_row(algorithm, operation_).eager_frames)
    wanted = std::min(wanted, transports::eager_bytes * slices);
  if (is_staged()) {
    const auto depth = static_cast<std::size_t>(options_.depth > 0 ? options_.depth
                                                                   : static_cast<int>(least_depth));
    wanted = std::min(wanted, options_.staging_bytes / depth);
  }
  return std::max(wanted / grain * grain, grain);
}

double waiting(const Traffic& traffic, const PlanLinkCosts& costs) {
  return traffic.hops * costs.latency_s + traffic.path_frames * costs.frame_s;
}

// One segment that is the whole buffer.
Line Estimator::alone(const Shape& shape) const {
  Line line;
  line.start = crowded(waiting(shape.host, costs_.host), waiting(shape.network, costs_.network),
                       shape.frames, 0, 0);
  line.slope = crowded(shape.host.path_bytes * costs_.host.seconds_per_byte +
                           shape.path_reduce * costs_.reduce_seconds_per_byte,
                       shape.network.path_bytes * costs_.network.seconds_per_byte, 0, shape.bytes,
                       shape.reduce);
  return line;
}

Line Estimator::pipelined(const Shape& shape, const Line& single, std::size_t segment_bytes) const {
  const auto bytes = static_cast<double>(segment_bytes);
  const double whole = single.at(bytes);
  double busy = shape.host.busy_frames * costs_.host.frame_s +
                shape.network.busy_frames * costs_.network.frame_s +
                (shape.host.busy_bytes * costs_.host.seconds_per_byte +
                 shape.busy_reduce * costs_.reduce_seconds_per_byte) *
                    bytes;
  busy = crowded(busy, 0, shape.frames, shape.bytes * bytes, shape.reduce * bytes);
  busy = std::max(busy, shape.network.busy_bytes * costs_.network.seconds_per_byte * bytes);
  double depth = options_.depth;
  if (options_.depth <= 0) {
    depth = std::clamp(busy > 0 ? std::ceil(whole / busy) + 1 : 1.0, double{least_depth},
                       double{most_depth});
    if (is_staged())
      depth =
          std::clamp(std::floor(static_cast<double>(options_.staging_bytes) / bytes), 1.0, depth);
  }
  // The time from one segment to the next.
  const double turn = std::min(whole, std::max(busy, whole / depth));
  return {std::max(single.start, whole - turn), turn / bytes, segment_bytes,
          static_cast<std::uint32_t>(depth)};
}

Estimate Estimator::estimate(schedules::Algorithm algorithm) const {
  const Shape shape = shape_of(algorithm, operation_, topology_);
  Estimate candidate{.algorithm = algorithm, .lines = {}};
  Line single = alone(shape);
  const auto slices = static_cast<std::size_t>(shape.slices);
  candidate.grain = options_.segment_bytes == 0 ? segment_grain * slices : 1;
  const auto add = [&](std::size_t segment_bytes) {
    candidate.lines[candidate.line_count++] = pipelined(shape, single, segment_bytes);
  };
  if (options_.segment_bytes != 0) {
    add(bounded_segment(options_.segment_bytes, candidate.grain, slices, algorithm));
  } else {
    const std::size_t most = cost_row(algorithm, operation_).most_frame_bytes;
    for (const std::size_t frame : frame_ladder)
      add(bounded_segment(std::min(frame, most) * slices, candidate.grain, slices, algorithm));
  }
  // The line for one segment. Where its slope is below that of every pipeline, it gets the slope of
  // the best one, because large buffers are cut into several segments anyway.
  const Line* flattest = &candidate.lines[0];
  for (std::size_t i = 1; i < candidate.line_count; ++i)
    if (candidate.lines[i].slope < flattest->slope) flattest = &candidate.lines[i];
  single.slope = std::max(single.slope, flattest->slope);
  single.segment_bytes = flattest->segment_bytes;
  single.depth = flattest->depth;
  candidate.lines[candidate.line_count++] = single;
  return candidate;
}

bool allowed(schedules::Algorithm algorithm, Collective operation, const PlanOptions& options) {
  if (!schedules::supports(algorithm, operation)) return false;
  return !options.reproducible || is_reproducible(algorithm, operation);
}

bool worth_trying(const CostRow& row, const Topology& topology) {
  const bool two_levels = topology.hosts > 1 && topology.ranks_per_host > 1;
  return topology.ranks <= row.most_ranks && (row.levels == nullptr || two_levels);
}

[[noreturn]] void refuse(Collective operation, const PlanOptions& options) {
  if (!schedules::has_schedules(operation))
    throw Error(Errc::unsupported, fmt::format("{} has no algorithm to plan", name_of(operation)));
  std::string possible;
  for (int i = 0; i < schedules::algorithm_count; ++i)
    if (const auto algorithm = static_cast<schedules::Algorithm>(i);
        allowed(algorithm, operation, options))
      possible += fmt::format("{}{}", possible.empty() ? "" : ", ", schedules::name_of(algorithm));
  throw Error(Errc::unsupported,
              fmt::format("algorithm {} does not exist for {}{}; possible: {}",
                          options.algorithm ? schedules::name_of(*options.algorithm) : "unknown",
                          name_of(operation),
                          options.reproducible ? " with reproducible results" : "", possible));
}

Candidates collect(Collective operation, const Topology& topology, const PlanConstants& constants,
                   const PlanOptions& options) {
  const Estimator estimator(operation, topology, constants, options);
  Candidates candidates;
  for (int i = 0; i < schedules::algorithm_count; ++i) {
    const auto algorithm = static_cast<schedules::Algorithm>(i);
    if (!allowed(algorithm, operation, options)) continue;
    if (options.algorithm ? *options.algorithm == algorithm
                          : worth_trying(cost_row(algorithm, operation), topology))
      candidates.insert(estimator.estimate(algorithm));
  }
  if (candidates.count == 0) refuse(operation, options);
  return candidates;
}

// Walks the lower envelope from 0 to `bytes`. Returns the last one, in their order, of the
// candidates that were best on the way.
const Estimate& walk(const Candidates& candidates, double bytes) {
  const Estimate* chosen = candidates.begin();
  const Line* line = nullptr;
  double here = 0;
  while (here <= bytes) {
    const Line* next = nullptr;
    const Estimate* owner = nullptr;
    double there = std::numeric_limits<double>::infinity();
    for (const Estimate& candidate : candidates) {
      for (std::size_t i = 0; i < candidate.line_count; ++i) {
        const Line& other = candidate.lines[i];
        if (line != nullptr && other.slope >= line->slope) continue;
        const double meet =
            line == nullptr
                ? other.start
                : std::max(here, (other.start - line->start) / (line->slope - other.slope));
        if (next != nullptr && (meet > there || (meet == there && other.slope >= next->slope)))
          continue;
        next = &other;
        owner = &candidate;
        there = meet;
      }
    }
    if (next == nullptr || (line != nullptr && there > bytes)) break;
    if (line != nullptr) here = there;
    line = next;
    chosen = std::max(chosen, owner);
  }
  return *chosen;
}

Plan make_plan(const Estimate& candidate, std::size_t bytes) {
  const Line& line = candidate.best(static_cast<double>(bytes));
  Plan plan{.algorithm = candidate.algorithm,
            .segment_bytes = line.segment_bytes,
            .depth = static_cast<int>(line.depth),
            .seconds = line.at(static_cast<double>(bytes))};
  const std::size_t grain = candidate.grain;
  // Segments of equal size are better than a small last one.
  if (grain > 1 && bytes > line.segment_bytes) {
    const std::size_t segments = (bytes - 1) / line.segment_bytes + 1;
    plan.segment_bytes = std::min(line.segment_bytes, ((bytes - 1) / segments / grain + 1) * grain);
  }
  plan.segment_bytes = std::max(plan.segment_bytes, bytes / most_segments + 1);
  return plan;
}

}  // namespace

bool is_reproducible(schedules::Algorithm algorithm, Collective operation) noexcept {
  if (!schedules::is_reducing(operation)) return true;
  const std::size_t row = schedules::implementation_index(algorithm, operation);
  return row != schedules::no_implementation && schedules::implementations[row].in_rank_order;
}

Plan choose_plan(Collective operation, std::size_t bytes, const Topology& topology,
                 const PlanConstants& constants, const PlanOptions& options) {
  const Candidates candidates = collect(operation, topology, constants, options);
  return make_plan(walk(candidates, static_cast<double>(bytes)), bytes);
}

std::vector<Plan> list_plans(Collective operation, std::size_t bytes, const Topology& topology,
                             const PlanConstants& constants, const PlanOptions& options) {
  const Candidates candidates = collect(operation, topology, constants, options);
  const schedules::Algorithm chosen = walk(candidates, static_cast<double>(bytes)).algorithm;
  std::vector<Plan> plans;
  for (const Estimate& candidate : candidates) plans.push_back(make_plan(candidate, bytes));
  std::sort(plans.begin(), plans.end(), [&](const Plan& a, const Plan& b) {
    if ((a.algorithm == chosen) != (b.algorithm == chosen)) return a.algorithm == chosen;
    return a.seconds < b.seconds;
  });
  return plans;
}

}  // namespace rondo::plan
