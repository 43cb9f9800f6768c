// SPDX-License-Identifier: Apache-2.0
//
// Connects a lane with one GPU: pinned host memory, queues of copies between it and the GPU, marks
// of calls, and calls of the driver that wake this rank. OnPort makes a DeviceMemory of it.
//
// Marks are events of the callers' streams. A stream reaches its marks in order, so only the first
// mark of each stream is looked at and watched.
//
// Threads: constructor, make_spares(), settle() and destructor may block; they run without the
// engine's lock, the last two after the engine's end. The rest is as in device_memory.h.
// Failures: as in device_memory.h. The functions of the queues need the GPU's context current
// (device::Current).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fifo.h"
#include "collectives/operation/device_memory.h"
#include "collectives/operation/waker.h"
#include "device/copy_queue.h"
#include "device/gpu.h"
#include "device/objects.h"

namespace rondo::gpu {

inline device::Address address_of(const std::byte* memory) noexcept {
  return reinterpret_cast<device::Address>(memory);
}

class Port {
 public:
  struct Size {
    std::size_t bytes = 0;   // of pinned memory
    std::size_t queues = 0;  // of copies
  };
  // gpu outlives the object.
  Port(const device::Gpu& gpu, const Size& size, bool urgent,
       std::shared_ptr<operation::Waker> waker);
  // After settle() or abandon().
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  const device::Gpu& gpu() const noexcept { return gpu_; }
  std::byte* memory() const noexcept { return parts_->memory.data(); }
  std::size_t bytes() const noexcept { return parts_->memory.bytes(); }
  device::CopyQueue& queue(std::size_t index) noexcept { return parts_->queues[index]; }
  const device::CopyQueue& queue(std::size_t index) const noexcept { return parts_->queues[index]; }
  // Takes an event for good. It has a number, because events move when others are added.
  std::size_t take_event() noexcept;
  device::Event& event(std::size_t number) noexcept { return parts_->events[number]; }

  // See DeviceMemory.
  bool wants_spares(device::StreamHandle stream) noexcept;
  void make_spares();
  void add_spares();
  void set_mark(operation::Mark& mark, device::StreamHandle stream);
  bool look();
  std::string awaited(const operation::Mark& mark) const;
  bool prepare_sleep();
  void forget_marks() noexcept { streams_.clear(); }
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
    std::vector<device::Event> events;
  };
  // CUDA's own thread uses these when it calls wake().
  struct Calls {
    explicit Calls(std::shared_ptr<operation::Waker> its_waker) noexcept
        : waker(std::move(its_waker)) {}
    static void wake(void* calls);

    const std::shared_ptr<operation::Waker> waker;
    std::atomic<int> left{0};  // calls of wake() that are still to come
  };
  // A stream of the program with marks. CUDA has one handle for the streams that threads have by
  // default.
  struct Stream {
    device::StreamHandle handle = nullptr;
    std::uint64_t thread = 0;                // whose stream it is, if the handle is that one
    base::Fifo<operation::Mark> marks = {};  // not reached
    int watcher = -1;                        // wakes the driver at the first one; negative: none
  };

  // The stream that the calling thread means by the handle.
  static Stream stream_of(device::StreamHandle handle) noexcept;
  std::vector<Stream>::iterator find(device::StreamHandle handle) noexcept;
  void add_event(device::Event event);
  void add_watcher(device::Stream watcher);
  bool has_news(const Stream& stream) const noexcept {
    return parts_->events[stream.marks.first()->event].query() != device::not_ready;
  }
  bool take_reached(Stream& stream);
  void watch(Stream& stream);
  template <class Enqueue>
  void call(Enqueue enqueue);
  template <class Done>
  bool wait_until(base::TimePoint until, Done done) noexcept;
  bool copies_ended() noexcept;

  const device::Gpu& gpu_;
  std::unique_ptr<Calls> calls_;
  std::unique_ptr<Parts> parts_;
  std::vector<std::size_t> free_events_;
  std::vector<int> free_watchers_;
  std::vector<Stream> streams_;
  bool wants_event_ = false, wants_watcher_ = false;
  std::optional<device::Event> spare_event_;
  std::optional<device::Stream> spare_watcher_;
};

// Implements what all kinds of device memory have in common. Interface: DeviceMemory or what a kind
// of operation has made of it.
template <class Interface>
class OnPort : public Interface {
 public:
  using Stream = device::StreamHandle;

  Port& port() noexcept { return port_; }

  std::string name() const override { return "GPU " + std::to_string(port_.gpu().ordinal()); }
  bool wants_spares(Stream stream) noexcept override { return port_.wants_spares(stream); }
  void make_spares() override { port_.make_spares(); }
  void add_spares() override { port_.add_spares(); }
  void set_mark(operation::Mark& mark, Stream stream) override { port_.set_mark(mark, stream); }
  bool look() override { return port_.look(); }
  std::string awaited(const operation::Mark& mark) const override { return port_.awaited(mark); }
  bool prepare_sleep() override { return port_.prepare_sleep(); }
  void forget_all() noexcept override { port_.forget_marks(); }
  bool await_copies(base::TimePoint until) noexcept override { return port_.await_copies(until); }
  std::size_t bytes() const noexcept override { return port_.bytes(); }

 protected:
  OnPort(const device::Gpu& gpu, const Port::Size& size, bool urgent,
         std::shared_ptr<operation::Waker> waker)
      : port_(gpu, size, urgent, std::move(waker)) {}

  Port port_;
};

}  // namespace rondo::gpu
