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
#include "collectives/direct/gpu_mover.h"
#include "collectives/direct/protocol.h"
#include "collectives/direct/roles.h"
#include "collectives/direct/shape.h"
#include "collectives/kernels/pair.h"
#include "collectives/kernels/reduce.h"
#include "collectives/operation/frame.h"
#include "collectives/operation/operation.h"

namespace rondo::direct {

struct DirectOptions {
  int rank = 0;
  std::span<const int> ranks = {};  // that take part, ascending: all have windows for each other
  DirectUse use = DirectUse::all;
  bool in_steps = false;  // short floats are rounded after every source, as in a chain of ranks
  std::size_t gpu_chunk_bytes = 0;  // of buffers in windows on GPUs; alike on all ranks
};

// Runs the operations of one lane. Several may be in flight if their values fit into the rings of
// area.h. All end in the order of their start.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: advance() throws
// Error(system) when a peer's memory cannot be mapped. After that, or after `refused`, only
// clear(), offender(), offence(), append_awaited(), awaited() and bytes_loaded() may be called.
class DirectLane {
 public:
  using Step = Protocol<DirectFlags>::Step;

  DirectLane(transports::Windows& windows, const DirectOptions& options, Priority lane);
  DirectLane(const DirectLane&) = delete;
  DirectLane& operator=(const DirectLane&) = delete;

  // Posts the operation at once, unless it has to wait for those before it, or is on a GPU.
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
  // The ranks whose stores must wake this one, a bit for each (transports::wake_bit()). Call it
  // after advance() has done nothing.
  std::uint64_t awaited() const noexcept;
  // The driver is about to sleep: GPUs that the first operations wait for will wake it. False: one
  // of them has done something already.
  bool prepare_sleep();
  // "GPU 1, which has not yet done ...", if the first operation waits for that; else empty. It may
  // wait for other ranks too.
  std::string awaited_gpu() const;
  // Bytes read from other ranks.
  std::uint64_t bytes_loaded() const noexcept { return bytes_loaded_; }

 private:
  // Lists what the protocol calls. move.cc moves bytes in host memory, which have landed when a
  // function returns; move_on_gpu.cc starts to move those on a GPU.
  struct Bytes {
    DirectLane& lane;
    GpuMover* gpu() const noexcept { return lane.queue_.first()->on_gpu.mover; }
    bool is_ready() const { return lane.next_->on_gpu.mover == nullptr || lane.is_ready_on_gpu(); }
    bool may_start(Counter kind) const noexcept {
      return gpu() == nullptr || gpu()->may_start(kind);
    }
    bool landed(Counter kind, std::uint64_t chunk) const {
      return gpu() == nullptr || lane.landed_on_gpu(kind, chunk);
    }
    bool result_landed() const { return gpu() == nullptr || gpu()->result_landed(); }
    void write_post(std::uint64_t sequence, std::uint64_t number) const {
      lane.write_post(sequence, number);
    }
    Ring ring() const { return lane.form(*lane.queue_.first()).ring; }
    void finish_value(std::uint64_t, std::uint64_t number) const { lane.finish_value(number); }
    Agreement agree(std::uint64_t sequence) const { return lane.agree(sequence); }
    void copy_in(std::uint64_t chunk) const {
      gpu() == nullptr ? lane.copy_in(chunk) : lane.copy_in_on_gpu(chunk);
    }
    void combine(std::uint64_t chunk) const {
      gpu() == nullptr ? lane.combine(chunk) : lane.combine_on_gpu(chunk);
    }
    void copy_out(std::uint64_t chunk) const {
      gpu() == nullptr ? lane.copy_out(chunk) : lane.copy_out_on_gpu(chunk);
    }
  };

  // A call as computed from its signature and the counts of its blocks, kept for the next one like
  // it.
  struct Form {
    bool serves(const operation::DirectOperation& operation) const noexcept;

    std::uint64_t turn = 0;  // of the operation for which it was asked last
    bool lasts = false;      // it is the same for all operations of this signature
    schedules::Signature signature, posted;
    std::uint64_t hash = 0;  // of the posted signature
    Roles roles;
    std::size_t element = 1;  // bytes
    DirectShape shape;
    bool eager = false;
    Ring ring = Ring::posts;
    kernels::Finish finish;
    kernels::ReduceFunction reduce = nullptr;
    kernels::ScaledSum scaled_sum = nullptr;  // null unless the call may scale inputs
    kernels::PairReduction pair;              // used when sums are rounded after every source
  };

  // Returns *form_, which is the one of this operation.
  const Form& form(const operation::DirectOperation& operation);
  void make_form(const operation::DirectOperation& operation);
  void post_more();
  CallRules rules_of(const operation::DirectOperation& operation);
  DirectPlaces places_of(const operation::DirectOperation& operation);
  void write_post(std::uint64_t sequence, std::uint64_t number);
  void post_value(std::byte* to) const noexcept;
  void write_details(std::uint64_t sequence);
  Agreement agree(std::uint64_t sequence);
  Ways ways_of_places() const;
  Ways ways_on_gpu();
  void map_places(const Ways& ways);
  std::size_t chunk_bytes(const Ways& ways) const noexcept;
  void finish_value(std::uint64_t number);
  void copy_in(std::uint64_t chunk);
  void combine(std::uint64_t chunk);
  void copy_out(std::uint64_t chunk);

  // Bytes to copy, such as a block of a peer's input or result.
  struct Taken {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t bytes = 0;
  };
  Taken taken(std::size_t peer, std::uint64_t chunk) const noexcept;
  void take(std::size_t peer, std::uint64_t chunk);
  void take_own_pinned(const Taken& block, std::uint64_t chunk);
  void take_values(std::uint64_t number, std::byte* out);
  void reduce_values(std::uint64_t number, std::byte* out);
  std::size_t in_bytes(std::size_t rank) const noexcept;
  std::size_t most_in_bytes() const noexcept;
  std::size_t in_offset(const DirectPart& part) const noexcept;
  std::size_t out_offset(const DirectPart& part) const noexcept;
  std::byte* slot(std::size_t rank, std::uint64_t chunk, const DirectPart& part) const noexcept;
  const std::byte* given(std::size_t peer, std::uint64_t chunk,
                         const DirectPart& part) const noexcept;
  const std::byte* value_of(std::size_t peer, std::uint64_t number) const noexcept;
  void read_input_scales(std::uint64_t sequence) noexcept;
  void reduce(std::byte* out, std::size_t count);
  void reduce_in_steps(std::byte* out, std::size_t count);
  void store_result(const DirectPart& part, std::byte* slot);

  bool is_ready_on_gpu();
  void list_pieces(const operation::DirectOperation& operation, bool one_block, std::size_t bytes);
  bool post_next_on_gpu();
  void copy_in_on_gpu(std::uint64_t chunk);
  void copy_in_to_carrier(std::uint64_t chunk);
  void copy_in_to_gpu_slot(std::uint64_t chunk);
  void combine_on_gpu(std::uint64_t chunk);
  void combine_by_kernel(const DirectPart& part, std::uint64_t chunk);
  void combine_in_host(const DirectPart& part, std::uint64_t chunk);
  void copy_out_on_gpu(std::uint64_t chunk);
  bool landed_on_gpu(Counter kind, std::uint64_t chunk);
  bool loads_part(std::size_t index) const noexcept;
  // Whether the first operation, which is on a GPU, uses slots in host memory.
  bool goes_through_host() const noexcept { return protocol_.ways().slots && gpu_slot_bytes_ == 0; }
  transports::Windows& windows_of(const operation::DirectOperation& operation) noexcept {
    return operation.on_gpu.mover == nullptr ? windows_ : operation.on_gpu.mover->windows();
  }

  transports::Windows& windows_;
  const Priority lane_;
  const std::vector<int> ranks_;
  const std::size_t size_, rank_;  // rank_: the place of this rank in ranks_
  const bool in_steps_;
  const std::size_t gpu_chunk_bytes_;
  DirectFlags flags_;
  Protocol<DirectFlags> protocol_;

  std::uint64_t begun_ = 0;  // operations
  base::Fifo<operation::DirectOperation> queue_;
  operation::DirectOperation* next_ = nullptr;  // the first that is not posted
  std::optional<CallRules> next_rules_;
  std::uint64_t bytes_loaded_ = 0;
  bool cut_off_ = false;
  // For only_missing(), and the operation that it was asked for last.
  std::size_t missing_cursor_ = 0;
  std::uint64_t missing_turn_ = 0;
  // The forms of the newest call, and of the newest that was not like it. Most calls are like one
  // of the two before, such as those between two barriers.
  std::array<Form, 2> forms_;
  Form* form_ = &forms_[0];
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
  std::vector<const std::byte*> ins_, sources_;
  std::vector<std::byte*> outs_;
  // Every rank's slots in memory of its GPU, of so many bytes each; 0: slots are in host memory.
  std::vector<std::byte*> gpu_slots_;
  std::size_t gpu_slot_bytes_ = 0;
  std::vector<GpuMover::Piece> pieces_;  // of the value that is loaded or stored
  std::vector<double> input_scales_;
  bool scales_inputs_ = false;  // one of them is not 1
};

}  // namespace rondo::direct
