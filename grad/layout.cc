// SPDX-License-Identifier: Apache-2.0
#include "grad/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace rondo::grad {

namespace {

std::size_t arena_of(std::vector<Arena>& arenas, DType type) {
  const auto found = std::find_if(arenas.begin(), arenas.end(),
                                  [&](const Arena& arena) { return arena.type == type; });
  if (found != arenas.end()) return static_cast<std::size_t>(found - arenas.begin());
  arenas.push_back({type, 0});
  return arenas.size() - 1;
}

void place_parameters(GradientLayout& layout, std::span<const Parameter> parameters) {
  layout.places.resize(parameters.size());
  for (const std::size_t index : reverse_order(parameters.size())) {
    const Parameter& parameter = parameters[index];
    GradientPlace& place = layout.places[index];
    place.arena = arena_of(layout.arenas, parameter.type);
    Arena& arena = layout.arenas[place.arena];
    place.offset = arena.bytes;
    place.bytes = element_count(parameter) * size_of(parameter.type);
    arena.bytes += place.bytes;
  }
  for (std::size_t position = 0; position < layout.order.size(); ++position)
    layout.places[layout.order[position]].position = position;
}

// Cuts each arena by itself.
std::vector<BucketRange> cut(const std::vector<Arena>& arenas, std::size_t first, std::size_t cap) {
  std::vector<BucketRange> buckets;
  for (std::size_t arena = 0; arena < arenas.size(); ++arena)
    for (std::size_t offset = 0; offset < arenas[arena].bytes;) {
      const std::size_t bytes = std::min(offset == 0 ? first : cap, arenas[arena].bytes - offset);
      buckets.push_back({arena, offset, bytes, {}, {}});
      offset += bytes;
    }
  return buckets;
}

// A gradient without bytes belongs to the bucket at its address, or to the last one. Buckets are in
// the order of arenas and addresses.
void fill(const GradientLayout& layout, std::vector<BucketRange>& buckets) {
  const auto bucket_of = [&](std::size_t arena, std::size_t offset) {
    return std::upper_bound(buckets.begin(), buckets.end(), std::pair(arena, offset),
                            [](const auto& place, const BucketRange& bucket) {
                              return place < std::pair(bucket.arena, bucket.offset);
                            }) -
           1;
  };
  for (const std::size_t parameter : reverse_order(layout.places.size())) {
    const GradientPlace& place = layout.places[parameter];
    if (layout.arenas[place.arena].bytes == 0) continue;
    const auto last =
        bucket_of(place.arena, place.offset + std::max<std::size_t>(place.bytes, 1) - 1);
    for (auto bucket = bucket_of(place.arena, place.offset); bucket <= last; ++bucket)
      bucket->parameters.push_back(parameter);
  }
}

// Notes in each gradient its buckets, and in each bucket the gradients that are complete with it.
// Buckets are in the order in which they start.
void name_buckets(GradientLayout& layout) {
  for (std::size_t bucket = 0; bucket < layout.buckets.size(); ++bucket)
    for (const std::size_t parameter : layout.buckets[bucket].parameters)
      layout.places[parameter].buckets.push_back(bucket);
  for (const std::size_t parameter : reverse_order(layout.places.size())) {
    const GradientPlace& place = layout.places[parameter];
    if (!place.buckets.empty()) layout.buckets[place.buckets.back()].completed.push_back(parameter);
  }
}

}  // namespace

GradientLayout make_layout(std::span<const Parameter> parameters, std::vector<std::size_t> order,
                           std::size_t first_bucket_bytes, std::size_t bucket_bytes) {
  GradientLayout layout;
  layout.order = std::move(order);
  place_parameters(layout, parameters);
  layout.buckets = cut(layout.arenas, first_bucket_bytes, bucket_bytes);
  fill(layout, layout.buckets);
  const auto when = [&](const BucketRange& bucket) {
    std::size_t last = 0;
    for (const std::size_t parameter : bucket.parameters)
      last = std::max(last, layout.places[parameter].position);
    return std::tuple(last, bucket.arena, bucket.offset);
  };
  std::sort(layout.buckets.begin(), layout.buckets.end(),
            [&](const BucketRange& a, const BucketRange& b) { return when(a) < when(b); });
  name_buckets(layout);
  return layout;
}

GradientPiece GradientLayout::piece(std::size_t bucket, std::size_t parameter) const noexcept {
  const BucketRange& range = buckets[bucket];
  const GradientPlace& place = places[parameter];
  const std::size_t first = std::max(range.offset, place.offset);
  const std::size_t end = std::min(range.offset + range.bytes, place.offset + place.bytes);
  return {first, end > first ? end - first : 0};
}

std::vector<std::size_t> reverse_order(std::size_t parameters) {
  std::vector<std::size_t> order(parameters);
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return order;
}

std::string problem_of_order(std::span<const std::size_t> order) {
  std::vector<bool> seen(order.size(), false);
  for (const std::size_t parameter : order) {
    if (parameter >= order.size()) return fmt::format("parameter {} does not exist", parameter);
    if (seen[parameter]) return fmt::format("parameter {} appears twice", parameter);
    seen[parameter] = true;
  }
  return {};
}

}  // namespace rondo::grad
