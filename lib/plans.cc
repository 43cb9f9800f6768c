// SPDX-License-Identifier: Apache-2.0
#include "lib/plans.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/default_floats.h"
#include "base/log.h"
#include "lib/arguments.h"
#include "lib/gpu_lanes.h"
#include "lib/introduction.h"
#include "lib/measure_links.h"
#include "lib/wire/constants.h"

namespace rondo::lib {

namespace {

constexpr std::size_t most_plans = 1024;

}  // namespace

void Plans::prepare() {
  wanted_ = {
      options_.algorithm.empty() ? std::nullopt : schedules::parse_algorithm(options_.algorithm),
      options_.segment_bytes, options_.depth, options_.staging_bytes / lane_count,
      options_.reproducible};
  topology_.ranks = place_.size;
  if (place_.size > 1) source_ = find_source();
}

CostSource Plans::find_source() {
  if (place_.rank != 0) return CostSource::defaults;
  if (place_.constants)
    constants_ = *place_.constants;
  else if (options_.plan_constants)
    constants_ = *options_.plan_constants;
  else if (!options_.constants.empty())
    constants_ = read_constants(options_.constants);
  else if (!options_.measure)
    return CostSource::measured_between_hosts;
  else
    return *options_.measure ? CostSource::measured : CostSource::defaults;
  return CostSource::given;
}

void Plans::agree(const Record& rank_zero, const HostMap& hosts,
                  const std::vector<transports::Transport*>& routes, control::Control& control) {
  topology_ = hosts.topology;
  source_ = rank_zero.costs;
  if (source_ == CostSource::given) constants_ = rank_zero.constants;
  if (source_ == CostSource::measured ||
      (source_ == CostSource::measured_between_hosts && topology_.hosts > 1))
    measure(hosts, routes, control);
}

void Plans::measure(const HostMap& hosts, const std::vector<transports::Transport*>& routes,
                    control::Control& control) {
  const base::TimePoint until = place_.deadline;
  const MeasurePlan plan = plan_measurement(hosts.hosts, place_.size, hosts.first_crowded);
  if (place_.rank == 0) {
    constants_ = wire::make_sane(measure_links(plan, routes, {}, until));
    control.publish(constants_);
    return;
  }
  if (place_.rank == plan.same_host || place_.rank == plan.other_host)
    answer_measurement(routes, until);
  // No answer means that the communicator has failed or time is up. await_ready() then throws the
  // cause.
  if (const auto agreed = control.await_constants(until)) constants_ = *agreed;
}

std::string Plans::describe_source() const {
  switch (source_) {
    case CostSource::given:
      return place_.constants          ? "those of the communicator that this one is a part of"
             : options_.plan_constants ? "given by the program"
                                       : "from " + options_.constants;
    case CostSource::measured:
      return "measured while connecting";
    case CostSource::measured_between_hosts:
      if (topology_.hosts > 1) return "measured while connecting";
      break;
    case CostSource::defaults:
      break;
  }
  return "the defaults (RONDO_MEASURE=1 measures within a host too)";
}

void Plans::begin(bool direct, bool direct_on_gpus, const std::string& transports) {
  direct_ = direct;
  direct_on_gpus_ = direct_on_gpus;
  transports_ = transports;
}

plan::Plan Plans::choose(Collective operation, std::size_t count, DType type, bool staged) {
  if (static_cast<int>(operation) >= collective_count || !is_valid(type))
    throw Error(Errc::invalid_argument, "the operation or the element type does not exist");
  if (count > most_elements)
    throw Error(Errc::invalid_argument,
                fmt::format("count is {}, more than memory can hold", count));
  const std::size_t blocks =
      schedules::counts_one_block(operation) ? static_cast<std::size_t>(place_.size) : 1;
  const std::uint64_t bytes = count * size_of(type) * blocks;
  const plan::Plan direct{.algorithm = schedules::Algorithm::direct,
                          .segment_bytes = std::max<std::size_t>(bytes, 1)};
  const bool is_direct =
      direct_ && schedules::has_direct_form(operation) &&
      (staged ? direct_on_gpus_ && wanted_.algorithm == direct.algorithm
              : wanted_.algorithm.value_or(direct.algorithm) == direct.algorithm);
  // It is remembered only for the log, which tells each plan once.
  if (is_direct && !base::log_enabled(base::LogLevel::info)) return direct;
  const std::lock_guard lock(mutex_);
  BySize& plans = (staged ? staged_plans_ : plans_)[static_cast<std::size_t>(operation)];
  if (const auto found = plans.find(bytes); found != plans.end()) return found->second;
  if (plans.size() >= most_plans) plans.clear();
  if (is_direct) return remember(plans, operation, bytes, direct);
  const base::DefaultFloats floats;
  // The wanted algorithm counts only for operations that have it.
  plan::PlanOptions options = wanted_;
  if (options.algorithm && !schedules::supports(*options.algorithm, operation))
    options.algorithm.reset();
  options.staged = staged;
  if (staged) options.staging_bytes = gpu_staging_bytes(options_.staging_bytes, place_.size);
  return remember(plans, operation, bytes,
                  plan::choose_plan(operation, bytes, topology_, constants_, options));
}

// For a size that is new or was forgotten.
const plan::Plan& Plans::remember(BySize& plans, Collective operation, std::uint64_t bytes,
                                  const plan::Plan& plan) {
  if (place_.size > 1) log_plan(place_, operation, bytes, plan, transports_);
  return plans.emplace(bytes, plan).first->second;
}

}  // namespace rondo::lib
