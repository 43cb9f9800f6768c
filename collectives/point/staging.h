// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "collectives/operation/device_memory.h"
#include "collectives/point/parts.h"

namespace rondo::point {

// Copies the bytes of messages between one device memory and slots in host memory, from where links
// send them and into which links receive. A slot holds a piece of one message. Sends and receives
// have slots of their own, and a receive gives its slot back as soon as its bytes are stored: so no
// send waits for a receive of another rank that waits for a send.
class Staging : public operation::DeviceMemory {
 public:
  // Sends. The pieces of a request are loaded and sent in order. load() loads this piece, unless
  // that was done before, no slot is free, or the peer has its share of the slots.
  virtual void load(Request& request, std::size_t offset, std::size_t bytes) = 0;
  // Does the same, but leaves slots for pieces that are needed sooner.
  virtual void load_ahead(Request& request, std::size_t offset, std::size_t bytes) = 0;
  // The piece in the slot has been sent. A link may take a later piece first.
  virtual void sent(Request& request, Slot& slot) noexcept = 0;

  // Receives. has_room(): whether take_room() has a slot for so many bytes.
  virtual bool has_room(std::size_t bytes) const noexcept = 0;
  virtual Slot* take_room(std::size_t bytes) noexcept = 0;
  // Copies the slot to this place of the request, and frees it afterwards.
  virtual void store(Request& request, Slot& slot, std::size_t offset, std::size_t bytes) = 0;
  // Copies a message of this rank to itself, both ends of which are in this memory. The copy counts
  // as a store of `to`. False: it cannot be started now.
  virtual bool copy(const Request& from, Request& to) = 0;

  // Looks at the loads under way. True when one has ended.
  virtual bool advance_loads() = 0;
  // A request of which a store has ended; null when there is no other.
  virtual Request* take_stored() = 0;
};

}  // namespace rondo::point
