// SPDX-License-Identifier: Apache-2.0
#include "grad/layout.h"

#include <algorithm>
#include <tuple>

#include "catch.h"
#include "grad/model.h"
#include "support/draw.h"

namespace rondo::testing {
namespace {

// Checks the rules of every layout. Buckets cut each arena exactly and start in the order of their
// last gradients. Each gradient lies in one piece in the buckets that it names.
void check_layout(const grad::GradientLayout& layout, const Model& model, std::size_t first,
                  std::size_t cap) {
  std::vector<std::size_t> completed(model.size(), 0), pieces(model.size(), 0);
  std::size_t last_position = 0;
  for (std::size_t b = 0; b < layout.buckets.size(); ++b) {
    const grad::BucketRange& bucket = layout.buckets[b];
    const std::size_t wanted = std::min(bucket.offset == 0 ? first : cap,
                                        layout.arenas[bucket.arena].bytes - bucket.offset);
    REQUIRE(bucket.bytes == wanted);
    std::size_t position = 0, bytes = 0;
    for (const std::size_t parameter : bucket.parameters) {
      position = std::max(position, layout.places[parameter].position);
      const auto& buckets = layout.places[parameter].buckets;
      REQUIRE(std::count(buckets.begin(), buckets.end(), b) == 1);
      bytes += layout.piece(b, parameter).bytes;
      pieces[parameter] += layout.piece(b, parameter).bytes;
    }
    REQUIRE(bytes == bucket.bytes);
    for (const std::size_t parameter : bucket.completed) {
      ++completed[parameter];
      REQUIRE(layout.places[parameter].buckets.back() == b);
      REQUIRE(pieces[parameter] == layout.places[parameter].bytes);
    }
    REQUIRE(position >= last_position);
    last_position = position;
  }
  std::vector<grad::BucketRange> by_address = layout.buckets;
  std::sort(by_address.begin(), by_address.end(),
            [](const grad::BucketRange& a, const grad::BucketRange& b) {
              return std::tuple(a.arena, a.offset) < std::tuple(b.arena, b.offset);
            });
  std::vector<std::size_t> covered(layout.arenas.size(), 0);
  for (const grad::BucketRange& bucket : by_address) {
    REQUIRE(bucket.offset == covered[bucket.arena]);
    covered[bucket.arena] += bucket.bytes;
  }
  for (std::size_t a = 0; a < covered.size(); ++a) REQUIRE(covered[a] == layout.arenas[a].bytes);
  for (std::size_t p = 0; p < model.size(); ++p) {
    const bool somewhere = layout.arenas[layout.places[p].arena].bytes != 0;
    REQUIRE(completed[p] == (somewhere ? 1 : 0));
    REQUIRE(layout.places[p].bytes == model.count(p) * size_of(model.parameters()[p].type));
  }
}

TEST_CASE("buckets are cut exactly") {
  const Model model = Model::of({10, 100, 7});  // 468 bytes, from the last to the first
  const grad::GradientLayout layout =
      grad::make_layout(model.parameters(), grad::reverse_order(3), 64, 128);
  REQUIRE(layout.buckets.size() == 5);
  const std::size_t bytes[] = {64, 128, 128, 128, 20};
  for (std::size_t b = 0; b < 5; ++b) CHECK(layout.buckets[b].bytes == bytes[b]);
  CHECK(layout.buckets[0].parameters == std::vector<std::size_t>{2, 1});
  CHECK(layout.buckets[0].completed == std::vector<std::size_t>{2});
  CHECK(layout.buckets[1].completed.empty());
  CHECK(layout.buckets[3].completed == std::vector<std::size_t>{1});
  CHECK(layout.buckets[4].completed == std::vector<std::size_t>{0});
  CHECK(layout.places[1].buckets == std::vector<std::size_t>{0, 1, 2, 3});
  CHECK(layout.places[1].offset == 28);
}

TEST_CASE("buckets of several types start in the order of their last gradients") {
  const Model model({{16, DType::f32}, {8, DType::f64}, {16, DType::f32}, {8, DType::f64}});
  const grad::GradientLayout layout =
      grad::make_layout(model.parameters(), grad::reverse_order(4), 64, 64);
  std::vector<std::size_t> order;
  for (const grad::BucketRange& bucket : layout.buckets) order.push_back(bucket.completed.at(0));
  CHECK(order == std::vector<std::size_t>{3, 2, 1, 0});
}

TEST_CASE("layouts of drawn models") {
  constexpr DType types[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Draw draw(seed);
    std::vector<Tensor> tensors;
    for (std::size_t left = draw(20); left > 0; --left)
      tensors.push_back({draw(3) == 0 ? 0 : draw(300), draw.one_of(types)});
    const Model model(tensors);
    std::vector<std::size_t> order = grad::reverse_order(model.size());
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw(i)]);
    const std::size_t first = 64 * (1 + draw(5)), cap = 64 * (1 + draw(40));
    INFO("seed " << seed);
    const grad::GradientLayout layout = grad::make_layout(model.parameters(), order, first, cap);
    check_layout(layout, model, first, cap);
    const grad::GradientLayout other =
        grad::make_layout(model.parameters(), grad::reverse_order(model.size()), first, cap);
    for (std::size_t p = 0; p < model.size(); ++p)
      REQUIRE((layout.places[p].arena == other.places[p].arena &&
               layout.places[p].offset == other.places[p].offset));
  }
}

TEST_CASE("an order that others tell is not trusted") {
  CHECK(grad::problem_of_order(std::vector<std::size_t>{2, 0, 1}).empty());
  CHECK(grad::problem_of_order(std::vector<std::size_t>{2, 0, 2}) == "parameter 2 appears twice");
  CHECK(grad::problem_of_order(std::vector<std::size_t>{0, 3, 1}) == "parameter 3 does not exist");
}

}  // namespace
}  // namespace rondo::testing
