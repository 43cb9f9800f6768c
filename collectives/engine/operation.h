// SPDX-License-Identifier: Apache-2.0
//
// What a Work handle points to. The engine holds one reference while it runs, each handle another.
// The last one gives the operation back to the pool, from which the engine takes it again: the hot
// path allocates none, however many handles are held.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "collectives/engine/operation_pool.h"
#include "collectives/engine/run.h"
#include "collectives/point/call.h"
#include "collectives/schedules/call.h"

namespace rondo::engine {

class Engine;

class Operation {
 public:
  enum class State : std::uint8_t { running, done, failed };

  // Starts with one reference, as after renew().
  Operation(Engine& engine, std::shared_ptr<OperationPool> pool) noexcept
      : engine_(&engine), pool_(std::move(pool)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  // A thread that holds the only reference needs no atomic decrement.
  void drop() noexcept {
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      give_back();
  }
  // The pool calls it when it hands the operation out: nobody else refers to it.
  void renew() noexcept { references_.store(1, std::memory_order_relaxed); }
  void destroy() noexcept { delete this; }  // the pool's

  // Thread-safe. The engine may be used only while running: its destructor ends every operation
  // first.
  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  Engine& engine() const noexcept { return *engine_; }

  // The rest is the engine's, under its lock, until the state says otherwise; code and message do
  // not change after that. One of the two writes memory that the other reads or writes.
  bool conflicts(const schedules::Call& call) const noexcept;
  void keep_counts(const schedules::Call& call);
  void begin(const schedules::Call& call, std::uint64_t call_number, base::TimePoint now);
  void end(State state, std::error_code code, std::string message);

  // Of the blocks and their end, where ranks have counts of their own and there is no schedule;
  // else empty.
  std::span<const std::size_t> offsets() const noexcept { return offsets_; }
  nanoseconds waited(base::TimePoint now) const noexcept { return now - (deadline - time_limit); }
  // Of a collective.
  Priority priority() const noexcept {
    return lane == transports::Lane::urgent ? Priority::urgent : Priority::bulk;
  }
  bool direct() const noexcept { return signature.algorithm == schedules::Algorithm::direct; }

  Run run;
  schedules::Signature signature;
  transports::Lane lane = transports::Lane::bulk;
  std::uint64_t number = 0;
  nanoseconds time_limit{};
  base::TimePoint deadline = base::TimePoint::max();
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t in_bytes = 0, out_bytes = 0;
  char tag[32] = {};
  std::error_code code;
  std::string message;
  std::function<void(std::error_code)> callback;
  Operation* next = nullptr;         // in the lane, in start order
  Operation* next_ended = nullptr;   // among those whose callback is to be made
  Operation* next_direct = nullptr;  // among those without a schedule
  Operation* next_free = nullptr;    // in the pool
  // Of messages: the other neighbour, what it is, and how much of it is under way.
  Operation* before = nullptr;
  point::PointShape point;
  std::size_t transfers_left = 0;

 private:
  ~Operation() = default;
  void give_back() noexcept;

  Engine* engine_;
  std::shared_ptr<OperationPool> pool_;
  std::vector<std::size_t> offsets_;
  std::atomic<std::uint32_t> references_{1};
  std::atomic<State> state_{State::done};
};

// One reference, until it is released.
struct DropReference {
  void operator()(Operation* operation) const noexcept { operation->drop(); }
};
using TakenOperation = std::unique_ptr<Operation, DropReference>;

}  // namespace rondo::engine
