// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "collectives/direct/area.h"
#include "collectives/direct/protocol.h"
#include "collectives/operation/device_memory.h"
#include "collectives/operation/operation.h"
#include "transports/transport.h"

namespace rondo::direct {

class Exchange;

// Starts to move the bytes of a lane's operations whose buffers are in one device memory; they land
// later. Nothing that it starts waits for another rank. The functions that take an Exchange are
// about its operation.
class Mover : public operation::DeviceMemory {
 public:
  // Slots in device memory, which the other ranks map: direct_slots of so many bytes each. None:
  // then chunks go through the slots in host memory.
  struct Slots {
    std::byte* memory = nullptr;
    std::size_t slot_bytes = 0;
    std::size_t bytes() const noexcept { return direct_slots * slot_bytes; }
  };

  // The windows that show memory of this device to the others.
  virtual transports::Windows& windows() noexcept = 0;
  // Whether it can use memory of the others where it lies, and combine there if this reduces.
  virtual bool works_in_windows(bool reduces) const noexcept = 0;
  // A peer's memory as this device reaches it: see Windows::map().
  virtual std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) = 0;
  // The place where the others find the slots, if each of them has mapped them; otherwise nowhere.
  virtual transports::WindowPlace place_of_slots() const noexcept = 0;
  virtual Slots slots() const noexcept = 0;
  // A call has gone through the host for want of slots.
  virtual void want_slots() noexcept = 0;

  // The mark of the next operation has been reached. Starts to load its value, if it has one, once
  // for each operation, and says whether that has landed. Then it is in value() until the next one
  // is loaded. Blocks with gaps between them lie there without gaps.
  virtual bool load_value(const operation::DirectOperation& next) = 0;
  virtual const std::byte* value() const noexcept = 0;
  // The operation is posted: the next value may be loaded, or its steps are counted from here.
  virtual void posted(bool has_value) noexcept = 0;
  // The operation has ended.
  virtual void ended() noexcept = 0;
  // The result of an operation with a value is made in result(), and stored from there.
  virtual std::byte* result() noexcept = 0;
  virtual void store_result(Exchange& first) = 0;
  virtual bool result_landed() = 0;

  // Steps of one kind. landed() is asked once for each that has.
  virtual bool may_start(Counter kind) const noexcept = 0;
  virtual void copy_in(Exchange& first, std::uint64_t chunk) = 0;
  virtual void combine(Exchange& first, std::uint64_t chunk) = 0;
  virtual void copy_out(Exchange& first, std::uint64_t chunk) = 0;
  virtual bool landed(Exchange& first, Counter kind, std::uint64_t chunk) = 0;

  // Names work that was started for the first operation and has not ended, in the words of
  // awaited(); else empty. posted: whether that operation is posted; else its value may be loading.
  virtual std::string awaited_work(bool posted) const = 0;
};

}  // namespace rondo::direct
