// SPDX-License-Identifier: Apache-2.0
//
// Moving frames. How threads wait is in engine_wait.cc, what happens when something goes wrong in
// engine_faults.cc.
#include "collectives/engine/engine.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

#include "base/crc32c.h"
#include "base/thread.h"
#include "collectives/engine/guard.h"

namespace rondo::engine {

namespace {

constexpr int frames_in_a_row = 64;       // to one peer, before another gets its turn
constexpr int direct_steps_in_a_row = 4;  // of one lane

base::FileDescriptor checked(int descriptor, const char* call) {
  if (descriptor < 0)
    throw Error(Errc::system, std::string(call) + ": " + std::generic_category().message(errno));
  return base::FileDescriptor(descriptor);
}

}  // namespace

Engine::Engine(const EngineOptions& options, std::vector<transports::Transport*> routes,
               std::vector<transports::Transport*> transports, EngineObserver* observer)
    : options_(options),
      routes_(std::move(routes)),
      transports_(std::move(transports)),
      observer_(observer),
      idle_program_(options.size),
      point_({options.rank, options.size, options.checksum}, *this),
      pool_(std::make_shared<OperationPool>()),
      wake_(checked(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "eventfd")),
      timer_(checked(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), "timerfd_create")) {
  lane(transports::Lane::bulk).prepare(transports::Lane::bulk, options_.size);
  lane(transports::Lane::urgent).prepare(transports::Lane::urgent, options_.size);
  for (transports::Transport* transport : transports_) {
    transports::Windows* const windows = transport->windows();
    if (windows == nullptr || windows->ranks().size() != routes_.size() || !direct_.empty())
      continue;
    if (routes_.size() > direct::most_direct_ranks) continue;
    direct_.reserve(lane_count);
    for (int i = 0; i < lane_count; ++i)
      direct_.emplace_back(*windows, direct::DirectOptions{options_.rank, options_.reproducible},
                           static_cast<Priority>(i));
  }
  if (options_.size > 1) background_ = base::start_thread("rondo-engine", [this] { background(); });
}

Engine::~Engine() {
  stop();
  pool_->close();
}

const schedules::Program& Engine::program(const schedules::Call& call) {
  const schedules::Signature& s = call.signature;
  const int root = schedules::schedule_root(s);
  for (const auto& p : programs_)
    if (p->is(s.operation, s.algorithm, root, call.depth)) return *p;
  programs_.push_back(std::make_unique<schedules::Program>(
      s.operation, s.algorithm, root, options_.rank, options_.size, call.depth, options_.hosts));
  return *programs_.back();
}

// With one reference: the engine's, until it has ended.
Operation* Engine::take_operation() {
  Operation* const operation = pool_->take();
  if (operation == nullptr) return new Operation(*this, pool_);
  operation->renew();
  return operation;
}

// Operations overlap in time, so one must not begin on memory that another still writes, or write
// what another still reads.
void Engine::wait_for_buffers(std::unique_lock<std::mutex>& lock, const schedules::Call& call) {
  const auto find = [&]() -> Operation* {
    for (const Lane& l : lanes_)
      for (Operation* o = l.first(); o != nullptr; o = o->next)
        if (o->conflicts(call)) return o;
    return nullptr;
  };
  while (Operation* const other = find()) {
    other->add_reference();
    lock.unlock();
    wait(*other, base::TimePoint::max());
    other->drop();
    lock = Guard::acquire(*this);
  }
}

Operation* Engine::start(const schedules::Call& call) {
  std::unique_lock lock = Guard::acquire(*this);
  wait_for_buffers(lock, call);
  const base::TimePoint now = base::Clock::now();
  TakenOperation taken(take_operation());
  Operation& operation = *taken;
  Lane& its_lane = lane(transports::lane_of(call.priority));
  // What can throw comes first: a number that has been taken must be used, or the ranks no longer
  // agree.
  const bool by_direct = call.signature.algorithm == schedules::Algorithm::direct;
  if (by_direct) {
    operation.run.begin_idle(idle_program_);
  } else if (!failure_) {
    operation.run.begin(program(call), call, options_.rank, options_.size, room_);
  }
  operation.keep_counts(call);
  operation.begin(call, its_lane.begin_number(), now);
  static_cast<void>(taken.release());
  operation.add_reference();
  ++statistics_.operations;
  if (failure_) {
    operation.end(Operation::State::failed, failure_->code,
                  text(operation) + ": " + failure_->cause);
    operation.drop();
    return &operation;
  }
  its_lane.append(operation);
  ++pending_;
  if (operation.run.complete()) {
    finish(operation);
  } else {
    next_deadline_ = std::min(next_deadline_, operation.deadline);
    stall_check_ = std::min(stall_check_, now + stall_time);
    // Under suspicion nothing leaves this rank: a post would be a new cause for the others.
    if (by_direct && !suspicion_) direct(operation.lane).begin(operation);
    check_peers(operation);
    try_pass();
    // Whoever sleeps has not seen what this pass has read, nor the new deadline.
    if (sleeping_ > 0 && operation.state() == Operation::State::running) wake();
    if (pending_ > 0 && waiters_ == 0) arm_background(background_delay);
  }
  deliver(lock);
  return &operation;
}

bool Engine::try_pass() {
  try {
    return pass();
  } catch (const std::exception& error) {  // no memory, or no more descriptors to watch with
    return give_up(error);
  }
}

bool Engine::give_up(const std::exception& error) {
  suspect(
      {Errc::system, "rank " + std::to_string(options_.rank) + " cannot go on: " + error.what()});
  return false;
}

bool Engine::pass() {
  if (failure_ || suspicion_) return false;
  for (Lane& l : lanes_) l.grant_staging();
  bool moved = pass_direct();
  moved = send_ready(lane(transports::Lane::urgent)) || moved;
  moved = point_.send_ready() || moved;
  moved = send_ready(lane(transports::Lane::bulk)) || moved;
  bool arrived = false;
  for (transports::Transport* transport : transports_)
    arrived = transport->progress(*this) || arrived;
  if (arrived && !suspicion_) {
    send_ready(lane(transports::Lane::urgent));
    point_.send_ready();
    send_ready(lane(transports::Lane::bulk));
  }
  return moved || arrived;
}

bool Engine::pass_direct() {
  if (direct_.empty() || failure_ || suspicion_) return false;
  const bool moved = pass_direct(direct(transports::Lane::urgent));
  return pass_direct(direct(transports::Lane::bulk)) || moved;
}

bool Engine::pass_direct(direct::DirectLane& direct) {
  bool moved = false;
  for (int i = 0; i < direct_steps_in_a_row && !direct.idle(); ++i) {
    Operation& operation = direct.first();
    const direct::DirectLane::Step step = direct.advance();
    if (step == direct::DirectLane::Step::none) break;
    moved = true;
    ++lane(operation.lane).frames_received;  // a sign of life
    const bool urgent = operation.lane == transports::Lane::urgent;
    if (step == direct::DirectLane::Step::done) finish(operation);
    // A piece of a large one: first see what is urgent.
    if (step == direct::DirectLane::Step::moved && !urgent) break;
    if (step == direct::DirectLane::Step::refused) {
      refuse_post(direct);
      break;
    }
  }
  return moved;
}

bool Engine::send_ready(Lane& lane) {
  bool moved = false;
  for (std::size_t i = 0; i < lane.senders().size();) {
    Channel* const channel = lane.senders()[i];
    moved |= send_ready(*channel);
    if (i < lane.senders().size() && lane.senders()[i] == channel) ++i;
  }
  return moved;
}

bool Engine::send_ready(Channel& c) {
  bool moved = false;
  for (int i = 0; i < frames_in_a_row && c.sending != nullptr && c.lost.empty(); ++i) {
    Operation& operation = *c.sending;
    const int index = c.sending_index;
    const auto outgoing = operation.run.sendable(index);
    if (!outgoing) break;
    if (c.link == nullptr)
      c.link = &routes_[static_cast<std::size_t>(c.peer)]->link(c.peer, c.lane);
    Frame frame = frame_of(operation, outgoing->place, outgoing->payload.size());
    if (options_.checksum && !outgoing->payload.empty())
      frame.checksum = base::crc32c(outgoing->payload);
    const transports::Send result = c.link->send(encode(frame), outgoing->payload, 0);
    if (result == transports::Send::full) break;
    moved = true;
    ++statistics_.frames_sent;
    statistics_.bytes_sent += outgoing->payload.size();
    const FramePlace place = operation.run.send_started(index);
    if (result != transports::Send::queued) operation.run.payload_released(place);
    if (result == transports::Send::done) {
      operation.run.send_finished(place);
    } else {
      c.queued.push_back({&operation, place, result == transports::Send::queued});
    }
    lane(c.lane).settle_sending(c);
    if (operation.run.complete()) finish(operation);
  }
  return moved;
}

Frame Engine::frame_of(const Operation& operation, const FramePlace& place,
                       std::size_t bytes) const {
  return {operation.signature,
          operation.number,
          static_cast<std::uint32_t>(place.segment),
          place.frame,
          bytes,
          0};
}

Channel& Engine::channel(transports::Link& link) noexcept {
  Channel& c = lane(link.lane()).channel(link.peer());
  c.link = &link;
  return c;
}

std::optional<transports::Receive> Engine::expected(transports::Link& link, std::size_t ahead) {
  if (failure_ || suspicion_) return std::nullopt;
  if (link.lane() == transports::Lane::messages)
    return ahead == 0 ? point_.expected(link) : std::nullopt;
  Channel& c = channel(link);
  if (c.receiving == nullptr) return std::nullopt;
  return c.receiving->run.receivable(c.receiving_index, ahead);
}

transports::Header Engine::arrived(transports::Link& link, const transports::HeaderBytes& header) {
  if (failure_ || suspicion_) return transports::Header::refuse;
  if (link.lane() == transports::Lane::messages) return point_.arrived(link, header);
  Channel& c = channel(link);
  auto frame = decode(header);
  if (!frame) {
    suspect({Errc::corrupt, lost_text(c, "a frame header is damaged")});
    return transports::Header::refuse;
  }
  if (c.receiving == nullptr && frame->number > lane(c.lane).started()) {
    c.held = frame;
    any_held_ = true;
    return transports::Header::hold;
  }
  if (!check_frame(c, *frame)) return transports::Header::refuse;
  if (!c.receiving->run.receivable(c.receiving_index)) return transports::Header::hold;
  c.held.reset();
  c.arriving = frame;
  c.checksum = 0;
  return transports::Header::accept;
}

std::size_t Engine::data(transports::Link& link, std::span<const std::byte> view) {
  if (link.lane() == transports::Lane::messages) return view.size();  // such frames are placed
  Channel& c = channel(link);
  if (c.receiving == nullptr) return view.size();
  const std::size_t used = c.receiving->run.consume(c.receiving_index, view);
  if (options_.checksum) c.checksum = base::crc32c(view.first(used), c.checksum);
  return used;
}

void Engine::received(transports::Link& link) {
  if (link.lane() == transports::Lane::messages) {
    if (!failure_ && !suspicion_) point_.received(link);
    return;
  }
  Channel& c = channel(link);
  if (c.receiving == nullptr || failure_ || suspicion_) return;
  Operation& operation = *c.receiving;
  const Frame frame = *c.arriving;
  c.arriving.reset();
  if (options_.checksum && frame.bytes != 0) {
    const bool borrowed = operation.run.receivable(c.receiving_index)->destination == nullptr;
    if ((borrowed ? c.checksum : base::crc32c(operation.run.placed(c.receiving_index))) !=
        frame.checksum)
      return suspect({Errc::corrupt, lost_text(c, "the checksum of a payload does not match")});
  }
  ++statistics_.frames_received;
  ++lane(c.lane).frames_received;
  statistics_.bytes_received += frame.bytes;
  operation.run.received(c.receiving_index);
  lane(c.lane).settle_receiving(c);
  if (operation.run.complete()) finish(operation);
}

void Engine::sent(transports::Link& link, std::uint64_t) {
  if (link.lane() == transports::Lane::messages) return point_.sent(link);
  Channel& c = channel(link);
  if (c.queued.empty()) return;
  const QueuedSend send = c.queued.front();
  c.queued.erase(c.queued.begin());
  if (send.borrowed) send.operation->run.payload_released(send.place);
  send.operation->run.send_finished(send.place);
  if (send.operation->run.complete()) finish(*send.operation);
}

void Engine::finish(Operation& operation) {
  Lane& its_lane = lane(operation.lane);
  its_lane.remove(operation);
  its_lane.last_signature = operation.signature;
  its_lane.last_number = operation.number;
  end(operation, Operation::State::done, {}, {});
}

}  // namespace rondo::engine
