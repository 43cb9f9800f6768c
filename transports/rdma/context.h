// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

#include "transports/rdma/device_events.h"
#include "transports/rdma/devices.h"
#include "transports/rdma/regions.h"

namespace rondo::rdma {

// Communicators that were split from one another share a context: devices, registrations and
// events. Thread-safe.
struct Context {
  explicit Context(std::shared_ptr<Devices> all) : devices(std::move(all)), events(devices) {}

  const std::shared_ptr<Devices> devices;
  Regions regions;
  DeviceEvents events;
};

}  // namespace rondo::rdma
