// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/event.h"
#include "base/mutex.h"
#include "transports/rdma/devices.h"

namespace rondo::rdma {

// A device or port has failed, or a queue pair of it.
struct DeviceEvent {
  std::size_t device = 0;        // its place in Devices::all()
  std::uint8_t port = 0;         // 0: all ports
  std::uint32_t queue_pair = 0;  // its number, if only this one has failed; else 0
  std::string what;              // "the port is down"
};

// The failures that devices report. A device reports each once, but communicators that were split
// from one another share it: the one that reads an event passes it to all listeners. Thread-safe:
// one mutex.
class DeviceEvents {
  // Events that one listener has not taken yet. Guarded by mutex_ but for the bell.
  struct Inbox {
    base::Event bell;
    std::vector<DeviceEvent> events;
  };

 public:
  explicit DeviceEvents(std::shared_ptr<Devices> devices) : devices_(std::move(devices)) {}

  // Receives all events that are read while it lives. The destructor does nothing in a forked
  // child.
  class Listener {
   public:
    // Throws Error(system).
    explicit Listener(DeviceEvents& events);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    // Readable when there is something to take.
    int descriptor() const noexcept { return inbox_.bell.descriptor(); }
    std::vector<DeviceEvent> take();

   private:
    DeviceEvents& events_;
    Inbox inbox_;
    const unsigned generation_ = base::process_generation();
  };

  // Becomes readable when a device has an event: read() it then. Throws Error(system).
  int descriptor_of(std::size_t device) const;
  // Reads what a device has reported, and rings the listeners.
  void read(std::size_t device);

 private:
  void pass_on(const DeviceEvent& event);

  const std::shared_ptr<Devices> devices_;
  base::Mutex mutex_;
  std::vector<Inbox*> inboxes_ RONDO_GUARDED_BY(mutex_);
};

}  // namespace rondo::rdma
