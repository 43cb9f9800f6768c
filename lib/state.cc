// SPDX-License-Identifier: Apache-2.0
//
// A communicator from connect() to its end. Connecting leads from the place to transports, records
// of all ranks and the engine, and it succeeds on all ranks or on none.
#include "lib/state.h"

#include <fmt/format.h>

#include "base/interruption.h"
#include "base/log.h"
#include "base/text.h"
#include "lib/introduction.h"
#include "lib/metrics/path.h"
#include "lib/rendezvous/meeting.h"
#include "lib/rendezvous/rank_zero.h"
#include "lib/settings/environment.h"
#include "lib/settings/settings.h"
#include "lib/wire/constants.h"
#include "lib/wire/join_report.h"

namespace rondo::lib {

namespace {

// The destructor returns within two seconds: see communicator.h. At its end the control plane may
// take a quarter of a second. A collective that has not ended fails on all ranks, so few frames
// still matter then.
constexpr milliseconds leaving_timeout{1000}, linger_time{1500}, linger_time_in_a_collective{200},
    usual_patience{10'000};
// fail_together() waits this long for the verdict. Rank 0 answers at once. If it does not, this
// rank's own control plane decides within two seconds.
constexpr milliseconds verdict_time{3'000};
constexpr int most_depth = 1024;
constexpr std::int64_t most_recorded = 1'000'000, usually_recorded = 2000;
constexpr std::size_t longest_abort_text = 1000;

// How long an operation waits before rank 0 warns about it.
nanoseconds warn_after() {
  constexpr const char* name = "RONDO_WARN_AFTER";
  return settings::variable(name) == "0"
             ? milliseconds{}
             : settings::seconds_variable(name).value_or(usual_patience);
}

// How many operations are kept for the dump.
std::size_t recorded_operations() {
  return static_cast<std::size_t>(
      settings::whole_variable("RONDO_RECORDER", 0, most_recorded).value_or(usually_recorded));
}

void check_options(const Options& options, const rendezvous::Place& place) {
  if (!options.algorithm.empty() && !schedules::parse_algorithm(options.algorithm))
    throw Error(Errc::invalid_argument,
                fmt::format("algorithm is '{}'; possible are {}", options.algorithm,
                            schedules::algorithm_names()));
  if (options.deadline.count() <= 0)
    throw Error(Errc::invalid_argument,
                fmt::format("deadline is {} ms, it must be more than 0", options.deadline.count()));
  if (options.depth < 0 || options.depth > most_depth)
    throw Error(Errc::invalid_argument,
                fmt::format("depth is {}, it must be from 0 to {}", options.depth, most_depth));
  if (options.ranks_on_host < 0)
    throw Error(Errc::invalid_argument,
                fmt::format("ranks_on_host is {}, it must be at least 0", options.ranks_on_host));
  const auto check_rdma = [](const char* name, int value, int most) {
    if (value < -1 || value > most)
      throw Error(Errc::invalid_argument,
                  fmt::format("{} is {}, it must be from 0 to {}, or -1", name, value, most));
  };
  check_rdma("rdma_gid_index", options.rdma_gid_index, 255);
  check_rdma("rdma_traffic_class", options.rdma_traffic_class, 255);
  check_rdma("rdma_service_level", options.rdma_service_level, 15);
  if (options.metrics_period.count() < 0)
    throw Error(Errc::invalid_argument,
                fmt::format("metrics_period is {} ms, it must be more than 0",
                            options.metrics_period.count()));
  if (!options.metrics.empty()) {
    static_cast<void>(metrics::path_of(options.metrics, place.rank_outside(place.rank)));
    static_cast<void>(metrics::labels_of(options.metrics_labels, options.metrics, 0));
  }
  if (options.plan_constants && !wire::is_sane(*options.plan_constants))
    throw Error(Errc::invalid_argument,
                "plan_constants are out of range (docs/reference/planner.md): " +
                    format_constants(*options.plan_constants));
}

// Makes connect() fail on all ranks, after they have joined: tells the others over the control
// plane. Throws Error with the communicator's first failure, which may be another rank's.
[[noreturn]] void fail_together(control::Control& control, int rank, const std::exception& error) {
  operation::Failure failure = wire::failure_of(error);
  failure.cause = wire::could_not_connect(rank, failure.cause);
  failure.culprits = {rank};
  control.report(failure);
  const auto first = control.await_failure(base::after(base::Clock::now(), verdict_time));
  throw Error(first ? first->code : failure.code, first ? first->cause : failure.cause);
}

}  // namespace

CommunicatorState::CommunicatorState(const Options& options, const TransportFactory& factory)
    : CommunicatorState(options, rendezvous::resolve_place(options), factory) {}

CommunicatorState::CommunicatorState(const Options& options, const rendezvous::Place& place,
                                     const TransportFactory& factory)
    : options_(options), place_(place), factory_(factory) {
  const base::TimePoint began = base::Clock::now();
  const base::Interruption interruption(options_.interrupted);
  const transports::Blob record = prepare();
  joined_ = rendezvous::join(place_, options_, record);
  if (joined_.control) {
    joined_.control->start(connecting_);
    relay_.emplace(place_, hosts_, *joined_.control);
  }
  std::optional<operation::Failure> failure;
  try {
    connect_all();
    begin_metrics();
    list_for_signal();
    if (joined_.control) failure = joined_.control->await_ready(place_.deadline);
  } catch (const std::exception& error) {
    if (!joined_.control) throw;
    fail_together(*joined_.control, place_.rank, error);
  }
  // Either connect() returns on every rank, or it fails on every rank, with one cause.
  if (failure) throw Error(failure->code, failure->cause);
  if (relay_) relay_->begin(*engine_, *dumps_);
  if (!joined_.control) return;
  routes_.keep_room_for_links(options_.connections);
  warn_about_quota(hosts_.cores);
  introduce(place_, options_, hosts_, routes_, plans_, base::Clock::now() - began);
}

// Returns this rank's record. If it cannot join, no rank does.
transports::Blob CommunicatorState::prepare() {
  try {
    // A group of a split has the options of its parent.
    if (place_.group.empty()) {
      settings::fill_from_environment(options_);
      place_.between_hosts = settings::protection_of(options_);
    }
    if (place_.by_launcher != settings::ExchangeKind::none)
      rendezvous::meet_by_launcher(place_, options_);
    check_options(options_, place_);
    if (place_.size > 1) routes_.open(factory_, options_);
    plans_.prepare();
    if (place_.size == 1) return {};
    CoreShare cores = find_core_share(options_);
    if (place_.host_processors) cores.host = *place_.host_processors;
    return write_record(options_, cores, routes_.transports(), plans_.source(), plans_.constants());
  } catch (const std::exception& error) {
    const operation::Failure failure =
        rendezvous::fail_to_join(place_, options_, wire::failure_of(error));
    throw Error(failure.code, failure.cause);
  }
}

void CommunicatorState::connect_all() {
  if (place_.size > 1) {
    const std::vector<Record> records = read_records(joined_.records);
    hosts_ = map_hosts(records, place_.rank);
    routes_.connect(records, joined_.job);
    plans_.agree(records.front(), hosts_, routes_.by_rank(), *joined_.control);
  } else {
    hosts_.local_ranks = {place_.rank};
  }
  share_memory_of_gpus();
  dumps_.emplace(describe_job());
  engine_ = std::make_unique<engine::Engine>(
      engine::EngineOptions{place_.rank, place_.size, hosts_.cores.ranks_per_core,
                            settings::wait_mode_of(options_), options_.checksum,
                            options_.reproducible, gpu_chunk_bytes(options_.staging_bytes),
                            routes_.name(), hosts_.hosts, !options_.metrics.empty(), warn_after(),
                            recorded_operations(), on_failure(), core_check(routes_.transports())},
      routes_.by_rank(), routes_.all(), relay_ ? &*relay_ : nullptr);
  if (plans_.wanted() == schedules::Algorithm::direct && place_.size > 1 && !engine_->has_direct())
    throw Error(
        Errc::unsupported,
        fmt::format("algorithm direct needs all ranks on one host over shm; these are over {}",
                    routes_.name()));
  plans_.begin(engine_->has_direct(), gpu_lanes_.has_windows(), routes_.name());
  const Starting starting{
      place_,
      options_,
      *engine_,
      gpu_lanes_,
      {place_.size, gpu_staging_bytes(options_.staging_bytes, place_.size),
       gpu_chunk_bytes(options_.staging_bytes), engine_->waker(),
       [this](void* data, std::size_t bytes) { return routes_.register_memory(data, bytes); }}};
  collectives_.emplace(starting, plans_, bulk_order_);
  messages_.emplace(starting);
}

// Comes before the engine, whose thread drives the transports.
void CommunicatorState::share_memory_of_gpus() {
  const bool inside = plans_.inside_on_gpus();
  if (plans_.wanted() != schedules::Algorithm::direct && !inside) return;
  for (const auto& transport : routes_.transports()) {
    transports::Windows* const windows = transport->windows();
    if (windows == nullptr) continue;
    const std::span<const int> ranks = windows->ranks();
    if (!inside && ranks.size() == static_cast<std::size_t>(place_.size))
      return gpu_lanes_.share(place_.rank, *windows, ranks);
    if (inside && hosts_.local_ranks.size() > 1 && std::ranges::includes(ranks, hosts_.local_ranks))
      return gpu_lanes_.share(place_.rank, *windows, hosts_.local_ranks);
  }
}

void CommunicatorState::begin_metrics() {
  if (options_.metrics.empty()) return;
  const int rank = place_.rank_outside(place_.rank);
  listing_.emplace(metrics::path_of(options_.metrics, rank),
                   metrics::labels_of(options_.metrics_labels, options_.metrics, joined_.job),
                   options_.metrics_period, [this, rank] {
                     return metrics::Sample{rank, place_.ranks, routes_.name(), statistics(),
                                            engine_->tag_counts()};
                   });
}

void CommunicatorState::list_for_signal() {
  const auto number = recorder::signal_from_environment();
  if (!number) return;
  signal_.emplace(*number, [this] {
    try {
      const std::string path = dump({}, recorder::Why::signal);
      base::log_line(base::LogLevel::warning,
                     fmt::format("rank {}: a signal asked for the dump {}", place_.rank, path));
    } catch (const std::exception& error) {
      base::log_line(base::LogLevel::warning,
                     fmt::format("rank {}: {}", place_.rank, error.what()));
    }
  });
}

CommunicatorState::~CommunicatorState() {
  signal_.reset();
  const base::TimePoint began = base::Clock::now();
  if (joined_.control) {
    engine_->await_enqueued(began + operation::DeviceMemory::settle_time);
    const operation::RankStatus status = engine_->status();
    const std::uint64_t finished[lane_count] = {status.lanes[0].finished, status.lanes[1].finished};
    joined_.control->leave(finished, began + leaving_timeout);
  }
  const engine::Engine::Departure how = engine_->stop(began + linger_time);
  if (how == engine::Engine::Departure::in_order)
    routes_.linger(true, began + linger_time);
  else if (how == engine::Engine::Departure::in_a_collective)
    routes_.linger(false, base::Clock::now() + linger_time_in_a_collective);
  joined_.control.reset();
  listing_.reset();
  engine_.reset();
  gpu_lanes_.settle(place_.rank);
  attachments_.clear();
}

Statistics CommunicatorState::statistics() {
  Statistics result = engine().statistics();
  add_segments(result, routes_.transports());
  return result;
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
                                     fmt::format("rank {} called abort: {}", place_.rank, cause),
                                     -1,
                                     {place_.rank}};
    engine_->abort(failure);
  } catch (...) {  // no memory for the message: operations end at their deadlines
  }
}

recorder::Job CommunicatorState::describe_job() const {
  recorder::Job job{place_.rank,    place_.size,
                    place_.group,   place_.size > 1 ? joined_.job : rendezvous::fresh_job(),
                    routes_.name(), {},
                    hosts_.names,   settings::settings_in_force(options_)};
  for (const transports::Transport* const transport : routes_.by_rank())
    job.transports.emplace_back(transport == nullptr ? "self" : transport->name());
  return job;
}

std::function<std::string(const engine::Snapshot&)> CommunicatorState::on_failure() {
  if (dumps_->is_off()) return nullptr;
  return [this](const engine::Snapshot& seen) { return dumps_->failed(seen, heard()); };
}

std::string CommunicatorState::dump(std::string_view path, recorder::Why why) {
  return dumps_->write(engine().snapshot(), why, path, heard());
}

Memory CommunicatorState::allocate(std::size_t bytes, int device) {
  refuse_child();
  if (bytes == 0) return Memory();
  if (device >= 0) return Memory(gpu_lanes_.allocate(device, bytes));
  std::unique_ptr<transports::Allocation> allocation = routes_.allocate(bytes);
  Memory memory = allocation ? Memory(std::move(allocation)) : Memory(bytes);
  memory.keep(routes_.register_memory(memory.data(), memory.bytes()));
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
  if (device < 0) return routes_.register_memory(data, bytes);
  std::vector<std::unique_ptr<transports::Registration>> parts;
  if (auto part = name_call({"register_memory", place_.rank, place_.size}, [&] {
        return gpu_lanes_.register_memory(device, {static_cast<std::byte*>(data), bytes});
      }))
    parts.push_back(std::move(part));
  return {data, bytes, std::move(parts)};
}

}  // namespace rondo::lib
