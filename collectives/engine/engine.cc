// SPDX-License-Identifier: Apache-2.0
//
// One pass over owners and transports moves all operations of a communicator, under one lock. Each
// operation ends here, once: when its owner reports it finished, or when the communicator fails.
// Callbacks and reports wait until the lock is free, because they may call the engine.
#include "collectives/engine/engine.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include <rondo/communicator.h>

#include "base/default_floats.h"
#include "base/log.h"
#include "base/mutex.h"

namespace rondo::engine {

Engine::Engine(const EngineOptions& options, std::vector<transports::Transport*> routes,
               std::vector<transports::Transport*> transports, EngineObserver* observer)
    : options_(options),
      routes_(std::move(routes)),
      transports_(std::move(transports)),
      driver_(*this,
              Waiting(options.wait, options.size > 1 ? wake_time() : nanoseconds{},
                      options.ranks_per_core),
              transports_.size() == 1 ? transports_.front()->wake_source().word : nullptr),
      waker_(std::make_shared<operation::Waker>(driver_.bell())),
      verdict_(observer),
      tags_(options.counts_tags ? std::make_optional<operation::TagCounts>() : std::nullopt),
      calls_{operation::LaneCalls(options.rank, transports::Lane::bulk, options.size, tags()),
             operation::LaneCalls(options.rank, transports::Lane::urgent, options.size, tags()),
             operation::LaneCalls(options.rank, transports::Lane::messages, options.size, tags())},
      times_(calls_, verdict_, options.warn_after),
      owners_(options_, *this, transports_, calls_, verdict_, *this),
      starter_(options_, *this, {calls_, owners_, verdict_, departures_, *this}),
      has_direct_(owners_.has_direct()),
      two_level_(owners_.two_level()),
      recorder_(options.recorded) {
  for (transports::Transport* transport : transports_) transport->open(owners_.sinks());
  if (options_.size > 1) driver_.start_background();
}

lanes::StagesInside Engine::stages_inside(const schedules::Signature& signature) const noexcept {
  return two_level_ != nullptr ? two_level_->stages_of(signature) : lanes::StagesInside{};
}

Engine::~Engine() {
  stop(base::Clock::now());
  waker_->detach();
}

// Starting and waiting.

template <class Call>
operation::Operation* Engine::start_call(const Call& call, const operation::DeviceCall* device) {
  const base::Locked lock(driver_.mutex());
  if constexpr (std::is_same_v<Call, point::PointCall>)
    switch (device == nullptr ? starter_.send_at_once(call) : transports::Send::full) {
      case transports::Send::full:
        break;
      case transports::Send::done:
        return sent_at_once(call);
      default:
        return started(await_sent(call), call.unattended);
    }
  const base::DefaultFloats floats;
  if (device != nullptr) prepare(*device);
  return started(starter_.start(call, device), call.unattended);
}
template operation::Operation* Engine::start_call(const schedules::Call&,
                                                  const operation::DeviceCall*);
template operation::Operation* Engine::start_call(const point::PointCall&,
                                                  const operation::DeviceCall*);

// The device ends such a call while nobody waits, also where there is no other rank.
void Engine::prepare(const operation::DeviceCall& device) {
  driver_.start_background();
  if (verdict_.failure() != nullptr || !device.memory.wants_spares(device.stream)) return;
  {
    const base::Unlocked unlocked(driver_.mutex());
    device.memory.make_spares();
  }
  device.memory.add_spares();
}

operation::Operation* Engine::started(operation::Operation& operation, bool unattended) {
  if (tags_) tags_->count(operation.tag, operation.kind());
  const auto running = [&] { return operation.state() == operation::Operation::State::running; };
  if (const operation::Failure* const failure = verdict_.failure()) fail_calls(*failure);
  if (running()) times_.call_started();
  const bool moved = running() && (a_look_is_enough(operation) ? look_for(operation) : pass());
  driver_.operation_started({running(), moved, unattended});
  deliver();
  return &operation;
}

// A program whose calls all end at their start never waits, so other peers and deadlines get a pass
// at some starts.
bool Engine::pass_is_due() {
  constexpr unsigned starts_between_passes = 16;
  return ++starts_ % starts_between_passes == 0;
}

// Whether nothing else is under way, the memory is free and on the host, and no schedule runs the
// call.
bool Engine::a_look_is_enough(const operation::Operation& operation) {
  if (pass_is_due()) return false;
  const operation::CollectiveOperation* const call = operation.collective();
  const bool scheduled =
      call != nullptr && call->signature.algorithm != schedules::Algorithm::direct;
  return !scheduled && operation.memory == nullptr && operation.next_owner == nullptr &&
         operation.earlier == nullptr &&
         std::ranges::all_of(calls_, [&](const operation::LaneCalls& calls) {
           return calls.first() == nullptr || calls.first() == &operation;
         });
}

void Engine::leave(const operation::Operation& operation) {
  if (process_ != base::process_generation()) return;
  const base::Locked lock(driver_.mutex());
  driver_.operation_started(
      {operation.state() == operation::Operation::State::running, false, true});
}

bool Engine::wait(operation::Operation& operation, base::TimePoint until) {
  if (operation.state() != operation::Operation::State::running) return true;
  if (process_ != base::process_generation())
    throw Error(Errc::unsupported, std::string(base::used_in_child));
  const base::DefaultFloats floats;
  const base::Locked lock(driver_.mutex());
  driver_.wait({operation}, until);
  return operation.state() != operation::Operation::State::running;
}

bool Engine::join(operation::Operation& operation, device::StreamHandle stream,
                  base::TimePoint until) {
  if (process_ != base::process_generation())
    throw Error(Errc::unsupported, std::string(base::used_in_child));
  const base::DefaultFloats floats;
  const base::Locked lock(driver_.mutex());
  driver_.wait({.operation = operation, .enqueued = true}, until);
  if (operation.state() != operation::Operation::State::running) return true;
  if (!operation.enqueued()) return false;
  operation.memory->join(operation, stream);
  return true;
}

void Engine::await_enqueued(base::TimePoint until) {
  if (process_ != base::process_generation()) return;
  const base::Locked lock(driver_.mutex());
  for (const operation::LaneCalls& calls : calls_)
    while (operation::Operation* const oldest = calls.first()) {
      if (!oldest->enqueued() || base::Clock::now() >= until) break;
      oldest->add_reference();
      driver_.wait({*oldest}, until);
      oldest->drop();
    }
}

namespace {

void add_callback(operation::Operation& operation, std::function<void(std::error_code)> callback) {
  if (!operation.callback) {
    operation.callback = std::move(callback);
    return;
  }
  operation.callback = [first = std::move(operation.callback),
                        then = std::move(callback)](std::error_code code) {
    first(code);
    then(code);
  };
}

}  // namespace

void Engine::set_callback(operation::Operation& operation,
                          std::function<void(std::error_code)> callback) {
  {
    const base::Locked lock(driver_.mutex());
    if (operation.state() == operation::Operation::State::running) {
      add_callback(operation, std::move(callback));
      return;
    }
  }
  callback(operation.code);
}

// Moving bytes.

// Work that fails without memory, without descriptors to watch with, or because a device has
// failed.
template <auto work, class... Arguments>
bool Engine::attempt(Arguments&... arguments) {
  try {
    return (this->*work)(arguments...);
  } catch (const std::exception& error) {
    suspect(operation::cannot_go_on(options_.rank, error));
    return false;
  }
}

bool Engine::pass() {
  driver_.mutex().assert_held();
  return attempt<&Engine::move>();
}

// A call in device memory waits for the device, which only passes ask: a question takes longer than
// a pass.
bool Engine::look_for(const operation::Operation& operation) {
  driver_.mutex().assert_held();
  return !verdict_.stopped() && operation.memory == nullptr && attempt<&Engine::look_at>(operation);
}

operation::Operation* Engine::sent_at_once(const point::PointCall& call) {
  const operation::LaneCalls& calls = this->calls(transports::Lane::messages);
  recorder_.keep([&](operation::Record& record) {
    point::record_sent(call, calls.started(), calls.looked(), record);
  });
  if (tags_) {
    char tag[operation::TagCounts::tag_bytes];
    operation::keep_tag(call.tag, tag);
    tags_->count(tag, collective_count);
  }
  if (!pass_is_due()) return nullptr;
  // A driver that sleeps has not seen what this pass sees, and no peer wakes it for that.
  driver_.operation_started({.running = pending(), .moved = pass()});
  deliver();
  return nullptr;
}

// Without memory for the operation nobody would see when the link has sent the message.
operation::Operation& Engine::await_sent(const point::PointCall& call) {
  try {
    return starter_.start_sent(call);
  } catch (const std::exception& error) {
    suspect(operation::cannot_go_on(options_.rank, error));
    deliver();
    throw;
  }
}

bool Engine::look_at(const operation::Operation& operation) {
  if (!operation.owner->look_for(operation)) return false;
  starter_.begin_freed();
  return true;
}

bool Engine::move() {
  if (verdict_.stopped()) return false;
  if (owners_.devices().look()) starter_.memory_freed();
  bool moved = owners_.advance_memory();
  moved = owners_.advance_links() || moved;
  if (verdict_.stopped()) return moved;
  bool arrived = false;
  for (transports::Transport* transport : transports_) arrived = transport->progress() || arrived;
  // Frames that have arrived may have made other frames ready: they leave in the same pass.
  if (arrived) owners_.advance_links();
  return starter_.begin_freed() || moved || arrived;
}

transports::Link& Engine::link(int peer, transports::Lane lane) {
  return routes_[static_cast<std::size_t>(peer)]->link(peer, lane);
}

bool Engine::in_collective() const noexcept {
  driver_.mutex().assert_held();
  return std::ranges::any_of(calls_, [](const operation::LaneCalls& calls) {
    return calls.lane() != transports::Lane::messages && calls.first() != nullptr;
  });
}

bool Engine::pending() const noexcept {
  driver_.mutex().assert_held();
  return std::ranges::any_of(
      calls_, [](const operation::LaneCalls& calls) { return calls.first() != nullptr; });
}

// If nobody can tell, ranks are taken to share the core when there are more ranks than cores.
Waiting::Company Engine::company() {
  driver_.mutex().assert_held();
  using enum Waiting::Company;
  const int core = ::sched_getcpu();
  const auto here = [&](std::uint64_t ranks) {
    return options_.shares_core ? options_.shares_core(core, ranks) : std::nullopt;
  };
  if (!here(transports::every_wake_bit).value_or(options_.ranks_per_core > 1)) return none;
  return here(lacking()).value_or(true) ? awaited : waiting;
}

// The ranks that calls under way wait for, a bit for each, as far as these are direct. Any other
// call may wait for a rank that waits for another one, here.
std::uint64_t Engine::lacking() const {
  for (const operation::LaneCalls& calls : calls_)
    for (const operation::Operation* o = calls.first(); o != nullptr; o = o->later)
      if (o->collective() == nullptr ||
          o->collective()->signature.algorithm != schedules::Algorithm::direct)
        return transports::every_wake_bit;
  return owners_.lacking();
}

bool Engine::prepare_sleep(operation::WakeDescriptors& descriptors) {
  driver_.mutex().assert_held();
  if (verdict_.stopped()) return true;  // nothing moves until the verdict
  const std::uint64_t ranks = owners_.awaited();
  await(ranks);
  for (transports::Transport* transport : transports_) {
    if (!transport->prepare_sleep()) return false;
    descriptors.add(transport->wake_source().descriptor);
  }
  if (!attempt<&Engine::prepare_devices>()) return false;
  // From now on others wake this rank; what they stored before must be seen here.
  if (attempt<&Engine::look_at_memory>()) return false;
  // The look may have changed which ranks are awaited. The ranks that are newly awaited may have
  // stored before, without waking this one.
  if (owners_.awaited() != ranks) {
    await(transports::every_wake_bit);
    if (attempt<&Engine::look_at_memory>()) return false;
  }
  return !verdict_.has_reports();
}

bool Engine::prepare_devices() {
  return owners_.devices().prepare_sleep();
}

bool Engine::look_at_memory() {
  return owners_.advance_memory();
}

void Engine::await(std::uint64_t ranks) {
  for (transports::Transport* transport : transports_)
    if (transports::Windows* const windows = transport->windows()) windows->await(ranks);
}

// Ending.

void Engine::finished(operation::Operation& operation) {
  driver_.mutex().assert_held();
  operation::LaneCalls& calls = this->calls(operation.lane);
  calls.remove(operation);
  if (const auto late = calls.watch().ended(operation)) tell_late(*late);
  starter_.memory_freed();
  keep_for_callback(operation);
  // A call that no look has found is too short for a look of its own.
  recorder_.ended(operation, operation::RecordState::done,
                  operation.timed ? base::Clock::now() : calls.looked());
  operation.succeed();
  release(operation);
}

void Engine::tell_late(const operation::LateReport& late) {
  if (verdict_.observer() != nullptr)
    verdict_.report([late](EngineObserver& observer) { observer.late(late); });
}

void Engine::enqueued() {
  driver_.mutex().assert_held();
  driver_.operation_enqueued();
}

void Engine::keep_for_callback(operation::Operation& operation) {
  if (!operation.callback) return;
  operation.add_reference();
  ended_.push(operation);
}

// Drops the engine's reference: after that the operation may belong to another call.
void Engine::release(operation::Operation& operation) {
  operation.drop();
  driver_.operation_ended();
}

// Reports and callbacks run without the lock, because they may call the engine. An operation with a
// callback has one more reference until then, so that it is not used again.
void Engine::deliver() {
  driver_.mutex().assert_held();
  if (!verdict_.has_reports() && ended_.empty()) return;
  const std::vector<Verdict::Report> reports = verdict_.take_reports();
  EngineObserver* const observer = verdict_.observer();
  base::Fifo<operation::Operation> ended = std::exchange(ended_, {});
  const base::Unlocked unlocked(driver_.mutex());
  for (const Verdict::Report& report : reports) report(*observer);
  while (operation::Operation* const operation = ended.pop()) {
    operation->callback(operation->code);
    operation->callback = nullptr;
    operation->drop();
  }
}

void Engine::suspect(operation::Failure failure) {
  driver_.mutex().assert_held();
  failure.seen_by = options_.rank;
  if (verdict_.suspect(std::move(failure), base::Clock::now())) end_all();
}

// The communicator has failed: no owner and no transport uses memory of an operation after this.
void Engine::end_all(Cause cause) {
  failed_ = base::Clock::now();
  std::optional<Snapshot> seen;
  if (cause == Cause::failure && options_.on_failure) try {
      seen = look();
    } catch (const std::bad_alloc&) {  // there is no dump, but the error
    }
  for (transports::Transport* transport : transports_) transport->halt();
  owners_.clear();
  starter_.clear();
  if (seen) noted_ = options_.on_failure(*seen);
  owners_.devices().await_copies(options_.rank);
  fail_calls(operation::Failure(*verdict_.failure()));
  times_.clear();
  driver_.wake_sleeper();
}

void Engine::fail_calls(const operation::Failure& failure) {
  for (operation::LaneCalls& calls : calls_) {
    for (operation::Operation* operation = calls.clear(); operation != nullptr;) {
      operation::Operation* const next = operation->later;
      keep_for_callback(*operation);
      ++failures_;
      recorder_.ended(*operation, operation::RecordState::failed, failed_);
      operation->fail(failure.code,
                      operation->describe(options_.transport) + ": " + failure.cause + noted_);
      release(*operation);
      operation = next;
    }
  }
}

void Engine::fail(const operation::Failure& failure) {
  const base::Locked lock(driver_.mutex());
  if (verdict_.settle(failure)) end_all();
  deliver();
}

void Engine::abort(const operation::Failure& failure) {
  const base::Locked lock(driver_.mutex());
  suspect(failure);
  if (pending()) driver_.hand_over();
  deliver();
}

Engine::Departure Engine::stop(base::TimePoint until) {
  Departure how = Departure::after_failure;
  {
    const base::Locked lock(driver_.mutex());
    driver_.stop();
    if (!verdict_.stopped()) {
      how = in_collective() ? Departure::in_a_collective : Departure::in_order;
      for (transports::Transport* transport : transports_) transport->finish_sending(until);
    }
    if (verdict_.end({Errc::aborted,
                      "rank " + std::to_string(options_.rank) + " destroyed its communicator",
                      -1,
                      {options_.rank},
                      options_.rank}))
      end_all(Cause::departure);
    deliver();
  }
  driver_.join();
  return how;
}

// Ranks that leave.

void Engine::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  const base::Locked lock(driver_.mutex());
  departures_.add(rank, finished);
  for (const operation::LaneCalls& calls : calls_) check_left(calls);
  owners_.messages().peer_left(rank, base::Clock::now());
  driver_.wake_sleeper();
  deliver();
}

void Engine::check_left(const operation::LaneCalls& calls) {
  for (const operation::Operation* o = calls.first(); o != nullptr && !verdict_.stopped();
       o = o->later)
    if (const operation::CollectiveOperation* const call = o->collective())
      if (auto failure = departures_.without(*call)) return suspect(std::move(*failure));
}

// Time.

base::TimePoint Engine::next_check() const noexcept {
  driver_.mutex().assert_held();
  if (verdict_.stopped()) return verdict_.next_check();
  return std::min(times_.next_check(), owners_.next_check());
}

void Engine::pausing() noexcept {
  driver_.mutex().assert_held();
  for (operation::LaneCalls& calls : calls_) calls.watch().pausing();
}

void Engine::check_time(base::TimePoint now) {
  driver_.mutex().assert_held();
  if (verdict_.check(now)) return end_all();
  if (verdict_.stopped()) return;
  times_.start_clocks(now);
  for (operation::LaneCalls& calls : calls_) calls.look(now);
  if (now < next_check()) return;
  owners_.check(now);
  if (!verdict_.stopped() && times_.check(now)) end_all();
}

// Answers.

operation::RankStatus Engine::status() {
  const base::Locked lock(driver_.mutex());
  return status_at(base::Clock::now());
}

operation::RankStatus Engine::status_at(base::TimePoint now) const {
  operation::RankStatus status;
  for (std::size_t i = 0; i < lane_count; ++i) status.lanes[i] = calls_[i].status(now);
  operation::LaneStatus messages =
      calls_[static_cast<std::size_t>(transports::Lane::messages)].status(now);
  status.messages.current = std::move(messages.current);
  status.messages.waiting_for = std::move(messages.waiting_for);
  status.messages.waited_ns = messages.waited_ns;
  status.messages.device = std::move(messages.device);
  return status;
}

Snapshot Engine::snapshot() {
  const base::Locked lock(driver_.mutex());
  return look();
}

namespace {

operation::RecordState state_of(const operation::Operation& operation) {
  using enum operation::RecordState;
  if (operation.next_owner != nullptr) return memory;
  if (!operation.mark.reached) return stream;
  const WaitCause cause = operation.owner->standing(operation, false).cause;
  const operation::OperationTimes& times = operation.times;
  const bool nothing_came = cause == WaitCause::messages && times.sent == base::TimePoint{} &&
                            times.arrived == base::TimePoint{};
  return cause == WaitCause::ranks || nothing_came ? ranks : moving;
}

}  // namespace

// More do not fit into a dump.
constexpr std::size_t most_records = 32'768;

Snapshot Engine::look() {
  Snapshot seen;
  seen.now = base::Clock::now();
  if (const operation::Failure* const failure = verdict_.failure()) seen.failure = *failure;
  seen.failed = failed_;
  seen.status = status_at(seen.now);
  for (const operation::LaneCalls& calls : calls_)
    for (const operation::Operation* o = calls.last(); o != nullptr; o = o->earlier)
      seen.records.push_back(operation::Recorder::record_of(*o, state_of(*o)));
  recorder_.for_each([&](const operation::Record& record) { seen.records.push_back(record); },
                     most_records);
  owners_.append_views(seen.peers);
  return seen;
}

Statistics Engine::statistics() {
  const base::Locked lock(driver_.mutex());
  const operation::Traffic traffic = owners_.traffic();
  Statistics result;
  result.operations = starter_.started();
  result.frames_sent = traffic.frames_sent;
  result.frames_received = traffic.frames_received;
  result.bytes_sent = traffic.bytes_sent;
  result.bytes_received = traffic.bytes_received;
  result.staging_bytes = traffic.staging_bytes;
  result.failures = failures_;
  result.late_ranks.resize(static_cast<std::size_t>(options_.size));
  for (const operation::LaneCalls& calls : calls_) {
    const operation::Watch& watch = calls.watch();
    for (std::size_t cause = 0; cause < result.waited.size(); ++cause)
      result.waited[cause] += watch.waited(static_cast<WaitCause>(cause));
    for (std::size_t rank = 0; rank < result.late_ranks.size(); ++rank) {
      result.late_ranks[rank].calls += watch.late()[rank].calls;
      result.late_ranks[rank].waited += watch.late()[rank].waited;
    }
  }
  return result;
}

std::optional<operation::TagCounts> Engine::tag_counts() {
  const base::Locked lock(driver_.mutex());
  return tags_;
}

}  // namespace rondo::engine
