// SPDX-License-Identifier: Apache-2.0
//
// Collectives between ranks that all reach each other's memory (transports/transport.h, Windows):
// no schedule and no frames. Every rank posts its call; when all posts agree, small values are read
// from the posts themselves. Of larger buffers rank r combines part r from everybody's input into
// everybody's output. Buffers in windows are used where they lie, others pass through slots that
// stay in the cache. Nothing waits here: advance() does what can be done and says whether anything
// was.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/direct/area.h"
#include "collectives/direct/shape.h"
#include "collectives/engine/frame.h"
#include "collectives/engine/operation.h"
#include "collectives/kernels/pair.h"
#include "collectives/kernels/reduce.h"

namespace rondo::direct {

struct DirectOptions {
  int rank = 0;
  bool in_steps = false;  // short floats are rounded after every source, as in a chain of ranks
};

// The operations of one lane, one after the other.
class DirectLane {
 public:
  enum class Step { none, moved, done, refused };

  DirectLane(transports::Windows& windows, const DirectOptions& options, Priority lane);

  // The operation is posted at once when it is the only one.
  void begin(engine::Operation& operation);
  bool idle() const noexcept { return first_ == nullptr; }
  engine::Operation& first() const noexcept { return *first_; }
  // Does a bounded piece of work for the first operation. done: it is, and is no longer the first.
  Step advance();
  void clear() noexcept { first_ = last_ = nullptr; }

  // The rank whose post does not agree with the first operation, and its call as far as it can be
  // read.
  int offender() const noexcept { return static_cast<int>(seen_); }
  std::optional<engine::Frame> offence() const;
  // The ranks that the first operation waits for.
  void append_awaited(std::vector<int>& ranks) const;
  // Bytes read from other ranks.
  std::uint64_t bytes_loaded() const noexcept { return bytes_loaded_; }

 private:
  void post();
  void publish_details(DirectDetails& details, const transports::WindowPlace& in,
                       const transports::WindowPlace& out);
  Step check_posts();
  void prepare();
  void open_windows();
  void finish_value();
  bool copy_in();
  bool combine();
  bool copy_out();
  bool all_past(std::uint64_t DirectCounters::*counter, std::uint64_t value,
                std::size_t& cursor) noexcept;
  void publish(std::uint64_t DirectCounters::*counter, std::uint64_t value);
  Step leave();

  bool slot_free(std::uint64_t chunk) noexcept;
  void take(std::size_t peer);
  void reduce_values();
  std::size_t parts_index(std::size_t rank) const noexcept;
  bool gives(std::size_t part) const noexcept;
  bool takes_from(std::size_t peer) const noexcept;
  bool needs_in(std::size_t peer) const noexcept;
  bool gets_out(std::size_t peer) const noexcept;
  std::size_t in_bytes(std::size_t rank) const noexcept;
  std::size_t most_in_bytes() const noexcept;
  std::size_t in_offset(const DirectPart& part) const noexcept;
  const std::byte* given(std::size_t peer, std::uint64_t chunk,
                         const DirectPart& part) const noexcept;
  const std::byte* value_of(std::size_t peer) const noexcept;
  void reduce(std::byte* out, std::size_t count);
  void store_everywhere(const DirectPart& part, std::byte* slot);

  // What this rank's details say.
  struct Told {
    bool known = false;
    schedules::Signature signature;
    transports::WindowPlace in, out;
  };

  transports::Windows& windows_;
  const Priority lane_;
  const std::size_t rank_, size_;
  const bool in_steps_;
  std::vector<DirectArea> areas_;

  engine::Operation* first_ = nullptr;
  engine::Operation* last_ = nullptr;
  std::uint64_t sequence_ = 0;  // of the newest post
  std::uint64_t base_ = 0;      // chunks of all operations before
  std::uint64_t bytes_loaded_ = 0;
  Told told_[2];

  // Of the first operation:
  Collective plain_ = Collective::barrier;  // without counts
  std::size_t element_ = 1;
  std::uint64_t check_ = 0;
  schedules::Signature hashed_;  // most calls are like the one before
  std::uint64_t signature_hash_ = 0;
  std::size_t seen_ = 0;  // ranks whose posts agree, in rank order
  bool agreed_ = false, eager_ = false, reducing_ = false;
  bool in_windows_ = false, out_windows_ = false, slots_ = true;
  std::uint64_t copied_in_ = 0, combined_ = 0, copied_out_ = 0;  // chunks of this operation
  DirectShape shape_;
  kernels::Finish finish_;
  kernels::ReduceFunction reduce_ = nullptr;
  kernels::PairReduction pair_;  // where sums are rounded after every source
  std::size_t in_cursor_ = 0, combined_cursor_ = 0, out_cursor_ = 0, free_cursor_ = 0;
  struct Places {
    transports::WindowPlace in, out;
  };
  std::vector<Places> places_;  // by rank
  std::vector<const std::byte*> ins_, sources_;
  std::vector<std::byte*> outs_;
};

}  // namespace rondo::direct
