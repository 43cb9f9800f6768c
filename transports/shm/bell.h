// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file_descriptor.h"
#include "base/futex.h"
#include "base/shared_memory.h"

namespace rondo::shm {

// Wakes a rank that sleeps. A rank that all others reach through shared memory sleeps on a word of
// memory, so that nobody needs a descriptor for it. A rank that has other links too polls them, and
// beside them an event. The rank offers its bell to its peers, who may ring it and nothing else:
// the word is in a page of its own. Thread-safe once made.
class Bell {
 public:
  enum class Kind { event, word };

  // Makes a bell of this rank. Throws Error(system).
  explicit Bell(Kind kind);
  // Takes that of a peer, from the descriptor that it has sent. Throws Error(rendezvous).
  explicit Bell(base::FileDescriptor offered);

  // For the peers; -1 once it was closed.
  int descriptor() const noexcept { return descriptor_.get(); }
  // A word needs no descriptor after the exchange.
  void close_offer() noexcept {
    if (word() != nullptr) descriptor_.reset();
  }
  // Null for an event.
  base::WakeWord* word() const noexcept {
    return reinterpret_cast<base::WakeWord*>(memory_.data());
  }
  void ring() noexcept;
  // Makes an event wait for the next ring.
  void clear() noexcept;

 private:
  base::FileDescriptor descriptor_;
  base::Mapping memory_;
};

}  // namespace rondo::shm
