// SPDX-License-Identifier: Apache-2.0
//
// An Exchange knows where the bytes of a lane's direct operations lie: inputs, outputs and slots of
// all ranks. It moves bytes in host memory; they have landed when the function returns. A
// direct::Mover moves bytes that the processor does not reach.
//
// Threads: thread-bound to whoever holds the engine's lock. What allocates throws std::bad_alloc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/direct/area.h"
#include "collectives/direct/protocol.h"
#include "collectives/direct/roles.h"
#include "collectives/direct/shape.h"
#include "collectives/kernels/pair.h"
#include "collectives/kernels/reduce.h"
#include "collectives/operation/operation.h"

namespace rondo::direct {

// The shape and the kernels of a call. They follow from its signature and the counts of its blocks,
// and are kept for the next call like it.
struct Form {
  bool serves(const operation::DirectOperation& operation) const noexcept;
  // Bytes of a rank's input that others may read.
  std::size_t in_bytes(std::size_t rank) const noexcept {
    return (roles.gathers() ? shape.block_count(rank) : shape.end()) * element;
  }
  std::size_t most_in_bytes() const noexcept {
    return (roles.gathers() ? shape.most() : shape.total()) * element;
  }
  std::size_t in_offset(const DirectPart& part) const noexcept {
    return (roles.gathers() ? part.block : part.buffer) * element;
  }
  std::size_t out_offset(const DirectPart& part) const noexcept {
    return (roles.scatters() ? part.block : part.buffer) * element;
  }

  std::uint64_t turn = 0;  // of the operation that used it last
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

// Returns how many bytes of a slot one chunk of the call takes: `least` or more where they fit.
std::size_t slot_chunk_bytes(const schedules::Signature& signature, std::size_t slot_bytes,
                             std::size_t least) noexcept;

class Exchange {
 public:
  // in_steps: see DirectOptions. flags and protocol outlive the object.
  Exchange(const DirectFlags& flags, const Protocol<DirectFlags>& protocol, bool in_steps,
           Priority lane);

  std::size_t rank() const noexcept { return rank_; }
  std::size_t size() const noexcept { return size_; }
  bool in_steps() const noexcept { return in_steps_; }
  // The operation that the functions are about, and its form.
  void set_operation(const operation::DirectOperation& operation);
  const operation::DirectOperation& operation() const noexcept { return *operation_; }
  const Form& form() const noexcept { return *form_; }
  const Ways& ways() const noexcept { return protocol_.ways(); }
  // A chunk takes so many bytes of a slot, or of a buffer that is used where it lies.
  void set_chunk(std::size_t bytes);

  // The other ranks' buffers, by rank, as far as this call uses them. DirectLane writes these.
  std::vector<const std::byte*> ins;
  std::vector<std::byte*> outs;
  // Every rank's slots in device memory, of so many bytes each; 0: slots are in host memory.
  std::vector<std::byte*> device_slots;
  std::size_t device_slot_bytes = 0;

  // Whether chunks of an operation in device memory use slots in host memory.
  bool goes_through_host() const noexcept { return ways().slots && device_slot_bytes == 0; }
  DirectPart part(std::uint64_t chunk, std::size_t index) const noexcept {
    return form_->shape.part(chunk, index);
  }
  const std::byte* own_in(const DirectPart& part) const noexcept {
    return operation_->in + form_->in_offset(part);
  }
  std::byte* own_out(const DirectPart& part) const noexcept {
    return operation_->out + form_->out_offset(part);
  }
  std::byte* slot(std::size_t rank, std::uint64_t chunk, const DirectPart& part) const noexcept;
  // The place where a peer's input can be read.
  const std::byte* given(std::size_t peer, std::uint64_t chunk,
                         const DirectPart& part) const noexcept;
  // Bytes to copy, such as a block of a peer's input or result.
  struct Taken {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    std::size_t bytes = 0;
  };
  // This rank's share of a chunk from one peer.
  Taken taken(std::size_t peer, std::uint64_t chunk) const noexcept;

  // Writes the value of the operation for its post. packed: a copy of the value without gaps, or
  // null: the value is in the buffer.
  void post_value(std::byte* to, const std::byte* packed) const noexcept;
  // Makes the result from all ranks' values with this number.
  void finish_value(std::uint64_t number, std::byte* out);
  void copy_in(std::uint64_t chunk);
  void combine(std::uint64_t chunk);
  void copy_out(std::uint64_t chunk);

  // Reads from the posts the factors of all ranks' inputs, which are seldom other than 1.
  void read_input_scales(std::uint64_t sequence) noexcept;
  // Empty: all factors are 1.
  std::span<const double> input_scales() const noexcept {
    return scales_inputs_ ? std::span<const double>(input_scales_) : std::span<const double>();
  }
  // Reduces `sources`, one for each rank, into out, in rank order.
  std::vector<const std::byte*> sources;
  void reduce(std::byte* out, std::size_t count);

  // Bytes read from other ranks.
  std::uint64_t bytes_loaded() const noexcept { return bytes_loaded_; }
  void count_loaded(std::size_t bytes) noexcept { bytes_loaded_ += bytes; }
  // This rank has combined that many elements of all ranks.
  void count_combined(std::size_t elements) noexcept {
    count_loaded(elements * form_->element * (size_ - 1));
  }

 private:
  void make_form(const operation::DirectOperation& operation);
  const std::byte* value_of(std::size_t peer, std::uint64_t number) const noexcept;
  void take_values(std::uint64_t number, std::byte* out);
  void reduce_values(std::uint64_t number, std::byte* out);
  void reduce_in_steps(std::byte* out, std::size_t count);
  void store_result(const DirectPart& part, std::byte* slot);

  const DirectFlags& flags_;
  const Protocol<DirectFlags>& protocol_;
  const std::size_t size_, rank_;
  const bool in_steps_;
  const Priority lane_;
  const operation::DirectOperation* operation_ = nullptr;
  // The forms of the newest call, and of the newest that was not like it. Most calls are like one
  // of the two before, such as those between two barriers.
  std::array<Form, 2> forms_;
  Form* form_ = &forms_[0];
  std::uint64_t bytes_loaded_ = 0;
  std::vector<double> input_scales_;
  bool scales_inputs_ = false;  // one of them is not 1
};

}  // namespace rondo::direct
