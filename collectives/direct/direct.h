// SPDX-License-Identifier: Apache-2.0
//
// Collectives between ranks that load and store each other's memory (transports/transport.h,
// Windows): no schedule and no frames. Every rank posts its call. When all posts agree, small
// values are read from the posts themselves. For larger buffers, rank r combines part r of
// everybody's input into everybody's output. Buffers in windows are used where they lie; others
// pass through slots that stay in the cache. Nothing waits here: advance() does what can be done
// and says whether anything was.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fifo.h"
#include "collectives/direct/area.h"
#include "collectives/direct/exchange.h"
#include "collectives/direct/mover.h"
#include "collectives/direct/protocol.h"
#include "collectives/operation/frame.h"
#include "collectives/operation/operation.h"
#include "collectives/operation/recorder.h"

namespace rondo::direct {

struct DirectOptions {
  int rank = 0;
  std::span<const int> ranks = {};  // that take part, ascending: all have windows for each other
  DirectUse use = DirectUse::all;
  bool in_steps = false;  // short floats are rounded after every source, as in a chain of ranks
  std::size_t device_chunk_bytes = 0;  // of buffers in windows on devices; alike on all ranks
};

// Runs the operations of one lane. Several may be in flight if their values fit into the rings of
// area.h. All end in the order of their start.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: advance() throws
// Error(system) when a peer's memory cannot be mapped. After that, or after `refused`, only
// clear() and functions that tell something may be called.
class DirectLane {
 public:
  using Step = Protocol<DirectFlags>::Step;

  DirectLane(transports::Windows& windows, const DirectOptions& options, Priority lane);
  DirectLane(const DirectLane&) = delete;
  DirectLane& operator=(const DirectLane&) = delete;

  // Posts the operation at once, unless it has to wait for those before it or for its mark.
  void begin(operation::DirectOperation& operation);
  bool idle() const noexcept { return queue_.empty(); }
  operation::DirectOperation& first() const noexcept { return *queue_.first(); }
  // Does a bounded part of the work of the first operation. done: that operation is done and no
  // longer the first.
  Step advance();
  void clear() noexcept;

  // Whether all ranks have called the first operation, as far as advance() has seen.
  bool agreed() const noexcept { return queue_.first() == next_ || protocol_.agreed(); }
  // Requires !agreed(). The only rank that has not called the first operation, if there is one.
  std::optional<int> only_missing();
  // This rank comes first of all ranks but that one.
  bool is_first_but(int rank) const noexcept {
    return rank_ == (ranks_.front() == rank ? std::size_t{1} : std::size_t{0});
  }

  // After `refused`: the rank whose post does not agree with the first operation, and its call if
  // it can be read.
  int offender() const noexcept { return ranks_[protocol_.offender()]; }
  std::optional<operation::Frame> offence() const;
  // The ranks that the first operation waits for.
  void append_awaited(std::vector<int>& ranks) const;
  // Adds what is awaited of each of the others, and what it has done, as counts of posts and
  // chunks.
  void append_views(transports::Lane lane, std::vector<operation::PeerView>& views) const;
  // The ranks whose stores must wake this one, a bit for each (transports::wake_bit()). Call it
  // after advance() has done nothing.
  std::uint64_t awaited() const noexcept;
  // All ranks that the first operation waits for, as bits. awaited() may leave some out: when those
  // that it names have stored, it names others.
  std::uint64_t lacking() const noexcept;
  // Work of this rank's device that the first operation waits for, if it does; else empty. It may
  // wait for other ranks too.
  std::string awaited_device() const;
  // Bytes read from other ranks.
  std::uint64_t bytes_loaded() const noexcept { return exchange_.bytes_loaded(); }

 private:
  // Lists what the protocol calls. Bytes in host memory have landed when a function returns.
  struct Bytes {
    DirectLane& lane;
    Mover* mover() const noexcept { return mover_of(lane.first()); }
    bool is_ready() const { return lane.is_ready(); }
    bool may_start(Counter kind) const noexcept {
      return mover() == nullptr || mover()->may_start(kind);
    }
    bool landed(Counter kind, std::uint64_t chunk) const {
      if (mover() == nullptr) return true;
      if (!mover()->landed(lane.exchange_, kind, chunk)) return false;
      if (kind != Counter::copied_in) lane.first().times.stored = base::Clock::now();
      return true;
    }
    bool result_landed() const { return mover() == nullptr || mover()->result_landed(); }
    void write_post(std::uint64_t sequence, std::uint64_t number) const {
      lane.write_post(sequence, number);
    }
    Ring ring() const { return lane.form(lane.first()).ring; }
    void finish_value(std::uint64_t, std::uint64_t number) const { lane.finish_value(number); }
    Agreement agree(std::uint64_t sequence) const { return lane.agree(sequence); }
    void copy_in(std::uint64_t chunk) const {
      if (mover() == nullptr) return lane.exchange_.copy_in(chunk);
      if (chunk == 0) lane.first().times.copied = base::Clock::now();
      mover()->copy_in(lane.exchange_, chunk);
    }
    void combine(std::uint64_t chunk) const {
      mover() == nullptr ? lane.exchange_.combine(chunk) : mover()->combine(lane.exchange_, chunk);
    }
    void copy_out(std::uint64_t chunk) const {
      mover() == nullptr ? lane.exchange_.copy_out(chunk)
                         : mover()->copy_out(lane.exchange_, chunk);
    }
  };

  // Null: its buffers are in host memory.
  static Mover* mover_of(const operation::DirectOperation& operation) noexcept {
    return static_cast<Mover*>(operation.memory);
  }
  transports::Windows& windows_of(const operation::DirectOperation& operation) noexcept {
    return operation.memory == nullptr ? windows_ : mover_of(operation)->windows();
  }
  // From now on exchange_ is about this operation.
  const Form& form(const operation::DirectOperation& operation) {
    exchange_.set_operation(operation);
    return exchange_.form();
  }
  bool is_ready();
  void post_more();
  bool post_next();
  CallRules rules_of(const operation::DirectOperation& operation);
  DirectPlaces places_of(const operation::DirectOperation& operation);
  void write_post(std::uint64_t sequence, std::uint64_t number);
  void write_details(std::uint64_t sequence);
  Agreement agree(std::uint64_t sequence);
  Ways ways_of_places() const;
  Ways ways_of_device();
  std::byte* map(std::size_t rank, transports::WindowPlace place, std::size_t bytes);
  void map_places(const Ways& ways);
  std::size_t chunk_bytes(const Ways& ways) const noexcept;
  void finish_value(std::uint64_t number);

  transports::Windows& windows_;
  const std::vector<int> ranks_;
  const std::size_t size_, rank_;  // rank_: the place of this rank in ranks_
  const std::size_t device_chunk_bytes_;
  DirectFlags flags_;
  Protocol<DirectFlags> protocol_;
  Exchange exchange_;

  std::uint64_t begun_ = 0;  // operations
  base::Fifo<operation::DirectOperation> queue_;
  operation::DirectOperation* next_ = nullptr;  // the first that is not posted
  std::optional<CallRules> next_rules_;
  bool cut_off_ = false;
  // For only_missing(), and the operation that it was asked for last.
  std::size_t missing_cursor_ = 0;
  std::uint64_t missing_turn_ = 0;
  std::array<std::uint64_t, direct_posts> told_{};  // hashes of the signatures in the details

  // About the first operation, if it has chunks:
  bool uses_windows_ = false;
  DirectPlaces own_;
  // The places that windows->find() has given to the posted operation.
  struct Posted {
    transports::Windows* windows = nullptr;
    DirectPlaces places;
  } posted_;
  std::vector<DirectPlaces> places_;  // by rank
};

}  // namespace rondo::direct
