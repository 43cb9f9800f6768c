// SPDX-License-Identifier: Apache-2.0
#include "grad/host_passes.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <rondo/convert.h>

#include "base/copy.h"
#include "grad/clipping.h"
#include "grad/norms.h"
#include "grad/square_sums.h"
#include "grad/wire.h"
#include "grad/wire_elements.h"

namespace rondo::grad {

namespace {

void multiply(float* values, std::size_t count, double factor) noexcept {
  for (std::size_t i = 0; i < count; ++i) values[i] = times(values[i], factor);
}

void multiply(std::byte* values, DType type, std::size_t count, double factor) {
  if (type == DType::f32) return multiply(reinterpret_cast<float*>(values), count, factor);
  if (type == DType::f64) {
    auto* const doubles = reinterpret_cast<double*>(values);
    for (std::size_t i = 0; i < count; ++i) doubles[i] *= factor;
    return;
  }
  std::array<float, 2048> tile;
  for (std::size_t at = 0; at < count; at += tile.size()) {
    const std::size_t now = std::min(tile.size(), count - at);
    std::byte* const to = values + at * size_of(type);
    convert(to, type, tile.data(), DType::f32, now);
    multiply(tile.data(), now, factor);
    convert(tile.data(), DType::f32, to, type, now);
  }
}

}  // namespace

HostPasses::HostPasses(const Setup& setup)
    : setup_(setup),
      block_sums_(setup.options.norms ? all_square_blocks(setup) : 0),
      squares_(setup.options.norms ? setup.parameters.size() + 1 : 0) {}

bool HostPasses::take(std::size_t parameter, const void* gradient, void*) {
  const Buffer view = setup_.gradient(parameter);
  if (gradient != view.data)
    base::copy_bytes(static_cast<std::byte*>(view.data), static_cast<const std::byte*>(gradient),
                     view.count * size_of(view.type));
  return true;
}

void HostPasses::zero(void*) {
  for (std::size_t arena = 0; arena < setup_.layout.arenas.size(); ++arena)
    if (const std::size_t bytes = setup_.layout.arenas[arena].bytes; bytes != 0)
      std::memset(setup_.storage.gradients(arena), 0, bytes);
}

// Pages that are never written cost nothing.
void HostPasses::make_room_to_save() {
  for (std::size_t arena = saved_.size(); arena < setup_.layout.arenas.size(); ++arena)
    saved_.push_back(setup_.storage.has_wire(arena) ? Memory()
                                                    : Memory(setup_.layout.arenas[arena].bytes));
}

void HostPasses::load(std::size_t bucket, std::span<const LoadedPart> parts, double factor,
                      bool save) {
  const Storage& storage = setup_.storage;
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  const Buffer wire = storage.travelling(setup_.layout, bucket);
  for (const LoadedPart& part : parts) {
    const auto [offset, bytes] = part.piece;
    std::byte* const values = storage.gradients(arena) + offset;
    if (!storage.has_wire(arena)) {
      if (!part.zero) continue;
      if (save) base::copy_bytes(saved_at(arena, offset), values, bytes);
      std::memset(values, 0, bytes);
      continue;
    }
    const std::size_t count = bytes / sizeof(float);
    std::byte* const to = storage.travelling_at(setup_.layout, bucket, offset);
    if (part.zero)
      std::memset(to, 0, count * size_of(wire.type));
    else if (encode_wire(reinterpret_cast<const float*>(values), factor, to, wire.type, count))
      setup_.refuse_overflow(part.parameter);
  }
}

void HostPasses::store(std::size_t bucket, std::span<const StoredPart> parts, double scale) {
  const Storage& storage = setup_.storage;
  const std::size_t arena = setup_.layout.buckets[bucket].arena;
  const Buffer wire = storage.travelling(setup_.layout, bucket);
  for (const StoredPart& part : parts) {
    const auto [offset, bytes] = part.piece;
    std::byte* const values = storage.gradients(arena) + offset;
    if (part.untouched) {
      if (!storage.has_wire(arena)) base::copy_bytes(values, saved_at(arena, offset), bytes);
      continue;
    }
    if (storage.has_wire(arena))
      decode_wire(storage.travelling_at(setup_.layout, bucket, offset), wire.type, scale,
                  reinterpret_cast<float*>(values), bytes / sizeof(float));
  }
}

void HostPasses::add_squares(std::span<const SquareRange> ranges) {
  for (const auto& [arena, piece, block] : ranges) {
    const DType type = setup_.layout.arenas[arena].type;
    sum_squares(setup_.storage.gradients(arena) + piece.offset, type, piece.bytes / size_of(type),
                block_sums_.data() + block);
  }
}

void HostPasses::add_up_squares(std::span<const BlockSums> gradients) {
  const std::span<const double> blocks(block_sums_);
  std::size_t parameter = 0;
  for (const auto& [first, count] : gradients)
    squares_[parameter++] = total_of(blocks.subspan(first, count));
  squares_.back() = total_of(std::span(squares_).first(gradients.size()));
}

void HostPasses::clip(double max_norm, std::span<const ClipRange> ranges, void*) {
  const double factor = clip_factor_of_squares(squares_.back(), max_norm);
  if (factor == 1) return;
  for (const auto& [arena, piece] : ranges) {
    const DType type = setup_.layout.arenas[arena].type;
    multiply(setup_.storage.gradients(arena) + piece.offset, type, piece.bytes / size_of(type),
             factor);
  }
}

}  // namespace rondo::grad
