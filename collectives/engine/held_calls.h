// SPDX-License-Identifier: Apache-2.0
//
// Keeps the calls that have been started and have not begun, because their memory is still in use.
// Such a call has its number and its deadline, but its owner does not know it yet.
//   - A collective also waits for the calls of its lane that wait before it: the frames on a link
//     come in the order of the calls.
//   - A message in device memory also waits for its mark (device_memory.h).
//   - A message also waits for the messages before it with the same peer, tag and direction: these
//     are matched in order. A receive from any rank counts as one with every peer. Other messages
//     pass it, or a peer that receives them first would wait for ever.
// A call waits only for calls that were started before it, so calls never wait in a circle.
//
// While a call is held, this object is its owner and says what it waits for.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: see owner.h.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "base/fifo.h"
#include "collectives/operation/lane_calls.h"
#include "collectives/operation/operation.h"
#include "collectives/operation/owner.h"
#include "collectives/point/message_operation.h"

namespace rondo::engine {

class HeldCalls final : public operation::OperationOwner {
 public:
  // The calls under way, by lane; they outlive this object.
  explicit HeldCalls(
      std::span<const operation::LaneCalls, transports::link_lane_count> calls) noexcept
      : calls_(calls) {}

  // Whether no collective is under way and nothing is held: then no message must be held.
  bool none_in_the_way() const noexcept {
    return held_ == 0 && calls_[0].first() == nullptr && calls_[1].first() == nullptr;
  }
  // Whether a call that starts now must be held.
  bool must_hold(const schedules::Call& call) const noexcept;
  bool must_hold(const point::PointCall& call) const noexcept;
  // The call is in LaneCalls and has an owner, which begin() will need. It has kept what it needs
  // of the caller's arguments.
  void hold(operation::Operation& operation) noexcept;
  // A call has ended or a mark has been reached, so another may begin.
  void memory_freed() noexcept { freed_ = held_ > 0; }
  // Whether take() may find a call.
  bool any_freed() const noexcept { return freed_; }
  // Lets go of a call that may begin now, and gives it back to its owner. Null: there is none.
  operation::Operation* take() noexcept { return freed_ ? take_first() : nullptr; }

  bool advance() override { return false; }
  void clear() noexcept override;
  operation::Standing standing(const operation::Operation& operation, bool wants_only) override;
  // The ranks that the call in the way waits for.
  void append_awaited(const operation::Operation& operation,
                      operation::Awaited& awaited) const override;
  // "not done within 2 s: it has not begun, because it waits for the end of all_reduce #3 ..."
  std::string late_text(const operation::Operation& operation) const override;
  operation::Traffic traffic() const noexcept override { return {}; }

 private:
  using Queue = base::Fifo<operation::Operation>;

  Queue& queue(transports::Lane lane) noexcept { return queues_[static_cast<std::size_t>(lane)]; }
  const Queue& queue(transports::Lane lane) const noexcept {
    return queues_[static_cast<std::size_t>(lane)];
  }
  operation::Operation* take_first() noexcept;
  template <class Test>
  operation::Operation* take_from(Queue& queue, Test test) noexcept;
  const operation::Operation* user_of(std::span<const std::byte> reads,
                                      std::span<const std::byte> writes,
                                      std::uint64_t order) const noexcept;
  const operation::Operation* user_of_memory(const operation::Operation& operation) const noexcept;
  const operation::Operation* message_before(std::span<const point::PointTransfer> transfers,
                                             const operation::Operation* end) const noexcept;
  const operation::Operation* held_before(const operation::Operation& operation) const noexcept;
  const operation::Operation* in_the_way(const operation::Operation& operation) const noexcept;

  const std::span<const operation::LaneCalls, transports::link_lane_count> calls_;
  std::array<Queue, transports::link_lane_count> queues_;  // in the order of the starts
  std::size_t held_ = 0;
  bool freed_ = false;  // a call has ended, or a mark was reached, since take() found none
};

}  // namespace rondo::engine
