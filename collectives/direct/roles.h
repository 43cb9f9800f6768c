// SPDX-License-Identifier: Apache-2.0
//
// Gives each rank its role in a direct collective: it gives a part, takes one, or combines one.
// These are pure functions of the call, so every rank computes the same. Part i of a chunk belongs
// to rank i (a broadcast has one part in all).
#pragma once

#include <cstddef>

#include <rondo/types.h>

#include "base/traits.h"

namespace rondo::direct {

// Which of a rank's buffers the others can reach where they lie.
struct Windowed {
  bool in = false, out = false;
};

// The ways that the bytes of a call take.
struct Ways {
  bool in_windows = false;   // inputs are read where they lie
  bool out_windows = false;  // the rank that combines a part stores it into the outputs of others
  bool slots = true;         // inputs, results or both pass through slots

  bool operator==(const Ways&) const = default;
};

// Where a rank stores the part that it has combined. The first place is written once; the result is
// copied from there to the others.
struct ResultPlaces {
  enum class First { own_out, root_out, slot } first = First::own_out;
  bool slot = false;      // and into this rank's slot
  bool all_outs = false;  // and into everybody's output
};

// One call, seen from one rank. Reentrant, and nothing fails.
class Roles {
 public:
  Roles() = default;
  // plain: the operation as schedules::without_counts() gives it.
  Roles(Collective plain, std::size_t root, std::size_t rank, std::size_t size) noexcept
      : plain_(plain), traits_(&base::traits_of(plain)), root_(root), rank_(rank), size_(size) {}

  Collective plain() const noexcept { return plain_; }
  bool reducing() const noexcept { return traits_->reduces; }
  // A rank's input, or its output, is one block.
  bool gathers() const noexcept { return traits_->gathers(); }
  bool scatters() const noexcept { return traits_->scatters(); }
  std::size_t parts() const noexcept { return plain_ == Collective::broadcast ? 1 : size_; }
  // The index of the part that belongs to a rank.
  std::size_t part_of(std::size_t rank) const noexcept { return parts() == 1 ? 0 : rank; }

  // Whether this rank's slot shows that part of its input to the others.
  bool gives(std::size_t part) const noexcept;
  bool gives_any() const noexcept;
  // Whether this rank copies something from `peer`, which may be itself, into its output. That is a
  // part of the peer's input or, where the operation reduces, the part that the peer has combined.
  bool takes_from(std::size_t peer) const noexcept;
  bool takes_any() const noexcept;
  // The part of a peer's input that this rank copies, where the operation does not reduce.
  std::size_t part_taken(std::size_t peer) const noexcept;
  // Whether others read the input of that rank.
  bool needs_in(std::size_t rank) const noexcept;
  // Whether others write the output of that rank when it is in a window.
  bool gets_out(std::size_t rank) const noexcept;
  // Whether this rank's input may be read where it lies. In place, all_to_all writes over what
  // others still have to read.
  bool may_show_in(bool in_place) const noexcept {
    return needs_in(rank_) && !(plain_ == Collective::all_to_all && in_place);
  }

  // windowed(rank): what that rank's post says.
  template <class WindowedOf>
  Ways ways(const WindowedOf& windowed) const {
    bool in = true, out = reducing() && !scatters();
    const bool results_are_shared = out;
    for (std::size_t rank = 0; rank < size_; ++rank) {
      const Windowed theirs = windowed(rank);
      in &= !needs_in(rank) || theirs.in;
      out &= !gets_out(rank) || theirs.out;
    }
    return {in, out, !in || (results_are_shared && !out)};
  }
  ResultPlaces result_places(const Ways& ways) const noexcept;

 private:
  Collective plain_ = Collective::barrier;
  const base::Traits* traits_ = &base::traits_of(Collective::barrier);
  std::size_t root_ = 0, rank_ = 0, size_ = 1;
};

}  // namespace rondo::direct
