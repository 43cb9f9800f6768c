// SPDX-License-Identifier: Apache-2.0
#include "grad/norms.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/default_floats.h"
#include "grad/square_order.h"

namespace rondo::grad {

std::size_t all_square_blocks(const Setup& setup) {
  std::size_t blocks = 0;
  for (const Parameter& parameter : setup.parameters)
    blocks += square_blocks(element_count(parameter));
  return blocks;
}

GradientNorms::GradientNorms(const Setup& setup) : setup_(setup) {
  if (!setup.options.norms) return;
  const std::size_t count = setup.parameters.size();
  std::size_t first = 0, shared = 0;
  for (std::size_t parameter = 0; parameter < count; ++parameter) {
    blocks_.push_back({first, shared_blocks(parameter)});
    first += square_blocks(elements(parameter));
    shared += blocks_.back().shared.size();
  }
  counted_.resize(count);
  sums_.resize(count);
  ranges_.reserve(count + shared);
}

std::size_t GradientNorms::elements(std::size_t parameter) const {
  return setup_.layout.places[parameter].bytes / size_of(setup_.parameters[parameter].type);
}

// Cuts do not change when buckets get another order.
std::vector<std::size_t> GradientNorms::shared_blocks(std::size_t parameter) const {
  const GradientPlace& place = setup_.layout.places[parameter];
  const std::size_t element_bytes = size_of(setup_.parameters[parameter].type);
  std::vector<std::size_t> blocks;
  for (const std::size_t bucket : place.buckets) {
    const std::size_t offset = setup_.layout.piece(bucket, parameter).offset;
    const std::size_t cut = offset > place.offset ? (offset - place.offset) / element_bytes : 0;
    if (cut % square_block != 0 && cut < elements(parameter)) blocks.push_back(cut / square_block);
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

void GradientNorms::begin_step() {
  std::fill(counted_.begin(), counted_.end(), true);
}

void GradientNorms::add(std::size_t parameter, std::size_t first, std::size_t end) {
  if (first >= end) return;
  const GradientPlace& place = setup_.layout.places[parameter];
  const std::size_t element_bytes = size_of(setup_.parameters[parameter].type);
  ranges_.push_back({place.arena,
                     {place.offset + first * element_bytes, (end - first) * element_bytes},
                     blocks_[parameter].first + first / square_block});
}

void GradientNorms::add(std::size_t bucket) {
  const BucketRange& range = setup_.layout.buckets[bucket];
  ranges_.clear();
  for (const std::size_t parameter : range.parameters) {
    if (!counted_[parameter]) continue;
    const GradientPlace& place = setup_.layout.places[parameter];
    const std::size_t element_bytes = size_of(setup_.parameters[parameter].type);
    const GradientPiece piece = setup_.layout.piece(bucket, parameter);
    if (piece.bytes == 0) continue;
    const std::size_t first = (piece.offset - place.offset) / element_bytes,
                      end = first + piece.bytes / element_bytes;
    add(parameter, (first + square_block - 1) / square_block * square_block,
        end == elements(parameter) ? end : end / square_block * square_block);
  }
  for (const std::size_t parameter : range.completed) {
    if (!counted_[parameter]) continue;
    for (const std::size_t block : blocks_[parameter].shared)
      add(parameter, block * square_block,
          std::min((block + 1) * square_block, elements(parameter)));
  }
  setup_.passes->add_squares(ranges_);
}

void GradientNorms::end_step() {
  for (std::size_t parameter = 0; parameter < sums_.size(); ++parameter)
    sums_[parameter] = {blocks_[parameter].first,
                        counted_[parameter] ? square_blocks(elements(parameter)) : 0};
  setup_.passes->add_up_squares(sums_);
}

std::span<const ClipRange> GradientNorms::counted_ranges() {
  clipped_.clear();
  const bool all = std::ranges::find(counted_, false) == counted_.end();
  for (std::size_t arena = 0; all && arena < setup_.layout.arenas.size(); ++arena)
    if (const std::size_t bytes = setup_.layout.arenas[arena].bytes; bytes != 0)
      clipped_.push_back({arena, {0, bytes}});
  for (std::size_t parameter = 0; !all && parameter < counted_.size(); ++parameter) {
    const GradientPlace& place = setup_.layout.places[parameter];
    if (!counted_[parameter] || place.bytes == 0) continue;
    // Neighbours are one range. Gradients lie in the order of parameters, or in the opposite one.
    if (!clipped_.empty() && clipped_.back().arena == place.arena) {
      GradientPiece& last = clipped_.back().piece;
      if (last.offset + last.bytes == place.offset) {
        last.bytes += place.bytes;
        continue;
      }
      if (place.offset + place.bytes == last.offset) {
        last = {place.offset, last.bytes + place.bytes};
        continue;
      }
    }
    clipped_.push_back({place.arena, {place.offset, place.bytes}});
  }
  return clipped_;
}

void GradientNorms::check_wanted(std::string_view call) const {
  if (!setup_.options.norms) setup_.refuse(fmt::format("{} needs GradientOptions::norms", call));
}

double GradientNorms::norm(std::size_t parameter) const {
  const base::DefaultFloats floats;
  setup_.check_index("norm", parameter);
  check_wanted("norm()");
  return std::sqrt(setup_.passes->squares()[parameter]);
}

double GradientNorms::norm() const {
  const base::DefaultFloats floats;
  check_wanted("norm()");
  return std::sqrt(setup_.passes->squares().back());
}

}  // namespace rondo::grad
