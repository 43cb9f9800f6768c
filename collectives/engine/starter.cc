// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/starter.h"

#include <exception>
#include <utility>

namespace rondo::engine {

Starter::Starter(const EngineOptions& options, Engine& engine, const Parts& parts)
    : options_(options),
      calls_(parts.calls),
      owners_(parts.owners),
      verdict_(parts.verdict),
      departures_(parts.departures),
      host_(parts.host),
      held_(calls_),
      scheduled_(engine),
      direct_(engine),
      messages_(engine) {}

// Making operations.

const schedules::Program& Starter::program(const schedules::Call& call, schedules::Inside inside) {
  const schedules::Signature& s = call.signature;
  const int root = schedules::schedule_root(s);
  for (const auto& p : programs_)
    if (p->is(s.operation, s.algorithm, root, call.depth, inside)) return *p;
  programs_.push_back(std::make_unique<schedules::Program>(s.operation, s.algorithm, root,
                                                           options_.rank, options_.size, call.depth,
                                                           options_.hosts, inside));
  return *programs_.back();
}

void Starter::begin_run(operation::ScheduledOperation& operation, const schedules::Call& call) {
  const auto inside =
      operation.inside != nullptr ? schedules::Inside::memory : schedules::Inside::links;
  operation.run.begin(program(call, inside), call, options_.rank, options_.size, room_);
}

// Says where the buffers of an operation are, and sets its mark. It comes last of what can throw: a
// mark must stay where it is.
void Starter::place(operation::Operation& operation, const operation::DeviceCall* device) {
  operation.memory = nullptr;
  operation.mark = {};
  if (device == nullptr) return;
  owners_.devices().add(device->memory);
  device->memory.set_mark(operation.mark, device->stream);
  operation.memory = &device->memory;
}

operation::CollectiveOperation& Starter::make_direct(const schedules::Call& call,
                                                     const operation::DeviceCall* device) {
  CollectiveOwners& owners = owners_.of(call.priority);
  operation::Taken<operation::DirectOperation> taken = direct_.take();
  taken->keep_counts(call);
  place(*taken, device);
  operation::DirectOperation& operation = *taken.release();
  operation.start(call, calls_[static_cast<std::size_t>(call.priority)].take_number());
  enlist(operation, *owners.direct);
  return operation;
}

// The run of a held call begins later, because its begin copies input.
operation::CollectiveOperation& Starter::make_scheduled(const schedules::Call& call,
                                                        const operation::DeviceCall* device,
                                                        bool held) {
  CollectiveOwners& owners = owners_.of(call.priority);
  const operation::DeviceInside movers =
      device != nullptr ? device->inside : operation::DeviceInside{};
  lanes::TwoLevelOwner* const inside = owners.inside(call, movers);
  operation::Taken<operation::ScheduledOperation> taken = scheduled_.take();
  taken->staged = {};
  taken->inside = inside;
  if (held)
    taken->keep_call(call);
  else if (verdict_.failure() == nullptr)
    begin_run(*taken, call);
  if (device != nullptr) {
    owners.links.add(static_cast<lanes::Staging&>(device->memory));
    for (operation::DeviceMemory* const mover : {movers.sums, movers.copies})
      if (mover != nullptr) owners_.devices().add(*mover);
    taken->staged.inside = movers;
  }
  place(*taken, device);
  operation::ScheduledOperation& operation = *taken.release();
  operation.start(call, calls_[static_cast<std::size_t>(call.priority)].take_number());
  operation.ends_in_memory = inside != nullptr && inside->ends(call.signature);
  if (inside != nullptr)
    enlist(operation, *inside);
  else
    enlist(operation, owners.links);
  return operation;
}

void Starter::enlist(operation::Operation& operation, operation::OperationOwner& owner) noexcept {
  operation.owner = &owner;
  operation.add_second_reference();
  operation.order = ++started_;
  calls(operation).append(operation);
}

// Starting.

// After a failure no call comes after a mark: nothing would look at it.
operation::Operation& Starter::start(const schedules::Call& call,
                                     const operation::DeviceCall* device) {
  if (verdict_.failure() != nullptr) device = nullptr;
  const bool held = held_.must_hold(call);
  operation::CollectiveOperation& operation =
      call.signature.algorithm == schedules::Algorithm::direct ? make_direct(call, device)
                                                               : make_scheduled(call, device, held);
  if (verdict_.failure() != nullptr) return operation;
  if (held)
    held_.hold(operation);
  else
    begin(operation);
  return operation;
}

transports::Send Starter::send_at_once(const point::PointCall& call) {
  if (call.transfers.size() != 1 || !call.transfers.front().sending || verdict_.stopped() ||
      !held_.none_in_the_way())
    return transports::Send::full;
  operation::LaneCalls& calls = calls_[static_cast<std::size_t>(transports::Lane::messages)];
  const transports::Send sent =
      owners_.messages().send_at_once(call.transfers.front(), calls.started() + 1);
  if (sent == transports::Send::done) {
    calls.take_number();
    ++started_;
  }
  return sent;
}

operation::Operation& Starter::start_sent(const point::PointCall& call) {
  operation::Taken<point::MessageOperation> taken = messages_.take();
  owners_.messages().reserve(call.transfers);
  place(*taken, nullptr);
  point::MessageOperation& operation = enlist(call, std::move(taken));
  owners_.messages().await_sent(operation, call.transfers.front());
  return operation;
}

// A message in device memory is always held: its mark has hardly ever been reached yet.
operation::Operation& Starter::start(const point::PointCall& call,
                                     const operation::DeviceCall* device) {
  if (verdict_.failure() != nullptr) device = nullptr;
  const bool held = device != nullptr || held_.must_hold(call);
  operation::Taken<point::MessageOperation> taken = messages_.take();
  if (held)
    taken->keep(call.transfers);
  else
    owners_.messages().reserve(call.transfers);
  if (device != nullptr) owners_.messages().add(static_cast<point::Staging&>(device->memory));
  place(*taken, device);
  point::MessageOperation& operation = enlist(call, std::move(taken));
  if (verdict_.failure() != nullptr) return operation;
  if (held)
    held_.hold(operation);
  else
    begin(operation, call.transfers);
  return operation;
}

point::MessageOperation& Starter::enlist(const point::PointCall& call,
                                         operation::Taken<point::MessageOperation> taken) noexcept {
  point::MessageOperation& operation = *taken.release();
  const auto lane = static_cast<std::size_t>(transports::Lane::messages);
  operation.start(call, calls_[lane].take_number());
  enlist(operation, owners_.messages());
  return operation;
}

// Handing over to the owner that runs the call. It may end at once.

void Starter::begin(operation::CollectiveOperation& operation) {
  calls(operation).begin(operation);
  lanes::ScheduledLane& links = owners_.of(operation.priority()).links;
  if (operation.signature.algorithm == schedules::Algorithm::direct)
    begin_direct(static_cast<operation::DirectOperation&>(operation));
  else
    begin_scheduled(static_cast<operation::ScheduledOperation&>(operation));
  links.check_held();
}

// Under suspicion nothing leaves this rank: a post could give the others another cause.
void Starter::begin_direct(operation::DirectOperation& operation) {
  if (!verdict_.stopped()) owners_.of(operation.priority()).direct->begin(operation);
  check_left(operation);
}

void Starter::begin_scheduled(operation::ScheduledOperation& operation) {
  if (operation.run.complete() && !operation.ends_in_memory) {
    calls(operation).ended(operation);
    return host_.finished(operation);
  }
  check_left(operation);
  if (operation.state() != operation::Operation::State::running) return;
  if (operation.inside != nullptr) operation.inside->begin(operation);
  // In a barrier most ranks of a host have no steps between hosts.
  if (!operation.run.complete()) owners_.of(operation.priority()).links.begin(operation);
}

void Starter::check_left(const operation::CollectiveOperation& operation) {
  if (auto failure = departures_.without(operation)) host_.suspect(std::move(*failure));
}

void Starter::begin(point::MessageOperation& operation,
                    std::span<const point::PointTransfer> transfers) {
  try {
    owners_.messages().begin(operation, transfers);
    if (!verdict_.stopped()) owners_.messages().advance();
  } catch (const std::exception& error) {
    host_.suspect(operation::cannot_go_on(options_.rank, error));
  }
}

void Starter::begin_held(operation::CollectiveOperation& operation) {
  if (operation.signature.algorithm != schedules::Algorithm::direct) {
    auto& scheduled = static_cast<operation::ScheduledOperation&>(operation);
    begin_run(scheduled, scheduled.kept_call());
  }
  begin(operation);
}

void Starter::begin_held(point::MessageOperation& operation) {
  owners_.messages().reserve(operation.kept());
  begin(operation, operation.kept());
}

bool Starter::begin_all_freed() {
  bool any = false;
  while (operation::Operation* const operation = verdict_.stopped() ? nullptr : held_.take()) {
    any = true;
    if (operation->lane == transports::Lane::messages)
      begin_held(static_cast<point::MessageOperation&>(*operation));
    else
      begin_held(static_cast<operation::CollectiveOperation&>(*operation));
  }
  return any;
}

}  // namespace rondo::engine
