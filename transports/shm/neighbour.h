// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "base/file_descriptor.h"
#include "base/process_fence.h"
#include "transports/host/packet.h"
#include "transports/shm/bell.h"
#include "transports/shm/segment.h"

namespace rondo::shm {

// Another rank of this host as this one sees it: the pairs in both segments, its bell, its socket.
// All news for that rank goes through here, so that it is woken when it sleeps. Thread-bound (the
// driver of the transport), without locks.
//
// A rank that is about to sleep says so and then looks once more for work. The others write their
// news and then look whether it sleeps. There is a full fence between the two steps on both sides,
// which the sleeper makes for both where the system allows it (light()). So one of them sees the
// other, and no wake-up is lost. The bell is rung once for each sleep.
class ShmNeighbourState {
 public:
  ShmNeighbourState(int its_rank, std::size_t its_index, Segment its_segment, SegmentPair& own_pair,
                    std::size_t own_index, Bell its_bell, base::FileDescriptor its_socket,
                    host::PeerProcess its_process, bool joined_fences)
      : rank(its_rank),
        index(its_index),
        theirs(std::move(its_segment)),
        mine(own_pair),
        other(theirs.pair(own_index)),
        socket(std::move(its_socket)),
        process(its_process),
        bell_(std::move(its_bell)),
        light_(joined_fences && theirs.head().heavy_fence.load(std::memory_order_relaxed) != 0) {}

  // Call it after news in the rings, but for the headers of messages (shm.cc, message_came).
  void changed() noexcept { mine.changes.store(++changes_, std::memory_order_release); }
  void produced(transports::Lane lane, std::uint64_t bytes) noexcept {
    mine.produced[static_cast<std::size_t>(lane)].store(bytes, std::memory_order_release);
    changed();
  }
  void consumed(transports::Lane lane, std::uint64_t bytes) noexcept {
    mine.consumed[static_cast<std::size_t>(lane)].store(bytes, std::memory_order_release);
    changed();
  }
  // Call wake() after news for this rank. ring() is the same for a caller that has made the fence.
  void wake() noexcept {
    fence(light_);
    ring();
  }
  // Whether a light fence is enough before a look whether the rank sleeps.
  bool light() const noexcept { return light_; }
  static void fence(bool light) noexcept {
    if (light)
      base::light_fence();
    else
      std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  void ring() noexcept {
    ring_if([](const SegmentHead&) { return true; });
  }
  // Wakes the rank if it awaits this one. Call it after stores to this rank's area and a full
  // fence. own: the bit of this rank.
  void ring_if_awaited(std::uint64_t own) noexcept {
    ring_if([own](const SegmentHead& head) {
      return (head.awaited.load(std::memory_order_relaxed) & own) != 0;
    });
  }
  // Whether the rank last waited on this core, and is not known to sleep. core: its number plus 1.
  bool runs_on(std::uint32_t core) const noexcept {
    const SegmentHead& head = theirs.head();
    if (head.core.load(std::memory_order_relaxed) != core) return false;
    const std::uint64_t sleep = head.sleeping.load(std::memory_order_relaxed);
    return sleep == 0 || sleep == rung_;
  }
  // Counts the changes of the rank's pair for this rank; see `seen`.
  std::uint64_t changes() const noexcept { return other.changes.load(std::memory_order_acquire); }
  // Whether the rank has stopped (SegmentHead::stopped). Call it after reading memory of the rank;
  // it makes a full fence first. If false, no caller there had that memory back before the reads.
  bool stopped() const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return theirs.head().stopped.load(std::memory_order_relaxed) != 0;
  }
  bool left() const noexcept { return theirs.head().left.load(std::memory_order_acquire) != 0; }

  const int rank;
  const std::size_t index;  // among the ranks of this host
  const Segment theirs;
  SegmentPair& mine;
  const SegmentPair& other;
  const base::FileDescriptor socket;
  const host::PeerProcess process;
  std::uint64_t seen = 0;  // changes() when the links last looked at the pair
  bool ended = false;      // the other end of the socket is closed
  bool busy = true;        // a link has something to do although the pair has not changed

 private:
  template <class Wanted>
  void ring_if(const Wanted& wanted) noexcept {
    const SegmentHead& head = theirs.head();
    const std::uint64_t sleep = head.sleeping.load(std::memory_order_acquire);
    if (sleep == 0 || sleep == rung_ || !wanted(head)) return;
    rung_ = sleep;
    bell_.ring();
  }

  Bell bell_;
  const bool light_;
  std::uint64_t changes_ = 0, rung_ = 0;
};

}  // namespace rondo::shm
