// SPDX-License-Identifier: Apache-2.0
//
// Agreement, and the order of things. Moving bytes is in direct_move.cc.
#include "collectives/direct/direct.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <rondo/error.h>

#include "base/mix.h"

namespace rondo::direct {

namespace {

// Of a whole value, which every rank reads in full: beyond it the ranks share the work.
constexpr std::size_t most_eager_bytes = std::size_t{16} << 10;
static_assert(most_eager_bytes <= direct_eager_bytes);
// Of a chunk of buffers that are used where they lie, and of each rank's part of it: they bound the
// time of one advance().
constexpr std::size_t window_chunk_bytes = std::size_t{512} << 10,
                      least_window_part = std::size_t{32} << 10;

std::uint64_t hash_of(const schedules::Signature& s) noexcept {
  const auto code =
      static_cast<std::uint64_t>(s.operation) | static_cast<std::uint64_t>(s.type) << 8 |
      static_cast<std::uint64_t>(s.op) << 16 | static_cast<std::uint64_t>(s.algorithm) << 24 |
      static_cast<std::uint64_t>(s.root) << 32;
  return base::mix_hash(base::mix_hash(base::mix_hash(base::mix_hash(1, code), s.count),
                                       std::bit_cast<std::uint64_t>(s.scale)),
                        s.plan);
}

}  // namespace

DirectLane::DirectLane(transports::Windows& windows, const DirectOptions& options, Priority lane)
    : windows_(windows),
      lane_(lane),
      rank_(static_cast<std::size_t>(options.rank)),
      size_(windows.ranks().size()),
      in_steps_(options.in_steps),
      places_(size_),
      ins_(size_),
      sources_(size_),
      outs_(size_) {
  for (const int rank : windows.ranks()) areas_.emplace_back(windows.area(rank), lane);
}

void DirectLane::begin(engine::Operation& operation) {
  operation.next_direct = nullptr;
  (last_ == nullptr || first_ == nullptr ? first_ : last_->next_direct) = &operation;
  last_ = &operation;
  if (first_ == &operation) post();
}

void DirectLane::post() {
  prepare();
  DirectControl& control = areas_[rank_].control();
  DirectPost& mine = control.posts[++sequence_ % 2];
  DirectDetails& details = control.details[sequence_ % 2];
  const engine::Operation& operation = *first_;
  transports::WindowPlace in, out;
  if (eager_) {
    if (operation.in_bytes <= mine.value.size()) {
      if (operation.in_bytes != 0) std::memcpy(mine.value.data(), operation.in, operation.in_bytes);
    } else {
      std::memcpy(areas_[rank_].eager(sequence_), operation.in, operation.in_bytes);
    }
  } else {
    // In place, all_to_all writes over what others still have to read.
    const bool kept = plain_ != Collective::all_to_all || operation.in != operation.out;
    if (needs_in(rank_) && kept) in = windows_.find(operation.in, operation.in_bytes);
    if (gets_out(rank_)) out = windows_.find(operation.out, operation.out_bytes);
    in_windows_ = !needs_in(rank_) || in.generation != 0;
  }
  publish_details(details, in, out);
  mine.check = check_;
  store_release(mine.sequence, sequence_);
  windows_.notify();
}

void DirectLane::prepare() {
  const schedules::Signature& s = first_->signature;
  plain_ = schedules::without_counts(s.operation);
  element_ = size_of(s.type);
  shape_ = DirectShape(s, size_, first_->offsets(), direct_slot_bytes(lane_));
  if (signature_hash_ == 0 || s != hashed_) {
    hashed_ = s;
    signature_hash_ = hash_of(s);
  }
  check_ = base::mix_hash(signature_hash_, first_->number);
  seen_ = 0;
  agreed_ = in_windows_ = out_windows_ = false;
  slots_ = true;
  eager_ = plain_ == Collective::barrier || most_in_bytes() <= most_eager_bytes;
  reducing_ = schedules::is_reducing(s.operation);
  copied_in_ = combined_ = copied_out_ = 0;
  in_cursor_ = combined_cursor_ = out_cursor_ = free_cursor_ = 0;
  reduce_ = reducing_ ? kernels::find_reduce(s.type, s.op) : nullptr;
  if (in_steps_ && reducing_) pair_ = kernels::PairReduction(s.type, s.op, s.scale, size_);
  finish_ = kernels::Finish{s.scale,
                            s.op == ReduceOp::mean && reducing_ ? static_cast<double>(size_) : 1.0};
}

// Written only when it says something new: most calls are like the one before.
void DirectLane::publish_details(DirectDetails& details, const transports::WindowPlace& in,
                                 const transports::WindowPlace& out) {
  const engine::Frame frame{first_->signature, 0, 0, 0, 0, 0};
  Told& told = told_[sequence_ % 2];
  if (!told.known || told.signature != frame.signature) details.header = engine::encode(frame);
  if (!told.known || told.in != in) details.in = in;
  if (!told.known || told.out != out) details.out = out;
  told = {true, frame.signature, in, out};
}

DirectLane::Step DirectLane::check_posts() {
  const std::size_t before = seen_;
  for (; seen_ < size_; ++seen_) {
    DirectPost& theirs = areas_[seen_].control().posts[sequence_ % 2];
    if (seen_ == rank_) continue;
    if (load_acquire(theirs.sequence) != sequence_)
      return seen_ != before ? Step::moved : Step::none;
    if (theirs.check != check_) return Step::refused;
  }
  agreed_ = true;
  return Step::moved;
}

std::optional<engine::Frame> DirectLane::offence() const {
  const transports::HeaderBytes header = areas_[seen_].control().details[sequence_ % 2].header;
  auto frame = engine::decode(header);
  if (frame) frame->number = first_->number;
  return frame;
}

void DirectLane::open_windows() {
  const engine::Operation& operation = *first_;
  in_windows_ = out_windows_ = true;
  // Copied once: what is decided and what is mapped must be the same, whatever a peer writes
  // meanwhile.
  for (std::size_t rank = 0; rank < size_; ++rank) {
    const DirectDetails& details = areas_[rank].control().details[sequence_ % 2];
    places_[rank] = {details.in, details.out};
    in_windows_ &= !needs_in(rank) || places_[rank].in.generation != 0;
    out_windows_ &= !gets_out(rank) || places_[rank].out.generation != 0;
  }
  out_windows_ &= reducing_ && plain_ != Collective::reduce_scatter;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto open = [&](transports::WindowPlace place, std::size_t length) {
      std::byte* const data = windows_.map(static_cast<int>(rank), place, length);
      if (data == nullptr)
        throw Error(Errc::system, "the memory that rank " + std::to_string(rank) +
                                      " has allocated cannot be mapped: see the limits of this "
                                      "process on memory and maps");
      return data;
    };
    if (in_windows_ && needs_in(rank)) ins_[rank] = open(places_[rank].in, in_bytes(rank));
    if (out_windows_ && gets_out(rank))
      outs_[rank] = open(places_[rank].out, operation.signature.count * element_);
  }
  outs_[rank_] = operation.out;
  slots_ = !in_windows_ || (reducing_ && plain_ != Collective::reduce_scatter && !out_windows_);
  if (!slots_)
    shape_ = DirectShape(operation.signature, size_, operation.offsets(),
                         std::max(window_chunk_bytes, least_window_part * size_));
}

DirectLane::Step DirectLane::advance() {
  bool moved = false;
  if (!agreed_) {
    const Step step = check_posts();
    if (step == Step::refused) return step;
    moved = step == Step::moved;
    if (!agreed_) return (!eager_ && !in_windows_ && copy_in()) || moved ? Step::moved : Step::none;
    if (eager_) {
      finish_value();
      return leave();
    }
    open_windows();
  }
  moved |= copy_out() || combine() || copy_in();
  const std::uint64_t all = shape_.chunks();
  if (copied_in_ < all || combined_ < all || copied_out_ < all)
    return moved ? Step::moved : Step::none;
  if ((in_windows_ || out_windows_) &&
      (!all_past(&DirectCounters::combined, base_ + all, combined_cursor_) ||
       !all_past(&DirectCounters::copied_out, base_ + all, out_cursor_)))
    return moved ? Step::moved : Step::none;
  base_ += all;
  return leave();
}

DirectLane::Step DirectLane::leave() {
  first_ = first_->next_direct;
  if (first_ != nullptr) post();
  return Step::done;
}

// Whether every rank's counter has reached the value; remembers who has.
bool DirectLane::all_past(std::uint64_t DirectCounters::*counter, std::uint64_t value,
                          std::size_t& cursor) noexcept {
  for (; cursor < size_; ++cursor)
    if (load_acquire(areas_[cursor].control().counters.*counter) < value) return false;
  cursor = 0;
  return true;
}

void DirectLane::publish(std::uint64_t DirectCounters::*counter, std::uint64_t value) {
  store_release(areas_[rank_].control().counters.*counter, value);
  windows_.notify();
}

void DirectLane::append_awaited(std::vector<int>& ranks) const {
  if (first_ == nullptr) return;
  for (std::size_t rank = 0; rank < size_; ++rank) {
    DirectControl& theirs = areas_[rank].control();
    const std::uint64_t end = base_ + shape_.chunks();
    const bool late = agreed_ ? load_acquire(theirs.counters.copied_in) < end ||
                                    load_acquire(theirs.counters.combined) < end ||
                                    load_acquire(theirs.counters.copied_out) < end
                              : load_acquire(theirs.posts[sequence_ % 2].sequence) != sequence_;
    if (late && rank != rank_) ranks.push_back(static_cast<int>(rank));
  }
}

}  // namespace rondo::direct
