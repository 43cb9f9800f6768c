// SPDX-License-Identifier: Apache-2.0
//
// Carries the operations of one lane whose buffers are on one GPU. Copies their segments to pinned
// host memory before they open, and results back when their steps are done, while links and the CPU
// work on other segments (Run::staged). Nothing on a stream waits for another process.
//   - The staging memory has two halves, each with streams of its own. An operation uses one half
//     until it ends. So the first segments of an operation are loaded while the last ones of the
//     operation before are stored, and on its own GPU no operation waits for the caller's stream of
//     another.
//   - An operation has a mark, an event of the caller's stream: what was enqueued there before the
//     call comes before the copies. A copy is enqueued only when this host has seen the mark. So a
//     failure leaves none behind that could begin late.
//
// Threads: constructor, settle() and destructor may block; they run without the engine's lock,
// before and after the engine uses the object. The rest is thread-bound to whoever holds the
// engine's lock, and does not block, except that await_copies() waits for a while.
// Failures: the constructor and the functions that are not noexcept throw Error(system), which
// names the GPU and the driver's error.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/waker.h"
#include "device/copy_queue.h"
#include "device/gpu.h"
#include "device/objects.h"

namespace rondo::engine {

class GpuStaging {
 public:
  // How long a communicator waits for copies under way after a failure and at its end.
  static constexpr milliseconds settle_time{500};

  // half_bytes: of staging memory, the most that one operation may need. gpu outlives the object.
  GpuStaging(const device::Gpu& gpu, std::size_t half_bytes, bool urgent,
             std::shared_ptr<Waker> waker);
  // After settle() or abandon().
  ~GpuStaging();
  GpuStaging(const GpuStaging&) = delete;
  GpuStaging& operator=(const GpuStaging&) = delete;

  const device::Gpu& gpu() const noexcept { return gpu_; }
  std::size_t half_bytes() const noexcept { return half_bytes_; }
  std::byte* memory() const noexcept { return parts_->memory.data(); }
  std::size_t bytes() const noexcept { return parts_->memory.bytes(); }

  // A start takes a mark. If none is free, the caller makes an event without the engine's lock and
  // adds it.
  bool has_mark() const noexcept { return !free_marks_.empty(); }
  void add_mark(device::Event mark);
  // Takes a mark and records it on the stream. When this throws, it has taken none.
  std::size_t set_mark(device::StreamHandle stream);
  void give_back(std::size_t mark) noexcept { free_marks_.push_back(mark); }

  // The operation has begun, is staged and has its mark.
  void begin(ScheduledOperation& operation) noexcept;
  bool idle() const noexcept {
    return first_ == nullptr && halves_[0].owner == nullptr && halves_[1].owner == nullptr;
  }
  // Does what can be done now. True when anything was.
  bool advance();
  // An operation that is complete, which this object then forgets; null when there is none.
  ScheduledOperation* take_complete() noexcept;
  // Makes the stream wait for the operation's last store. Requires that it is enqueued().
  void join(const ScheduledOperation& operation, device::StreamHandle stream);
  // Whether everything of another operation has been enqueued since the last call.
  bool take_enqueued() noexcept { return std::exchange(any_enqueued_, false); }
  // Makes the GPU wake the driver when it has done something that advance() waits for. False: it
  // already has.
  bool prepare_sleep();
  // Forgets all operations. Their copies may still be under way.
  void clear() noexcept;
  // Waits until no copy is under way, but not beyond `until`. False: some still are.
  bool await_copies(base::TimePoint until) noexcept;
  // After the engine's end: waits until the GPU has done all that concerns this object, but not
  // beyond `until`. False: abandon() must come before the destructor.
  bool settle(base::TimePoint until) noexcept;
  // Leaves everything to the end of the process. To free memory, CUDA waits for work of the program
  // too.
  void abandon() noexcept;
  // "GPU 1, which has not yet done ...", if the operation's mark has not been reached; else empty.
  std::string awaited(const ScheduledOperation& operation) const;

 private:
  struct Half {
    ScheduledOperation* owner = nullptr;
    std::byte* memory = nullptr;
    device::CopyQueue* loads = nullptr;
    device::CopyQueue* stores = nullptr;
  };
  // What the GPU may still use when this object ends.
  struct Parts {
    Parts(const device::Gpu& gpu, std::size_t bytes, bool urgent);

    device::PinnedMemory memory;
    std::array<device::CopyQueue, 4> queues;
    std::vector<device::Event> marks;
  };
  // What the driver's thread uses.
  struct Calls {
    explicit Calls(std::shared_ptr<Waker> its_waker) noexcept : waker(std::move(its_waker)) {}
    static void wake(void* calls);

    const std::shared_ptr<Waker> waker;
    std::atomic<int> left{0};  // of wake()
  };

  template <class Done>
  bool wait_until(base::TimePoint until, Done done) noexcept;
  bool copies_ended() noexcept;
  bool has_news(const Half& half) const;
  void watch(Half& half);
  bool grant();
  bool advance(Half& half);
  bool load(Half& half);
  bool store(Half& half);
  bool mark_reached(ScheduledOperation& operation);

  const device::Gpu& gpu_;
  const std::size_t half_bytes_;
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<Parts> parts_;
  std::array<Half, 2> halves_;
  ScheduledOperation *first_ = nullptr, *last_ = nullptr;  // they wait for a half
  bool any_enqueued_ = false;
  std::vector<std::size_t> free_marks_;
  std::vector<Run::Copy> copies_;  // of the segment that is being enqueued
};

}  // namespace rondo::engine
