// SPDX-License-Identifier: Apache-2.0
//
// The only interface to memory that the processor does not reach: that of a GPU. An operation whose
// buffers lie there points to a DeviceMemory. One in host memory points to none, and needs nothing
// of what follows. Each kind of operation extends the interface: lanes::Staging, direct::Mover,
// point::Staging. collectives/gpu implements these.
//
// A call has a mark, a place on the caller's stream: what was enqueued there before the call comes
// before its copies. A copy is enqueued only when this host has seen the mark reached. So a failure
// leaves no copy behind that could begin late.
//
// Threads: make_spares() runs without the engine's lock. The rest is thread-bound to whoever holds
// it and does not block, except that await_copies() waits for a while.
// Failures: the functions that are not noexcept throw Error(system), which names the device and the
// driver's error.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/driver.h"

namespace rondo::operation {

class Operation;

// Belongs to one operation. Without device memory nothing is awaited.
struct Mark {
  Mark* next = nullptr;   // the next one of the same stream
  std::size_t event = 0;  // in the device memory
  bool reached = true;    // this host has seen that
};

// Connects a lane with the memory of one device: copies between it and the host, and marks.
class DeviceMemory {
 public:
  using Stream = device::StreamHandle;

  // How long a communicator waits for copies under way after a failure and at its end.
  static constexpr milliseconds settle_time{500};

  virtual ~DeviceMemory() = default;
  // "GPU 1"
  virtual std::string name() const = 0;

  // set_mark() takes from spares what may take long to make. If this wants any, make_spares() and
  // then add_spares() come before the start. One thread at a time starts calls of a lane, so no
  // other start takes these spares.
  virtual bool wants_spares(Stream stream) noexcept = 0;
  virtual void make_spares() = 0;
  virtual void add_spares() = 0;
  // Records the mark on the stream. It must stay where it is until it has been reached or
  // forget_all() has been called. When this throws, there is no mark.
  virtual void set_mark(Mark& mark, Stream stream) = 0;
  // Whether marks have been reached since the last look, which no longer need this object. Throws
  // when work before a mark has failed.
  virtual bool look() = 0;
  // "GPU 1, which has not yet done ...", unless the mark has been reached; else empty.
  virtual std::string awaited(const Mark& mark) const = 0;
  // Makes the stream wait for the operation's last copy. Requires Operation::enqueued().
  virtual void join(const Operation&, Stream) {}

  // The driver is about to sleep: the device will wake it when a mark is reached or a copy has
  // ended. False: one already is or has.
  virtual bool prepare_sleep() = 0;
  // Forgets all operations. Their copies may still be under way.
  virtual void forget_all() noexcept = 0;
  // After forget_all(): waits until no copy is under way, but not beyond `until`. False: some still
  // are.
  virtual bool await_copies(base::TimePoint until) noexcept = 0;
  // How much memory is kept for copies.
  virtual std::size_t bytes() const noexcept = 0;
};

// Moves the bytes of an operation in memory that the ranks of a host share, in each stage of
// TwoLevelOwner. Null: it has no such stage, or its bytes go over links only.
struct DeviceInside {
  DeviceMemory* sums = nullptr;
  DeviceMemory* copies = nullptr;
};

// The parts of a device that a call on its memory uses.
struct DeviceCall {
  DeviceMemory& memory;  // of its kind: see above
  DeviceMemory::Stream stream = nullptr;
  DeviceInside inside = {};
};

// The device memories that an engine has used. They outlive the object. Where there is none, each
// of these is a look at an empty list.
class DeviceMemories {
 public:
  // Call it before a number is taken for an operation that uses the memory.
  void add(DeviceMemory& memory);
  // The functions below call those of the same name of all device memories.
  bool look() {
    bool any = false;
    for (DeviceMemory* const memory : all_) any = memory->look() || any;
    return any;
  }
  bool prepare_sleep();
  void forget_all() noexcept {
    for (DeviceMemory* const memory : all_) memory->forget_all();
  }
  // Writes a line to the log where copies are still under way. rank: this one.
  void await_copies(int rank);
  std::size_t bytes() const noexcept;

 private:
  std::vector<DeviceMemory*> all_;
};

}  // namespace rondo::operation
