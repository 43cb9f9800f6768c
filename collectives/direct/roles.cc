// SPDX-License-Identifier: Apache-2.0
#include "collectives/direct/roles.h"

namespace rondo::direct {

bool Roles::gives(std::size_t part) const noexcept {
  const bool root = root_ == rank_;
  switch (plain_) {
    case Collective::broadcast:
      return root;
    case Collective::scatter:
      return root && part != rank_;
    case Collective::all_gather:
      return part == rank_;
    case Collective::gather:
      return part == rank_ && !root;
    default:
      return part != rank_;
  }
}

bool Roles::gives_any() const noexcept {
  bool any = false;
  for (std::size_t part = 0; part < parts(); ++part) any |= gives(part);
  return any;
}

bool Roles::takes_from(std::size_t peer) const noexcept {
  const bool root = root_ == rank_;
  switch (plain_) {
    case Collective::broadcast:
    case Collective::scatter:
      return peer == root_;
    case Collective::all_gather:
    case Collective::all_to_all:
      return true;
    case Collective::gather:
      return root;
    case Collective::reduce:
      return root && peer != rank_;
    case Collective::reduce_scatter:
      return false;
    default:
      return peer != rank_;
  }
}

bool Roles::takes_any() const noexcept {
  bool any = false;
  for (std::size_t peer = 0; peer < size_; ++peer) any |= takes_from(peer);
  return any;
}

std::size_t Roles::part_taken(std::size_t peer) const noexcept {
  return plain_ == Collective::scatter || plain_ == Collective::all_to_all ? rank_ : part_of(peer);
}

bool Roles::needs_in(std::size_t rank) const noexcept {
  if (plain_ == Collective::broadcast || plain_ == Collective::scatter) return root_ == rank;
  return plain_ != Collective::gather || root_ != rank;
}

bool Roles::gets_out(std::size_t rank) const noexcept {
  return plain_ == Collective::all_reduce || (plain_ == Collective::reduce && root_ == rank);
}

ResultPlaces Roles::result_places(const Ways& ways) const noexcept {
  const bool root_only = plain_ == Collective::reduce;
  if (root_only && root_ != rank_)
    return {ways.out_windows ? ResultPlaces::First::root_out : ResultPlaces::First::slot, false,
            false};
  const bool shared = plain_ == Collective::all_reduce;
  return {ResultPlaces::First::own_out, shared && !ways.out_windows, shared && ways.out_windows};
}

}  // namespace rondo::direct
