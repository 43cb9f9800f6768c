// SPDX-License-Identifier: Apache-2.0
//
// A communicator from connect() to its end. Connecting leads from the place to transports, records
// of all ranks and the engine, and it succeeds on all ranks or on none. After that a call is
// checked, planned and handed to the engine; a call that repeats skips the first two
// (known_calls.h).
#include "lib/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/bytes.h"
#include "base/default_floats.h"
#include "base/interruption.h"
#include "base/log.h"
#include "base/mix.h"
#include "base/text.h"
#include "collectives/kernels/integer_mean.h"
#include "lib/connect_failure.h"
#include "lib/introduction.h"
#include "lib/measure_links.h"
#include "lib/metrics/path.h"
#include "lib/needs.h"
#include "lib/record.h"
#include "lib/rendezvous/meeting.h"
#include "lib/settings/environment.h"
#include "lib/settings/settings.h"
#include "lib/wire/constants.h"

namespace rondo::lib {

namespace {

// The destructor returns within two seconds: see communicator.h. At its end the control plane may
// take a quarter of a second. A collective that has not ended fails on all ranks, so few frames
// still matter then.
constexpr milliseconds leaving_timeout{1000}, linger_time{1500}, linger_time_in_a_collective{200},
    usual_patience{10'000};
constexpr std::size_t most_plans = 1024;
constexpr int most_depth = 1024;
constexpr std::size_t longest_abort_text = 1000;

// How long an operation waits before rank 0 warns about it.
nanoseconds warn_after() {
  constexpr const char* name = "RONDO_WARN_AFTER";
  return settings::variable(name) == "0"
             ? milliseconds{}
             : settings::seconds_variable(name).value_or(usual_patience);
}

// Says why a transport that this rank allows does not reach `rank`.
std::string allowed_by(int rank, const Record& record) {
  std::string names;
  for (const auto& one : record.addresses) names += (names.empty() ? "" : ",") + one.first;
  return fmt::format(
      "rank {} allows only {}; set RONDO_TRANSPORT (Options::transports) alike on all ranks", rank,
      names);
}

}  // namespace

CommunicatorState::CommunicatorState(const Options& options, const TransportFactory& factory)
    : CommunicatorState(options, rendezvous::resolve_place(options), factory) {}

CommunicatorState::CommunicatorState(const Options& options, const rendezvous::Place& place,
                                     const TransportFactory& factory)
    : options_(options), place_(place), factory_(factory) {
  const base::TimePoint began = base::Clock::now();
  const base::Interruption interruption(options_.interrupted);
  transports::Blob record;
  try {
    // A group of a split has the options of its parent.
    if (place_.group.empty()) {
      settings::fill_from_environment(options_);
      place_.between_hosts = settings::protection_of(options_);
    }
    if (place_.by_launcher != settings::ExchangeKind::none)
      rendezvous::meet_by_launcher(place_, options_);
    check_options();
    if (place_.size > 1) {
      reserve_descriptors_to_join(place_, options_, later_descriptors_);
      transports_ = factory_(place_, options_);
      record = make_record();
    }
  } catch (const std::exception& error) {
    fail_before_joining(place_, options_, error);
  }
  joined_ = rendezvous::join(place_, options_, record);
  if (joined_.control) joined_.control->start(*this);
  std::optional<operation::Failure> failure;
  try {
    connect_all();
    if (joined_.control) failure = joined_.control->await_ready(place_.deadline);
  } catch (const std::exception& error) {
    if (!joined_.control) throw;
    fail_together(*joined_.control, place_.rank, error);
  }
  // Either connect() returns on every rank, or it fails on every rank, with one cause.
  if (failure) throw Error(failure->code, failure->cause);
  if (!joined_.control) {
    begin_metrics();
    return;
  }
  begin_work();
  begin_metrics();
  keep_room_for_links();
  warn_about_quota(host_cores_);
  introduce({place_, options_, hosts_, routes_, passed_over_, constants_source(), constants_,
             host_cores_, base::Clock::now() - began});
}

void CommunicatorState::check_options() const {
  if (!options_.algorithm.empty() && !schedules::parse_algorithm(options_.algorithm))
    throw Error(Errc::invalid_argument,
                fmt::format("algorithm is '{}'; possible are {}", options_.algorithm,
                            schedules::algorithm_names()));
  if (options_.deadline.count() <= 0)
    throw Error(Errc::invalid_argument, fmt::format("deadline is {} ms, it must be more than 0",
                                                    options_.deadline.count()));
  if (options_.depth < 0 || options_.depth > most_depth)
    throw Error(Errc::invalid_argument,
                fmt::format("depth is {}, it must be from 0 to {}", options_.depth, most_depth));
  if (options_.ranks_on_host < 0)
    throw Error(Errc::invalid_argument,
                fmt::format("ranks_on_host is {}, it must be at least 0", options_.ranks_on_host));
  const auto check_rdma = [](const char* name, int value, int most) {
    if (value < -1 || value > most)
      throw Error(Errc::invalid_argument,
                  fmt::format("{} is {}, it must be from 0 to {}, or -1", name, value, most));
  };
  check_rdma("rdma_gid_index", options_.rdma_gid_index, 255);
  check_rdma("rdma_traffic_class", options_.rdma_traffic_class, 255);
  check_rdma("rdma_service_level", options_.rdma_service_level, 15);
  if (options_.metrics_period.count() < 0)
    throw Error(Errc::invalid_argument,
                fmt::format("metrics_period is {} ms, it must be more than 0",
                            options_.metrics_period.count()));
  if (!options_.metrics.empty()) {
    static_cast<void>(metrics::path_of(options_.metrics, place_.rank_outside(place_.rank)));
    static_cast<void>(metrics::labels_of(options_.metrics_labels, options_.metrics, 0));
  }
  if (options_.plan_constants && !wire::is_sane(*options_.plan_constants))
    throw Error(Errc::invalid_argument,
                "plan_constants are out of range (docs/reference/planner.md): " +
                    format_constants(*options_.plan_constants));
}

void CommunicatorState::connect_all() {
  plan_options_ = {
      options_.algorithm.empty() ? std::nullopt : schedules::parse_algorithm(options_.algorithm),
      options_.segment_bytes, options_.depth, options_.staging_bytes / lane_count,
      options_.reproducible};
  topology_.ranks = place_.size;
  std::vector<transports::Transport*> routes(static_cast<std::size_t>(place_.size), nullptr), all;
  if (place_.size > 1) {
    routes = connect_transports();
    routes_.assign(routes.begin(), routes.end());
    settle_constants(routes);
    for (const auto& t : transports_) all.push_back(t.get());
  }
  const std::span<const int> local = hosts_.on(hosts_.host(place_.rank));
  local_ranks_.assign(local.begin(), local.end());
  if (place_.size == 1) local_ranks_ = {place_.rank};
  share_memory_of_gpus();
  engine::EngineObserver* const observer = place_.size > 1 ? this : nullptr;
  engine_ = std::make_unique<engine::Engine>(
      engine::EngineOptions{place_.rank, place_.size, host_cores_.ranks_per_core,
                            settings::wait_mode_of(options_), options_.checksum,
                            options_.reproducible, gpu_chunk_bytes(options_.staging_bytes),
                            transport_name_, hosts_, !options_.metrics.empty(), warn_after(),
                            core_check(transports_)},
      std::move(routes), std::move(all), observer);
  if (plan_options_.algorithm == schedules::Algorithm::direct && place_.size > 1 &&
      !engine_->has_direct())
    throw Error(
        Errc::unsupported,
        fmt::format("algorithm direct needs all ranks on one host over shm; these are over {}",
                    transport_name_));
}

CommunicatorState::~CommunicatorState() {
  const base::TimePoint began = base::Clock::now();
  if (joined_.control) {
    engine_->await_enqueued(began + operation::GpuPort::settle_time);
    const operation::RankStatus status = engine_->status();
    const std::uint64_t finished[lane_count] = {status.lanes[0].finished, status.lanes[1].finished};
    joined_.control->leave(finished, began + leaving_timeout);
  }
  const engine::Engine::Departure how = engine_->stop(began + linger_time);
  if (how == engine::Engine::Departure::in_order)
    linger(true, began + linger_time);
  else if (how == engine::Engine::Departure::in_a_collective)
    linger(false, base::Clock::now() + linger_time_in_a_collective);
  joined_.control.reset();
  listing_.reset();
  engine_.reset();
  gpu_lanes_.settle(place_.rank);
  attachments_.clear();
}

void CommunicatorState::keep_room_for_links() {
  DescriptorShape shape;
  shape.connections = options_.connections;
  for (const transports::Transport* const route : routes_) {
    if (route == nullptr) continue;
    shape.tcp_peers += route->name() == "tcp" ? 1 : 0;
    shape.rdma_peers += route->name() == "rdma" ? 1 : 0;
  }
  later_descriptors_.set(descriptors_of_links(shape));
}

// The last messages to a rank that has not called receive yet may still be in the sockets of this
// process. The control plane goes on meanwhile: the others learn from rank 0 who has left.
void CommunicatorState::linger(bool warns, base::TimePoint until) noexcept {
  try {
    for (const auto& transport : transports_) {
      const std::vector<int> late = transport->linger(until);
      if (late.empty() || !warns) continue;
      base::log_line(
          base::LogLevel::warning,
          fmt::format(
              "rank {} leaves before all that it has sent has reached {}, which may not have "
              "called receive. The kernel goes on sending for some minutes; to be sure, end "
              "with a barrier",
              place_.rank, base::list_of_ranks(late)));
    }
  } catch (...) {  // no memory: what is not delivered may be lost
  }
}

std::string CommunicatorState::constants_source() const {
  switch (cost_source_) {
    case CostSource::given:
      return place_.constants          ? "those of the communicator that this one is a part of"
             : options_.plan_constants ? "given by the program"
                                       : "from " + options_.constants;
    case CostSource::measured:
      return "measured while connecting";
    case CostSource::measured_between_hosts:
      if (hosts_.count() > 1) return "measured while connecting";
      break;
    case CostSource::defaults:
      break;
  }
  return "the defaults (RONDO_MEASURE=1 measures within a host too)";
}

CostSource CommunicatorState::find_cost_source() {
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

// Makes all ranks use rank 0's constants.
void CommunicatorState::settle_constants(const std::vector<transports::Transport*>& routes) {
  if (cost_source_ == CostSource::measured_between_hosts && hosts_.count() == 1) return;
  if (cost_source_ == CostSource::defaults || cost_source_ == CostSource::given) return;
  const base::TimePoint until = place_.deadline;
  const MeasurePlan plan = plan_measurement(hosts_, place_.size, first_host_crowded_);
  if (place_.rank == 0) {
    constants_ = wire::make_sane(measure_links(plan, routes, {}, until));
    joined_.control->publish(constants_);
    return;
  }
  if (place_.rank == plan.same_host || place_.rank == plan.other_host)
    answer_measurement(routes, until);
  // No answer means that the communicator has failed or time is up. await_ready() then throws the
  // cause.
  if (const auto agreed = joined_.control->await_constants(until)) constants_ = *agreed;
}

transports::Blob CommunicatorState::make_record() {
  cost_source_ = find_cost_source();
  CoreShare cores = find_core_share(options_);
  if (place_.host_processors) cores.host = *place_.host_processors;
  return write_record(options_, cores, transports_, cost_source_, constants_);
}

// Chooses the nearest transport to each peer. Both ends make the same choice, because distance is
// symmetric.
std::vector<transports::Transport*> CommunicatorState::connect_transports() {
  const std::vector<Record> records = read_records(joined_.records);
  hosts_ = group_by_host(records);
  for (const Record& one : records) host_names_.push_back(one.name);
  cost_source_ = records.front().costs;
  if (cost_source_ == CostSource::given) constants_ = records.front().constants;
  topology_ = plan::topology_of(hosts_, place_.size, cores_of(records, hosts_));
  host_cores_ = cores_on(records, hosts_.on(hosts_.host(place_.rank)));
  first_host_crowded_ = cores_on(records, hosts_.on(0)).crowded();
  std::vector<transports::Transport*> routes(records.size(), nullptr);
  passed_over_.resize(records.size());
  std::set<std::string> names;
  const bool may_use_tcp =
      std::ranges::any_of(transports_, [](const auto& one) { return one->name() == "tcp"; });
  for (int peer = 0; peer < place_.size; ++peer) {
    if (peer == place_.rank) continue;
    std::string why;
    std::optional<int> best;
    for (const auto& t : transports_) {
      const auto address = records[static_cast<std::size_t>(peer)].addresses.find(t->name());
      const transports::Reach reach =
          address != records[static_cast<std::size_t>(peer)].addresses.end()
              ? t->reach(peer, address->second)
              : transports::Reach{{}, allowed_by(peer, records[static_cast<std::size_t>(peer)])};
      if (!reach.distance)
        why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", t->name(), reach.why);
      if (!reach.distance || (best && *best <= *reach.distance)) continue;
      best = reach.distance;
      routes[static_cast<std::size_t>(peer)] = t.get();
    }
    if (!best)
      throw Error(Errc::rendezvous,
                  fmt::format("rank {} cannot reach rank {}: {}{}", place_.rank, peer, why,
                              may_use_tcp ? "" : "; RONDO_TRANSPORT does not allow tcp"));
    names.emplace(routes[static_cast<std::size_t>(peer)]->name());
    passed_over_[static_cast<std::size_t>(peer)] = std::move(why);
  }
  drop_idle_transports(routes);
  transport_name_.clear();
  for (const std::string& name : names)
    transport_name_ += (transport_name_.empty() ? "" : "+") + name;
  for (const auto& t : transports_) {
    std::vector<transports::Blob> addresses;
    for (const Record& r : records) {
      const auto found = r.addresses.find(t->name());
      addresses.push_back(found != r.addresses.end() ? found->second : transports::Blob{});
    }
    t->start(std::move(addresses), joined_.job);
  }
  return routes;
}

// A transport without a route has a thread, listens and takes descriptors for nothing. Peers do not
// miss it: distance is symmetric, so they do not use it for this rank either.
void CommunicatorState::drop_idle_transports(const std::vector<transports::Transport*>& routes) {
  address_ = transports_.back()->identity().text;
  const auto is_idle = [&](const std::unique_ptr<transports::Transport>& transport) {
    return std::ranges::find(routes, transport.get()) == routes.end();
  };
  const std::lock_guard lock(starting_mutex_);
  std::erase_if(transports_, is_idle);
}

std::string CommunicatorState::describe_peer(int peer) const {
  if (peer < 0 || peer >= place_.size)
    throw Error(Errc::invalid_argument,
                fmt::format("there is no rank {}: ranks go from 0 to {}", peer, place_.size - 1));
  const auto rank = static_cast<std::size_t>(peer);
  if (rank >= routes_.size() || routes_[rank] == nullptr) return {};
  const std::string how = routes_[rank]->describe_peer(peer);
  return fmt::format("{}{}{}", routes_[rank]->name(), how.empty() ? "" : ", ", how);
}

std::string CommunicatorState::address() const {
  return address_;
}

plan::Plan CommunicatorState::plan(Collective operation, std::size_t count, DType type,
                                   bool staged) {
  refuse_child();
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
      engine_->has_direct() && schedules::has_direct_form(operation) &&
      (staged ? gpu_lanes_.has_windows() && plan_options_.algorithm == direct.algorithm
              : plan_options_.algorithm.value_or(direct.algorithm) == direct.algorithm);
  // It is remembered only for the log, which tells each plan once.
  if (is_direct && !base::log_enabled(base::LogLevel::info)) return direct;
  const std::lock_guard lock(plans_mutex_);
  Plans& plans = (staged ? staged_plans_ : plans_)[static_cast<std::size_t>(operation)];
  if (const auto found = plans.find(bytes); found != plans.end()) return found->second;
  if (plans.size() >= most_plans) plans.clear();
  if (is_direct) return remember(plans, operation, bytes, direct);
  const base::DefaultFloats floats;
  // The wanted algorithm counts only for operations that have it.
  plan::PlanOptions options = plan_options_;
  if (options.algorithm && !schedules::supports(*options.algorithm, operation))
    options.algorithm.reset();
  options.staged = staged;
  if (staged) options.staging_bytes = gpu_staging_bytes(options_.staging_bytes, place_.size);
  return remember(plans, operation, bytes,
                  plan::choose_plan(operation, bytes, topology_, constants_, options));
}

// For a size that is new or was forgotten.
const plan::Plan& CommunicatorState::remember(Plans& plans, Collective operation,
                                              std::uint64_t bytes, const plan::Plan& plan) {
  if (place_.size > 1) log_plan(place_, operation, bytes, plan, transport_name_);
  return plans.emplace(bytes, plan).first->second;
}

namespace {

std::uint64_t hash_of(std::span<const std::size_t> counts) noexcept {
  std::uint64_t hash = counts.size();
  for (const std::size_t count : counts) hash = base::mix_hash(hash, count);
  return hash;
}

// Returns how many elements the segments cut.
std::size_t largest_block(const Arguments& a, std::size_t count) noexcept {
  if (schedules::has_counts(a.operation))
    return *std::max_element(a.counts.begin(), a.counts.end());
  return schedules::cut_elements(a.operation, count, static_cast<std::size_t>(a.size));
}

// value_bytes: of an element, as it travels. most_bytes: of the segments in flight together, if at
// least one element of each block fits.
void cut_into_segments(schedules::Call& call, const Arguments& a, const plan::Plan& plan,
                       std::size_t value_bytes, std::size_t most_bytes) noexcept {
  const schedules::Signature& s = call.signature;
  const std::size_t blocks = a.traits().blocks ? static_cast<std::size_t>(a.size) : 1;
  call.segment_elements =
      std::max<std::size_t>(1, std::min(plan.segment_bytes, most_bytes) / blocks / value_bytes);
  const std::uint64_t most_depth_here = most_bytes / (call.segment_elements * blocks * value_bytes);
  // A depth above the number of segments would only make the order of frames longer to compute.
  const std::uint64_t segments = largest_block(a, s.count) / call.segment_elements + 1;
  call.depth = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(static_cast<std::uint64_t>(std::max(1, plan.depth)), 1,
                                std::max<std::uint64_t>(1, std::min(segments, most_depth_here))));
}

}  // namespace

// Hashes all counts and everything that shapes frames but is not an argument: ranks that differ in
// these must notice.
std::uint64_t CommunicatorState::plan_hash(const schedules::Call& call,
                                           std::uint64_t counts) const noexcept {
  const bool inside = call.signature.on_gpu && wants_gpus_inside();
  const std::uint64_t settings = static_cast<std::uint64_t>(call.depth) |
                                 static_cast<std::uint64_t>(options_.checksum) << 32 |
                                 static_cast<std::uint64_t>(options_.reproducible) << 33 |
                                 static_cast<std::uint64_t>(inside) << 34;
  return base::mix_hash(base::mix_hash(counts, call.segment_elements), settings);
}

Work CommunicatorState::start(const Arguments& a) {
  refuse_child();
  schedules::Call call = find_call(a);
  if (a.options->priority == Priority::bulk) bulk_order_.check(place_.rank, a.operation);
  call.tag = a.options->tag;
  call.unattended = a.options->unattended;
  if (call.signature.on_gpu && call.in_bytes + call.out_bytes != 0) return start_on_gpu(a, call);
  return Work(engine_->start(call));
}

// Checks and plans calls that are new.
schedules::Call CommunicatorState::find_call(const Arguments& a) {
  const auto lane = static_cast<std::size_t>(a.options->priority);
  if (lane < known_calls_.size())
    if (const schedules::Call* const known = known_calls_[lane].find(a)) return *known;
  check_arguments(a);
  if (a.device() >= 0) gpu_lanes_.check_buffers(a);
  const schedules::Call call = make_call(a);
  known_calls_[lane].keep(a, call);
  return call;
}

schedules::Call CommunicatorState::make_call(const Arguments& a) {
  // The buffer that gives the call its count: the larger one if each rank has a count of its own,
  // else the smaller one.
  const base::Traits& traits = a.traits();
  const bool reads = a.reads_in(), writes = a.writes_out(), has_counts = traits.has_counts();
  const bool shape_of_out = !reads || (has_counts ? traits.gathers() : traits.scatters());
  const Buffer& shape = shape_of_out ? a.out : a.in;
  const bool staged = a.device() >= 0;
  // Elements of a mean of integers travel in more bytes, and lie in staging memory.
  const kernels::IntegerMean* const mean =
      traits.reduces ? kernels::find_integer_mean(shape.type, a.op) : nullptr;
  const plan::Plan chosen = mean != nullptr
                                ? plan(a.operation, shape.count * mean->parts, DType::i64, staged)
                                : plan(a.operation, shape.count, shape.type, staged);
  const std::uint64_t counts = has_counts ? hash_of(a.counts) : 1;
  schedules::Call call;
  call.signature = {
      a.operation,
      shape.type,
      a.op,
      chosen.algorithm,
      static_cast<std::uint32_t>(has_counts ? counts : static_cast<std::uint64_t>(a.root)),
      shape.count,
      a.options->scale.value_or(1.0),
      0,
      staged};
  call.input_scale = a.options->input_scale.value_or(1.0);
  call.in = static_cast<const std::byte*>(reads ? a.in.data : a.out.data);
  call.out = static_cast<std::byte*>(a.out.data);
  call.in_bytes = reads ? a.in.count * size_of(a.in.type) : 0;
  call.out_bytes = writes ? a.out.count * size_of(a.out.type) : 0;
  call.counts = a.counts;
  call.priority = a.options->priority;
  if (chosen.algorithm == schedules::Algorithm::direct)
    call.segment_elements =
        staged ? gpu_chunk_bytes(options_.staging_bytes) : 1;  // for plan_hash()
  else
    cut_into_segments(call, a, chosen, mean != nullptr ? mean->bytes() : size_of(shape.type),
                      staged            ? gpu_staging_bytes(options_.staging_bytes, place_.size)
                      : mean != nullptr ? plan_options_.staging_bytes
                                        : SIZE_MAX);
  call.time_limit = std::min(
      a.options->deadline.count() > 0 ? a.options->deadline : options_.deadline, longest_deadline);
  call.signature.plan = plan_hash(call, counts);
  return call;
}

void CommunicatorState::abort(std::error_code why, std::string_view text) noexcept {
  if (in_other_process()) return;
  try {
    if (!why) why = Errc::aborted;
    const std::string shown =
        base::printable(std::string(base::first_bytes(text, longest_abort_text)));
    // Errc::aborted adds nothing to a text.
    const std::string cause = base::trim(shown).empty() ? base::printable(why.message())
                              : why == Errc::aborted
                                  ? shown
                                  : base::printable(why.message()) + ": " + shown;
    const operation::Failure failure{Errc::aborted,
                                     fmt::format("rank {} called abort: {}", place_.rank, cause)};
    engine_->abort(failure);
  } catch (...) {  // no memory for the message: operations end at their deadlines
  }
}

Memory CommunicatorState::allocate(std::size_t bytes, int device) {
  refuse_child();
  if (bytes == 0) return Memory();
  if (device >= 0) return Memory(gpu_lanes_.allocate(device, bytes));
  std::unique_ptr<transports::Allocation> allocation;
  for (const auto& transport : transports_)
    if (!allocation) allocation = transport->allocate(bytes);
  Memory memory = allocation ? Memory(std::move(allocation)) : Memory(bytes);
  memory.keep(register_with_all(memory.data(), memory.bytes()));
  return memory;
}

Registration CommunicatorState::register_memory(void* data, std::size_t bytes, int device) {
  refuse_child();
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (data == nullptr || bytes == 0 || bytes - 1 > UINTPTR_MAX - address)
    throw Error(Errc::invalid_argument,
                data == nullptr ? std::string("register_memory: data is null")
                : bytes == 0
                    ? std::string("register_memory: there are no bytes to register")
                    : fmt::format("register_memory: {} bytes from {} on do not fit into the "
                                  "address space",
                                  bytes, data));
  if (device < 0) return register_with_all(data, bytes);
  std::vector<std::unique_ptr<transports::Registration>> parts;
  if (auto part = name_call({"register_memory", place_.rank, place_.size}, [&] {
        return gpu_lanes_.register_memory(device, {static_cast<std::byte*>(data), bytes});
      }))
    parts.push_back(std::move(part));
  return {data, bytes, std::move(parts)};
}

Registration CommunicatorState::register_with_all(void* data, std::size_t bytes) const {
  std::vector<std::unique_ptr<transports::Registration>> parts;
  for (const auto& transport : transports_)
    if (auto part = transport->register_memory({static_cast<std::byte*>(data), bytes}))
      parts.push_back(std::move(part));
  return {data, bytes, std::move(parts)};
}

}  // namespace rondo::lib
