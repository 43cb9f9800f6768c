// SPDX-License-Identifier: Apache-2.0
//
// Connects a lane with one GPU: pinned host memory, queues of copies between it and the GPU, marks
// of calls, and calls of the driver that wake this rank.
//
// An operation has a mark, an event of the caller's stream: what was enqueued there before the call
// comes before the copies. A copy is enqueued only when this host has seen the mark. So a failure
// leaves none behind that could begin late.
//
// Threads: constructor, settle() and destructor may block; they run without the engine's lock,
// before and after the engine uses the object. The rest is thread-bound to whoever holds the
// engine's lock, and does not block, except that await_copies() waits for a while.
// Failures: the constructor and the functions that are not noexcept throw Error(system), which
// names the GPU and the driver's error. They need the GPU's context current (device::Current),
// except the constructor and set_mark().
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/waker.h"
#include "device/copy_queue.h"
#include "device/gpu.h"
#include "device/objects.h"

namespace rondo::operation {

// A stream of the program, on which marks are reached in order. CUDA has one handle for the streams
// that threads have by default.
struct GpuStream {
  device::StreamHandle handle = nullptr;
  std::thread::id thread = {};
  // As the calling thread means the handle.
  static GpuStream of(device::StreamHandle handle) noexcept;
  bool operator==(const GpuStream&) const = default;
};

// Belongs to one operation.
struct GpuMark {
  std::size_t index = 0;
  GpuStream stream;
  bool reached = false;  // this host has seen that
  int watcher = -1;      // wakes the driver then; negative: none does
};

class GpuPort {
 public:
  // How long a communicator waits for copies under way after a failure and at its end.
  static constexpr milliseconds settle_time{500};

  struct Size {
    std::size_t bytes = 0;   // of pinned memory
    std::size_t queues = 0;  // of copies
  };
  // gpu outlives the object.
  GpuPort(const device::Gpu& gpu, const Size& size, bool urgent, std::shared_ptr<Waker> waker);
  // After settle() or abandon().
  ~GpuPort();
  GpuPort(const GpuPort&) = delete;
  GpuPort& operator=(const GpuPort&) = delete;

  const device::Gpu& gpu() const noexcept { return gpu_; }
  std::byte* memory() const noexcept { return parts_->memory.data(); }
  std::size_t bytes() const noexcept { return parts_->memory.bytes(); }
  device::CopyQueue& queue(std::size_t index) noexcept { return parts_->queues[index]; }
  const device::CopyQueue& queue(std::size_t index) const noexcept { return parts_->queues[index]; }

  // A start takes a mark. What this wants, the caller makes without the engine's lock and adds. A
  // watcher is a stream that waits for one mark.
  bool wants_mark() const noexcept { return free_marks_.empty(); }
  bool wants_watcher(device::StreamHandle stream) const noexcept;
  void add_mark(device::Event mark);
  void add_watcher(device::Stream watcher);
  // Takes a mark and records it on the stream. When this throws, it has taken none.
  GpuMark set_mark(device::StreamHandle stream);
  void give_back(const GpuMark& mark) noexcept;
  device::Event& event(const GpuMark& mark) noexcept { return parts_->marks[mark.index]; }
  // Throws when work before the mark has failed.
  bool reached(GpuMark& mark) const;
  // Whether reached() has something new to say.
  bool has_news(const GpuMark& mark) const noexcept;
  // "GPU 1, which has not yet done ...", unless the mark has been reached; else empty.
  std::string awaited(const GpuMark& mark) const;

  // Makes the GPU wake the driver when the mark is reached, or when the oldest batch of the queue
  // has ended. There is a watcher for each stream with marks: only the first mark of a stream is to
  // be watched.
  void watch(GpuMark& mark);
  void watch(device::CopyQueue& queue);

  // Waits until no copy is under way, but not beyond `until`. False: some still are.
  bool await_copies(base::TimePoint until) noexcept;
  // After the engine's end: waits until the GPU has done all that concerns this object, but not
  // beyond `until`. False: abandon() must come before the destructor.
  bool settle(base::TimePoint until) noexcept;
  // Leaves everything to the end of the process. To free memory, CUDA waits for work of the program
  // too.
  void abandon() noexcept;

 private:
  // The GPU may still use these when this object ends.
  struct Parts {
    Parts(const device::Gpu& gpu, const Size& size, bool urgent);

    device::PinnedMemory memory;
    std::vector<device::CopyQueue> queues;
    std::vector<device::Stream> watchers;
    std::vector<device::Event> marks;
  };
  // CUDA's own thread uses these when it calls wake().
  struct Calls {
    explicit Calls(std::shared_ptr<Waker> its_waker) noexcept : waker(std::move(its_waker)) {}
    static void wake(void* calls);

    const std::shared_ptr<Waker> waker;
    std::atomic<int> left{0};  // of wake()
  };

  struct Used {
    GpuStream stream;
    std::size_t marks = 0;
  };

  template <class Enqueue>
  void call(Enqueue enqueue);
  template <class Done>
  bool wait_until(base::TimePoint until, Done done) noexcept;
  bool copies_ended() noexcept;

  const device::Gpu& gpu_;
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<Parts> parts_;
  std::vector<std::size_t> free_marks_;
  std::vector<int> free_watchers_;
  std::vector<Used> streams_;  // those with marks that have not been given back
};

}  // namespace rondo::operation
