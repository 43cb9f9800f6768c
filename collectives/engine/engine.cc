// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/engine.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include <rondo/communicator.h>

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
              transports_.size() == 1 ? transports_.front()->wait_word() : nullptr),
      verdict_(observer),
      calls_{LaneCalls(options.rank, transports::Lane::bulk),
             LaneCalls(options.rank, transports::Lane::urgent),
             LaneCalls(options.rank, transports::Lane::messages)},
      times_(calls_, verdict_, options.warn_after),
      scheduled_{{{options.rank, options.size, options.checksum}, calls_[0], *this},
                 {{options.rank, options.size, options.checksum}, calls_[1], *this}},
      point_({options.rank, options.size, options.checksum}, calls_[2], *this),
      held_(calls_),
      owners_{&scheduled_[0], &scheduled_[1], &point_},
      scheduled_pool_(std::make_shared<OperationPool>()),
      direct_pool_(std::make_shared<OperationPool>()),
      message_pool_(std::make_shared<OperationPool>()) {
  for (transports::Transport* transport : transports_)
    if (transports::Windows* const windows = transport->windows()) share_memory(*windows);
  all_owners_.insert(all_owners_.end(), owners_.begin(), owners_.end());
  all_owners_.push_back(&held_);
  if (options_.size > 1) driver_.start_background();
}

Engine::~Engine() {
  stop();
  for (const auto& pool : {scheduled_pool_, direct_pool_, message_pool_}) pool->close();
}

// Uses the windows for direct operations if all ranks have them, and for the inside of two-level
// operations if all ranks of this host have them.
void Engine::share_memory(transports::Windows& windows) {
  OwnerHost& host = *this;
  const std::span<const int> ranks = windows.ranks();
  const bool all = ranks.size() == routes_.size() && ranks.size() <= direct::most_direct_ranks;
  const std::span<const int> local = options_.hosts.on(options_.hosts.host(options_.rank));
  const bool beside = options_.hosts.count() > 1 && local.size() > 1 &&
                      local.size() <= direct::most_direct_ranks &&
                      std::ranges::includes(ranks, local);
  for (const Priority priority : {Priority::urgent, Priority::bulk}) {
    const auto index = static_cast<std::size_t>(priority);
    if (all && !direct_[index]) {
      const direct::DirectOptions options{.rank = options_.rank,
                                          .ranks = ranks,
                                          .use = direct::DirectUse::all,
                                          .in_steps = options_.reproducible};
      direct_[index].emplace(windows, options, priority, calls_[index], host);
      all_owners_.push_back(&*direct_[index]);
      has_direct_ = true;
    }
    if (beside && !two_level_[index]) {
      two_level_[index].emplace(windows,
                                TwoLevelOwner::Options{options_.rank, priority, options_.hosts},
                                TwoLevelOwner::Parts{take<DirectOperation>(direct_pool_),
                                                     take<DirectOperation>(direct_pool_)},
                                calls_[index], scheduled_[index], host);
      all_owners_.push_back(&*two_level_[index]);
    }
  }
}

// Starting.

const schedules::Program& Engine::program(const schedules::Call& call) {
  const schedules::Signature& s = call.signature;
  const int root = schedules::schedule_root(s);
  for (const auto& p : programs_)
    if (p->is(s.operation, s.algorithm, root, call.depth)) return *p;
  programs_.push_back(std::make_unique<schedules::Program>(
      s.operation, s.algorithm, root, options_.rank, options_.size, call.depth, options_.hosts,
      two_level(call) != nullptr ? schedules::Inside::memory : schedules::Inside::links));
  return *programs_.back();
}

// Returns null if the links carry the whole call.
TwoLevelOwner* Engine::two_level(const schedules::Call& call) {
  auto& owner = two_level_[static_cast<std::size_t>(call.priority)];
  return owner && owner->runs(call.signature) ? &*owner : nullptr;
}

// The result has one reference: the engine's, until the operation has ended.
template <class Kind>
Taken<Kind> Engine::take(const std::shared_ptr<OperationPool>& pool) {
  Operation* const operation = pool->take();
  if (operation == nullptr) return Taken<Kind>(new Kind(*this, pool));
  operation->renew();
  return Taken<Kind>(static_cast<Kind*>(operation));  // a pool holds operations of one kind
}

Operation* Engine::start(const schedules::Call& call) {
  const base::Locked lock(driver_.mutex());
  const bool held = held_.must_hold(call);
  CollectiveOperation& operation = call.signature.algorithm == schedules::Algorithm::direct
                                       ? make_direct(call)
                                       : make_scheduled(call, held);
  if (enlist(operation, owner_of(call))) {
    if (held)
      held_.hold(operation);
    else
      begin(operation);
    go(operation, call.unattended);
  }
  deliver();
  return &operation;
}

// What can throw comes before a number is taken: the number must be used, or the ranks no longer
// agree. A run that is held begins later, because that copies input.
CollectiveOperation& Engine::make_scheduled(const schedules::Call& call, bool held) {
  Taken<ScheduledOperation> taken = take<ScheduledOperation>(scheduled_pool_);
  ScheduledOperation& operation = *taken;
  if (held)
    operation.keep_call(call);
  else if (verdict_.failure() == nullptr)
    begin_run(operation, call);
  operation.start(call, calls_[static_cast<std::size_t>(call.priority)].take_number());
  operation.ends_in_memory = two_level(call) != nullptr && TwoLevelOwner::ends(call.signature);
  static_cast<void>(taken.release());
  return operation;
}

CollectiveOperation& Engine::make_direct(const schedules::Call& call) {
  Taken<DirectOperation> taken = take<DirectOperation>(direct_pool_);
  DirectOperation& operation = *taken;
  operation.keep_counts(call);
  operation.start(call, calls_[static_cast<std::size_t>(call.priority)].take_number());
  static_cast<void>(taken.release());
  return operation;
}

OperationOwner& Engine::owner_of(const schedules::Call& call) {
  const auto index = static_cast<std::size_t>(call.priority);
  if (call.signature.algorithm == schedules::Algorithm::direct) return *direct_[index];
  if (TwoLevelOwner* const inside = two_level(call)) return *inside;
  return scheduled_[index];
}

bool Engine::is_direct(const Operation& operation) const {
  const auto& owner = direct_[static_cast<std::size_t>(operation.lane)];
  return owner && operation.owner == &*owner;
}

void Engine::begin_run(ScheduledOperation& operation, const schedules::Call& call) {
  operation.run.begin(program(call), call, options_.rank, options_.size, room_);
}

// Hands a collective to its owner. It may end at once.
void Engine::begin(CollectiveOperation& operation) {
  const auto index = static_cast<std::size_t>(operation.lane);
  calls_[index].begin(operation);
  if (is_direct(operation)) {
    // Under suspicion nothing leaves this rank: a post could give the others another cause.
    if (!verdict_.stopped()) direct_[index]->begin(static_cast<DirectOperation&>(operation));
    check_left(operation);
  } else {
    begin_scheduled(static_cast<ScheduledOperation&>(operation));
  }
  scheduled_[index].check_held();
}

void Engine::begin_scheduled(ScheduledOperation& operation) {
  const auto index = static_cast<std::size_t>(operation.lane);
  if (operation.run.complete()) {
    calls_[index].ended(operation);
    return finished(operation);
  }
  check_left(operation);
  if (operation.state() != Operation::State::running) return;
  auto& inside = two_level_[index];
  if (inside && operation.owner == &*inside) inside->begin(operation);
  scheduled_[index].begin(operation);
}

Operation* Engine::start(const point::PointCall& call) {
  const base::Locked lock(driver_.mutex());
  const bool held = held_.must_hold(call);
  Taken<point::MessageOperation> taken = take<point::MessageOperation>(message_pool_);
  // What can throw comes before a number is taken.
  if (held)
    taken->keep(call.transfers);
  else
    point_.reserve(call.transfers);
  point::MessageOperation& operation = *taken.release();
  operation.start(call, calls(transports::Lane::messages).take_number());
  if (enlist(operation, point_)) {
    if (held)
      held_.hold(operation);
    else
      begin(operation, call.transfers);
    go(operation, call.unattended);
  }
  deliver();
  return &operation;
}

void Engine::begin(point::MessageOperation& operation,
                   std::span<const point::PointTransfer> transfers) {
  try {
    point_.begin(operation, transfers);
    if (!verdict_.stopped()) point_.advance();
  } catch (const std::exception& error) {
    give_up(error);
  }
}

// Begins the held calls whose memory is free now.
bool Engine::begin_freed() {
  bool any = false;
  while (Operation* const operation = verdict_.stopped() ? nullptr : held_.take()) {
    any = true;
    if (operation->lane == transports::Lane::messages) {
      auto& message = static_cast<point::MessageOperation&>(*operation);
      point_.reserve(message.kept());
      begin(message, message.kept());
      continue;
    }
    auto& call = static_cast<CollectiveOperation&>(*operation);
    if (!is_direct(call)) {
      auto& scheduled = static_cast<ScheduledOperation&>(call);
      begin_run(scheduled, scheduled.kept_call());
    }
    begin(call);
  }
  return any;
}

// False when the communicator has failed: then the operation has ended, too.
bool Engine::enlist(Operation& operation, OperationOwner& owner) {
  operation.owner = &owner;
  operation.add_second_reference();  // the caller's
  operation.order = ++started_;
  if (const Failure* const failure = verdict_.failure()) {
    operation.fail(failure->code, operation.describe(options_.transport) + ": " + failure->cause);
    operation.drop();
    return false;
  }
  calls(operation.lane).append(operation);
  ++pending_;
  times_.call_started();
  return true;
}

void Engine::go(const Operation& operation, bool unattended) {
  const auto running = [&] { return operation.state() == Operation::State::running; };
  const bool moved = running() && pass();
  driver_.operation_started({running(), moved, unattended});
}

void Engine::leave(const Operation& operation) {
  if (process_ != base::process_generation()) return;
  const base::Locked lock(driver_.mutex());
  driver_.operation_started({operation.state() == Operation::State::running, false, true});
}

bool Engine::wait(Operation& operation, base::TimePoint until) {
  if (operation.state() != Operation::State::running) return true;
  if (process_ != base::process_generation())
    throw Error(Errc::unsupported, std::string(base::used_in_child));
  const base::Locked lock(driver_.mutex());
  driver_.wait(operation, until);
  return operation.state() != Operation::State::running;
}

namespace {

void add_callback(Operation& operation, std::function<void(std::error_code)> callback) {
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

void Engine::set_callback(Operation& operation, std::function<void(std::error_code)> callback) {
  {
    const base::Locked lock(driver_.mutex());
    if (operation.state() == Operation::State::running) {
      add_callback(operation, std::move(callback));
      return;
    }
  }
  callback(operation.code);
}

// Moving bytes.

bool Engine::pass() {
  driver_.mutex().assert_held();
  try {
    return move();
  } catch (const std::exception& error) {  // no memory, or no more descriptors to watch with
    give_up(error);
    return false;
  }
}

bool Engine::move() {
  if (verdict_.stopped()) return false;
  bool moved = advance_memory();
  moved = advance_links() || moved;
  if (verdict_.stopped()) return moved;
  bool arrived = false;
  for (transports::Transport* transport : transports_)
    arrived = transport->progress(*this) || arrived;
  // What has arrived may have made other frames ready: they leave in the same pass.
  if (arrived) advance_links();
  return begin_freed() || moved || arrived;
}

bool Engine::advance_memory() {
  bool moved = false;
  for (const Priority priority : {Priority::urgent, Priority::bulk}) {
    const auto index = static_cast<std::size_t>(priority);
    if (direct_[index]) moved = advance(*direct_[index]) || moved;
    if (two_level_[index]) moved = advance(*two_level_[index]) || moved;
  }
  return moved;
}

bool Engine::advance_links() {
  using transports::Lane;
  static_assert(transports::link_lanes == std::array{Lane::urgent, Lane::messages, Lane::bulk});
  bool moved = advance(scheduled_[static_cast<std::size_t>(Priority::urgent)]);
  moved = advance(point_) || moved;
  return advance(scheduled_[static_cast<std::size_t>(Priority::bulk)]) || moved;
}

// Nothing leaves a rank that suspects a failure. Owner: its own type, because most owners are idle,
// and to see that then takes no call.
template <class Owner>
bool Engine::advance(Owner& owner) {
  return !verdict_.stopped() && owner.advance();
}

void Engine::give_up(const std::exception& error) {
  suspect(
      {Errc::system, "rank " + std::to_string(options_.rank) + " cannot go on: " + error.what()});
}

std::optional<transports::Receive> Engine::expected(transports::Link& link, std::size_t ahead) {
  driver_.mutex().assert_held();
  return verdict_.stopped() ? std::nullopt : owner(link).expected(link, ahead);
}

bool Engine::awaits_header(transports::Link& link) {
  driver_.mutex().assert_held();
  return !verdict_.stopped() && owner(link).awaits_header(link);
}

transports::Header Engine::arrived(transports::Link& link, const transports::HeaderBytes& header) {
  driver_.mutex().assert_held();
  return verdict_.stopped() ? transports::Header::refuse : owner(link).arrived(link, header);
}

std::size_t Engine::data(transports::Link& link, std::span<const std::byte> view) {
  driver_.mutex().assert_held();
  return owner(link).data(link, view);
}

void Engine::received(transports::Link& link) {
  driver_.mutex().assert_held();
  if (!verdict_.stopped()) owner(link).received(link);
}

void Engine::sent(transports::Link& link, std::uint64_t) {
  driver_.mutex().assert_held();
  owner(link).sent(link);
}

void Engine::broken(transports::Link& link, std::error_code code, std::string_view what,
                    bool clean) {
  driver_.mutex().assert_held();
  owner(link).broken(link, code, what, clean, base::Clock::now());
}

transports::Link& Engine::link(int peer, transports::Lane lane) {
  return routes_[static_cast<std::size_t>(peer)]->link(peer, lane);
}

bool Engine::pending() const noexcept {
  driver_.mutex().assert_held();
  return pending_ > 0;
}

// If no transport can tell, ranks are taken to share the core when there are more ranks than cores.
bool Engine::shares_core() {
  const int core = ::sched_getcpu();
  bool seen = false;
  for (transports::Transport* transport : transports_) {
    const std::optional<bool> shared = transport->shares_core(core);
    if (shared == true) return true;
    seen = seen || shared;
  }
  return !seen && options_.ranks_per_core > 1;
}

bool Engine::prepare_sleep(WakeDescriptors& descriptors) {
  driver_.mutex().assert_held();
  if (verdict_.stopped()) return true;  // nothing moves until the verdict
  const std::uint64_t ranks = awaited();
  await(ranks);
  for (transports::Transport* transport : transports_) {
    if (!transport->prepare_sleep()) return false;
    descriptors.add(transport->wait_descriptor());
  }
  // From now on others wake this rank; what they stored before must be seen here.
  if (look_at_memory()) return false;
  // The look may have changed which ranks are awaited. The ranks that are newly awaited may have
  // stored before, without waking this one.
  if (awaited() != ranks) {
    await(transports::every_wake_bit);
    if (look_at_memory()) return false;
  }
  return !verdict_.has_reports();
}

bool Engine::look_at_memory() {
  try {
    return advance_memory();
  } catch (const std::exception& error) {
    give_up(error);
    return false;
  }
}

// The ranks whose stores may let an operation go on.
std::uint64_t Engine::awaited() const noexcept {
  std::uint64_t ranks = 0;
  for (const auto& owner : direct_)
    if (owner) ranks |= owner->awaited();
  for (const auto& owner : two_level_)
    if (owner) ranks |= owner->awaited();
  return ranks;
}

void Engine::await(std::uint64_t ranks) {
  for (transports::Transport* transport : transports_)
    if (transports::Windows* const windows = transport->windows()) windows->await(ranks);
}

// Ending.

void Engine::finished(Operation& operation) {
  driver_.mutex().assert_held();
  calls(operation.lane).remove(operation);
  held_.memory_freed();
  keep_for_callback(operation);
  operation.succeed();
  let_go(operation);
}

void Engine::keep_for_callback(Operation& operation) {
  if (!operation.callback) return;
  operation.add_reference();
  operation.next_ended = nullptr;
  (last_ended_ == nullptr ? first_ended_ : last_ended_->next_ended) = &operation;
  last_ended_ = &operation;
}

// Drops the engine's reference: after that the operation may belong to another call.
void Engine::let_go(Operation& operation) {
  --pending_;
  operation.drop();
  driver_.operation_ended();
}

// Reports and callbacks run without the lock, because they may call the engine. An operation with a
// callback has one more reference until then, so that it is not used again.
void Engine::deliver() {
  driver_.mutex().assert_held();
  if (!verdict_.has_reports() && first_ended_ == nullptr) return;
  const std::vector<Verdict::Report> reports = verdict_.take_reports();
  EngineObserver* const observer = verdict_.observer();
  Operation* ended = std::exchange(first_ended_, nullptr);
  last_ended_ = nullptr;
  const base::Unlocked unlocked(driver_.mutex());
  for (const Verdict::Report& report : reports) report(*observer);
  while (ended != nullptr) {
    Operation* const operation = std::exchange(ended, ended->next_ended);
    operation->callback(operation->code);
    operation->callback = nullptr;
    operation->drop();
  }
}

void Engine::suspect(Failure failure) {
  driver_.mutex().assert_held();
  if (verdict_.suspect(std::move(failure), base::Clock::now())) end_all();
}

// The communicator has failed: no owner and no transport uses memory of an operation after this.
void Engine::end_all() {
  const Failure failure = *verdict_.failure();
  for (transports::Transport* transport : transports_) transport->halt();
  for (OperationOwner* owner : all_owners_) owner->clear();
  for (LaneCalls& calls : calls_) {
    for (Operation* operation = calls.clear(); operation != nullptr;) {
      Operation* const next = operation->later;
      keep_for_callback(*operation);
      operation->fail(failure.code, operation->describe(options_.transport) + ": " + failure.cause);
      let_go(*operation);
      operation = next;
    }
  }
  times_.clear();
  driver_.wake_sleeper();
}

void Engine::fail(const Failure& failure) {
  const base::Locked lock(driver_.mutex());
  if (verdict_.settle(failure)) end_all();
  deliver();
}

void Engine::abort(const Failure& failure) {
  const base::Locked lock(driver_.mutex());
  suspect(failure);
  if (pending_ > 0) driver_.hand_over();
  deliver();
}

bool Engine::stop() {
  bool in_order = false;
  {
    const base::Locked lock(driver_.mutex());
    driver_.stop();
    in_order = !verdict_.stopped();
    if (verdict_.settle({Errc::aborted,
                         "rank " + std::to_string(options_.rank) + " destroyed its communicator"}))
      end_all();
    deliver();
  }
  driver_.join();
  return in_order;
}

// Ranks that leave.

// If several ranks have left, takes the one that has done least. So every rank takes the same one,
// whichever it heard of first.
const Engine::Left* Engine::who_left_before(const CollectiveOperation& operation) const {
  const auto lane = static_cast<std::size_t>(operation.priority());
  const Left* first = nullptr;
  for (const Left& left : left_) {
    if (operation.number <= left.finished[lane]) continue;
    if (first == nullptr ||
        std::pair(left.finished[lane], left.rank) < std::pair(first->finished[lane], first->rank))
      first = &left;
  }
  return first;
}

void Engine::check_left(const CollectiveOperation& operation) {
  if (const Left* const left = who_left_before(operation))
    suspect(left_failure(left->rank, left->finished));
}

void Engine::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  const base::Locked lock(driver_.mutex());
  left_.push_back({rank, {}});
  std::copy_n(finished, lane_count, left_.back().finished);
  for (const LaneCalls& calls : calls_) {
    for (const Operation* o = calls.first(); o != nullptr && !verdict_.stopped(); o = o->later)
      if (const CollectiveOperation* const call = o->collective()) check_left(*call);
  }
  point_.peer_left(rank, base::Clock::now());
  driver_.wake_sleeper();
  deliver();
}

// Time.

base::TimePoint Engine::next_check() const noexcept {
  driver_.mutex().assert_held();
  if (verdict_.stopped()) return verdict_.next_check();
  base::TimePoint next = times_.next_check();
  for (const LinkOwner* owner : owners_) next = std::min(next, owner->next_check());
  return next;
}

void Engine::check_time(base::TimePoint now) {
  driver_.mutex().assert_held();
  if (verdict_.check(now)) return end_all();
  if (verdict_.stopped()) return;
  times_.start_clocks(now);
  if (now < next_check()) return;
  for (LinkOwner* owner : owners_)
    if (now >= owner->next_check()) owner->check(now);
  if (!verdict_.stopped() && times_.check(now)) end_all();
}

// Answers.

RankStatus Engine::status() {
  const base::Locked lock(driver_.mutex());
  const base::TimePoint now = base::Clock::now();
  RankStatus status;
  for (std::size_t i = 0; i < lane_count; ++i) status.lanes[i] = calls_[i].status(now);
  LaneStatus messages = calls(transports::Lane::messages).status(now);
  status.messages.current = std::move(messages.current);
  status.messages.waiting_for = std::move(messages.waiting_for);
  status.messages.waited_ns = messages.waited_ns;
  return status;
}

Statistics Engine::statistics() {
  const base::Locked lock(driver_.mutex());
  Statistics result;
  result.operations = started_;
  for (const OperationOwner* owner : all_owners_) {
    const Traffic traffic = owner->traffic();
    result.frames_sent += traffic.frames_sent;
    result.frames_received += traffic.frames_received;
    result.bytes_sent += traffic.bytes_sent;
    result.bytes_received += traffic.bytes_received;
    result.staging_bytes += traffic.staging_bytes;
  }
  return result;
}

}  // namespace rondo::engine
