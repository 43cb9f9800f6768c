// SPDX-License-Identifier: Apache-2.0
//
// One call under way on this rank, and what a Work handle points to. The kinds add what their owner
// needs: ScheduledOperation and DirectOperation here, MessageOperation in collectives/point.
//
// The engine holds one reference while the operation runs, each handle another. Whoever drops the
// last one gives the operation back to its pool, from which the engine takes it again. So a start
// allocates an operation only when more are in use than ever before.
//
// Threads: references, state() and engine() are thread-safe. The rest belongs to the engine, under
// its lock, while the operation runs; `code` and `message` do not change after that.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/device_memory.h"
#include "collectives/operation/operation_pool.h"
#include "collectives/operation/run.h"
#include "collectives/schedules/call.h"
#include "transports/transport.h"

// Classes of rooms above, which run an operation. It only points to them.
namespace rondo::lanes {
class TwoLevelOwner;
}  // namespace rondo::lanes
namespace rondo::engine {
class Engine;
}  // namespace rondo::engine

namespace rondo::operation {

class CollectiveOperation;
class OperationOwner;
struct Record;

// When an operation got how far, mostly by the driver's last look at the clock. A default value: it
// is not known, because the operation did not get there or ended before a look.
struct OperationTimes {
  base::TimePoint called{};
  base::TimePoint sent{};              // the first frame
  base::TimePoint arrived{};           // the last arrival
  base::TimePoint copied{}, stored{};  // the first copy from the device, the last copy to it
  int last = -1;                       // the rank for which this one waited alone, and how long
  nanoseconds late{};
};

// As much of a call's tag as fits, and a 0.
inline void keep_tag(std::string_view tag, char (&to)[32]) noexcept {
  const std::size_t length = std::min(tag.size(), sizeof(to) - 1);
  std::copy_n(tag.data(), length, to);
  to[length] = '\0';
}

class Operation {
 public:
  enum class State : std::uint8_t { running, done, failed };

  // Starts with one reference, as after renew().
  Operation(engine::Engine& engine, std::shared_ptr<OperationPool> pool) noexcept
      : engine_(&engine), pool_(std::move(pool)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  void add_reference() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  // For a thread that holds the only reference: nobody else can count meanwhile.
  void add_second_reference() noexcept { references_.store(2, std::memory_order_relaxed); }
  // A thread that holds the only reference skips the atomic decrement: nobody else can add one.
  void drop() noexcept {
    if (references_.load(std::memory_order_acquire) == 1 ||
        references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
      give_back();
  }
  // For the engine, when it has taken the operation out of the pool: nobody else refers to it.
  void renew() noexcept { references_.store(1, std::memory_order_relaxed); }
  void destroy() noexcept { delete this; }  // the pool calls it

  State state() const noexcept { return state_.load(std::memory_order_acquire); }
  // To be used only while the operation runs, for it may outlive the engine. The engine's
  // destructor ends every operation first.
  engine::Engine& engine() const noexcept { return *engine_; }

  void succeed() noexcept { state_.store(State::done, std::memory_order_release); }
  void fail(std::error_code its_code, std::string its_message);

  // True when this operation writes memory of `reads` or `writes`, or reads memory of `writes`.
  virtual bool conflicts(std::span<const std::byte> reads,
                         std::span<const std::byte> writes) const noexcept = 0;
  // "all_reduce #41 (64 MiB f32 sum, ring over tcp)"; an empty transport is left out.
  virtual std::string describe(std::string_view transport) const = 0;
  // Whether everything has been enqueued on a device that comes before the end. Under the engine's
  // lock, while the operation runs.
  virtual bool enqueued() const noexcept { return false; }
  // The rank that a receive got its message from, once it has ended well; -1 for other operations.
  virtual int source() const noexcept { return -1; }
  // Null for messages between two ranks, which are no collectives.
  virtual const CollectiveOperation* collective() const noexcept { return nullptr; }
  // For TagCounts.
  std::size_t kind() const noexcept;
  // Fills in what kind of call it is: signature, batch and bytes.
  virtual void outline(Record& record) const noexcept = 0;

  // Called at the driver's first look at the clock after the start. Most operations end before it,
  // and need no clock.
  void start_clock(base::TimePoint now) noexcept {
    timed = true;
    times.called = now;
    deadline = base::after(now, time_limit);
  }
  nanoseconds waited(base::TimePoint now) const noexcept {
    return timed ? now - times.called : nanoseconds{};
  }
  // Names the work that is awaited if the mark has not been reached; else empty.
  std::string awaited_mark() const { return mark.reached ? std::string() : memory->awaited(mark); }

  OperationOwner* owner = nullptr;
  transports::Lane lane = transports::Lane::bulk;
  std::uint64_t number = 0;  // among the calls of its lane on this rank
  std::uint64_t order = 0;   // among all calls on this rank
  nanoseconds time_limit{};
  bool timed = false;
  base::TimePoint deadline = base::TimePoint::max();  // once timed
  OperationTimes times;
  char tag[32] = {};
  // Where the buffers lie, if the processor does not reach them; null: in host memory. The
  // operation comes after the mark.
  DeviceMemory* memory = nullptr;
  Mark mark;
  std::error_code code;
  std::string message;
  std::function<void(std::error_code)> callback;
  Operation *earlier = nullptr, *later = nullptr;  // in LaneCalls
  // In the list of whoever has it: HeldCalls, then its lane, then those whose callback is to be
  // made, then the pool.
  Operation* next = nullptr;
  OperationOwner* next_owner = nullptr;  // while HeldCalls is the owner

 protected:
  virtual ~Operation() = default;
  void start(transports::Lane its_lane, std::uint64_t its_number, nanoseconds limit,
             std::string_view its_tag);

 private:
  void give_back() noexcept;

  engine::Engine* engine_;
  std::shared_ptr<OperationPool> pool_;
  std::atomic<std::uint32_t> references_{1};
  std::atomic<State> state_{State::done};
};

// A call that all ranks make, in the same order in its lane, so `number` is the same on all.
class CollectiveOperation : public Operation {
 public:
  using Operation::Operation;

  bool conflicts(std::span<const std::byte> reads,
                 std::span<const std::byte> writes) const noexcept override;
  std::string describe(std::string_view transport) const override;
  const CollectiveOperation* collective() const noexcept override { return this; }
  void outline(Record& record) const noexcept override;
  Priority priority() const noexcept {
    return lane == transports::Lane::urgent ? Priority::urgent : Priority::bulk;
  }

  schedules::Signature signature;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t in_bytes = 0, out_bytes = 0;
  double input_scale = 1;  // of this rank

 protected:
  void start(const schedules::Call& call, std::uint64_t its_number);
};

inline std::size_t Operation::kind() const noexcept {
  const CollectiveOperation* const call = collective();
  return call != nullptr ? static_cast<std::size_t>(call->signature.operation)
                         : static_cast<std::size_t>(collective_count);
}

// Runs a schedule over links.
class ScheduledOperation final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;
  using CollectiveOperation::start;

  bool enqueued() const noexcept override {
    return run.staged() && staged.stores == run.segments();
  }
  // Keeps the call for a run that begins later. Comes before start(), because it can throw
  // std::bad_alloc.
  void keep_call(const schedules::Call& call);
  const schedules::Call& kept_call() const noexcept { return kept_call_; }

  Run run;
  lanes::TwoLevelOwner* inside = nullptr;  // null: it uses links only
  // How many peers have not sent the frame that tells that they have called (ProgramPeer::tells).
  std::uint32_t unheard = 0;
  // TwoLevelOwner ends this operation, not ScheduledLane.
  bool ends_in_memory = false;
  // For TwoLevelOwner, for each of its stages: parts done, and the next operation there.
  struct Stage {
    std::uint64_t done = 0;
    ScheduledOperation* next = nullptr;
  };
  std::array<Stage, 2> stages;
  // For lanes::Staging, where the call's buffers are in device memory.
  struct Staged {
    DeviceInside inside;
    std::uint64_t loads = 0, stores = 0;  // segments whose copies have been enqueued
    ScheduledOperation* next = nullptr;   // among those that wait for memory
  };
  Staged staged;

 private:
  schedules::Call kept_call_;  // without its tag
  std::vector<std::size_t> kept_counts_;
};

// Runs without links, between ranks that load and store each other's memory.
class DirectOperation final : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

  void start(const schedules::Call& call, std::uint64_t its_number) {
    start_part(call, call.signature, its_number);
  }
  // whole: the call that this one is a part of, as its ranks compare it.
  void start_part(const schedules::Call& call, const schedules::Signature& whole,
                  std::uint64_t its_number) {
    CollectiveOperation::start(call, its_number);
    posted = whole;
  }
  // Call one of these before start(), because it can throw std::bad_alloc. keep_counts() is for
  // blocks that lie side by side, and takes their counts from the call, if it has any.
  void keep_counts(const schedules::Call& call);
  void keep_blocks(std::span<const schedules::Range> blocks) {
    blocks_.assign(blocks.begin(), blocks.end());
  }
  // Where each rank's block lies in the whole buffer. Empty where all counts are alike.
  std::span<const schedules::Range> blocks() const noexcept { return blocks_; }

  schedules::Signature posted;  // what the posts compare
  // In a part of a call in device memory, this buffer is pinned: host and device reach it.
  bool in_is_pinned = false, out_is_pinned = false;
  std::uint64_t turn = 0;  // in direct::DirectLane

 private:
  std::vector<schedules::Range> blocks_;
};

// Holds one reference, and drops it unless it is released.
struct DropReference {
  void operator()(Operation* operation) const noexcept { operation->drop(); }
};
template <class Kind>
using Taken = std::unique_ptr<Kind, DropReference>;

}  // namespace rondo::operation
