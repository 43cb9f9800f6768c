// SPDX-License-Identifier: Apache-2.0
//
// Follows what every slice holds on every rank while schedules run: its contributions, their
// expression, whether the value is finished, and which ranks it proves to have begun. Part of the
// checker. It follows one segment only, because all segments run the same steps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/traits.h"
#include "collectives/schedules/schedule.h"

namespace rondo::proof {

// `count` sets of ranks in one array.
class RankSets {
 public:
  RankSets(std::size_t count, int ranks)
      : words_((static_cast<std::size_t>(ranks) + 63) / 64), data_(count * words_) {}
  std::span<std::uint64_t> of(std::size_t set) { return {data_.data() + set * words_, words_}; }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> data_;
};

// Thread-bound. Throws nothing but std::bad_alloc: problem() keeps the first error. The schedules
// must outlive it.
class Symbolic {
 public:
  // frames: number of frames of one segment on all links. in_place: a slice's value lies where its
  // input lay.
  Symbolic(const std::vector<schedules::Schedule>& schedules, Collective operation, int root,
           std::size_t frames, bool in_place);

  // The caller reports events in the order in which they happen. A step with from: receive(), then
  // send() if it has to. A step without from: send() or keep_local(). written: the engine takes
  // this rank's part from the value that an earlier step or this one wrote; otherwise from the
  // input.
  void receive(int rank, std::size_t step, std::size_t frame, bool written);
  // held: the link reads the memory until released(frame).
  void send(int rank, std::size_t step, std::size_t frame, bool written, bool held);
  void released(std::size_t frame);
  void keep_local(int rank, std::size_t step);
  // From now until receive(), the frame's sender may write to the step's memory at any time.
  void granted(int rank, std::size_t step, std::size_t frame);
  // Every step of the rank is done.
  void rank_done(int rank);
  // All ranks are done. Checks that everything is kept that the operation promises.
  void all_done();

  // The first thing that went wrong, or empty.
  const std::string& problem() const noexcept { return problem_; }
  std::uint64_t rounds() const noexcept { return rounds_; }
  // How the slice was summed on the first rank that kept it: "((0 + 1) + 2)". The numbers are
  // ranks. Empty when no rank kept it.
  std::string expression_of(std::uint32_t slice) const { return write(kept_[slice]); }

 private:
  // The value of a slice on a rank, or of a frame.
  struct Value {
    std::uint32_t expression = 0;  // 0: untouched, the rank's own input
    bool finished = false;         // every contribution is in it, and the scale has been applied
    bool kept = false;
    bool written = false;     // by a step; otherwise the value is the rank's input
    std::uint64_t depth = 0;  // the longest chain of frames that led to it
  };

  std::size_t place(int rank, std::uint32_t slice) const noexcept {
    return static_cast<std::size_t>(rank) * (slices_ + 1) + slice;
  }
  bool reduces() const noexcept { return traits_->reduces; }
  // Only inputs arrive, so values need no finishing.
  bool moves_inputs() const noexcept {
    return operation_ == Collective::gather || operation_ == Collective::scatter ||
           operation_ == Collective::all_to_all;
  }
  // The expression that stands for a rank's input.
  std::uint32_t input_of(int rank, std::uint32_t slice) const noexcept {
    return 1 + static_cast<std::uint32_t>(rank) * slices_ + slice;
  }
  bool has_input(int rank, std::uint32_t slice) const noexcept {
    return base::holds(traits_->in, rank == root_, slice == static_cast<std::uint32_t>(rank));
  }
  bool promises(int rank, std::uint32_t slice) const noexcept {
    return base::holds(traits_->out, rank == root_, slice == static_cast<std::uint32_t>(rank));
  }
  bool touch(int rank, std::size_t step, std::uint32_t slice);
  std::uint32_t combine(std::uint32_t a, std::uint32_t b);
  std::string write(std::uint32_t expression) const;
  void keep(int rank, std::size_t step);
  void learn(int rank, const schedules::Step& step, std::size_t from);
  // The index of the memory of the slice's value, or of its input.
  std::size_t memory(std::size_t place, bool written) const noexcept {
    return 2 * place + (written || in_place_ ? 1 : 0);
  }
  bool has_part(int rank, std::size_t step, bool written);
  bool may_use(int rank, std::size_t step, std::size_t frame);
  bool may_write(int rank, std::size_t step);
  void fail(int rank, std::size_t step, const std::string& text);
  const schedules::Step& step_of(int rank, std::size_t step) const noexcept {
    return (*schedules_)[static_cast<std::size_t>(rank)].steps[step];
  }

  const std::vector<schedules::Schedule>* schedules_;
  Collective operation_;  // with equal counts
  const base::Traits* traits_;
  int root_, size_;
  std::uint32_t slices_;
  bool in_place_;
  std::vector<Value> values_;  // by place(), then by frame
  RankSets contributions_, begun_;
  std::vector<std::uint32_t> readers_;  // by memory(): how many links read it
  std::vector<std::size_t> read_by_;    // by frame: the memory that its link reads
  std::vector<std::size_t> grants_;     // by place(): 1 + the frame that may be written there, or 0
  std::vector<std::uint32_t> kept_;     // by slice: the expression that the first rank kept
  std::unordered_map<std::uint64_t, std::uint32_t> expressions_;  // operands to sum
  std::vector<std::uint64_t> operands_;                           // by sum, in order of appearance
  std::uint64_t rounds_ = 0;
  std::string problem_;
};

// "rank 2 step 3 (slice 1 from 0 to 4, reduce, keep)"
std::string describe_step(int rank, std::size_t index, const schedules::Step& step,
                          std::uint32_t slices);

}  // namespace rondo::proof
