// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
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

// The failures that devices report. A device tells each once, but several communicators, which were
// split from one another, use it: whoever reads one passes it on to all. Thread-safe: one mutex.
class DeviceEvents {
 public:
  explicit DeviceEvents(std::shared_ptr<Devices> devices) : devices_(std::move(devices)) {}

  // Hears all events that are read while it lives. The destructor does nothing in a forked child.
  class Listener {
   public:
    // Throws Error(system).
    explicit Listener(DeviceEvents& events);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;
    // Readable when there is something to take.
    int descriptor() const noexcept { return bell_.get(); }
    std::vector<DeviceEvent> take();

   private:
    friend class DeviceEvents;
    DeviceEvents& events_;
    base::FileDescriptor bell_;
    std::vector<DeviceEvent> heard_;  // guarded by the mutex of events_
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
  std::vector<Listener*> listeners_ RONDO_GUARDED_BY(mutex_);
};

}  // namespace rondo::rdma
