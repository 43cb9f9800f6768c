// SPDX-License-Identifier: Apache-2.0
#include "base/traits.h"

#include <vector>

#include "catch.h"

namespace rondo {
namespace {

using base::Extent;

std::vector<Collective> those(bool (*wanted)(const base::Traits&)) {
  std::vector<Collective> found;
  for (int i = 0; i < collective_count; ++i)
    if (wanted(base::traits_of(static_cast<Collective>(i))))
      found.push_back(static_cast<Collective>(i));
  return found;
}

TEST_CASE("every operation has traits that agree with each other") {
  for (int i = 0; i < collective_count; ++i) {
    const base::Traits& traits = base::traits_of(static_cast<Collective>(i));
    CAPTURE(traits.name);
    CHECK(parse_collective(traits.name) == static_cast<Collective>(i));
    // Where a rank has a block of its own, the buffer has blocks.
    CHECK((traits.blocks || !(traits.gathers() || traits.scatters())));
    CHECK((!traits.messages || !(traits.blocks || traits.reduces || traits.rooted())));
    // An operation differs from its plain form only in the counts.
    const base::Traits& plain = base::traits_of(traits.plain);
    CHECK(!plain.has_counts());
    CHECK((plain.in == traits.in && plain.out == traits.out));
    CHECK((plain.reduces == traits.reduces && plain.blocks == traits.blocks));
    CHECK(plain.messages == traits.messages);
  }
  CHECK(name_of(static_cast<Collective>(collective_count)) == "unknown");
  CHECK(base::traits_of(static_cast<Collective>(255)).messages);
}

TEST_CASE("which operations have which traits") {
  using enum Collective;
  using List = std::vector<Collective>;
  CHECK(those([](const base::Traits& t) { return t.rooted(); }) ==
        List{reduce, broadcast, gather, scatter});
  CHECK(those([](const base::Traits& t) { return t.reduces; }) ==
        List{all_reduce, reduce, reduce_scatter, reduce_scatter_v});
  CHECK(those([](const base::Traits& t) { return t.has_counts(); }) ==
        List{all_gather_v, reduce_scatter_v});
  CHECK(those([](const base::Traits& t) { return t.counts_one_block(); }) ==
        List{all_gather, reduce_scatter, gather, scatter});
  CHECK(those([](const base::Traits& t) { return t.messages; }) ==
        List{all_to_all_v, send, receive});
  CHECK(those([](const base::Traits& t) { return t.blocks; }) ==
        List{all_gather, reduce_scatter, gather, scatter, all_to_all, all_gather_v,
             reduce_scatter_v});
}

TEST_CASE("who holds what") {
  CHECK(base::holds(Extent::all, false, false));
  CHECK(!base::holds(Extent::nothing, true, true));
  CHECK((base::holds(Extent::on_root, true, false) && !base::holds(Extent::on_root, false, true)));
  CHECK((base::holds(Extent::own_block, false, true) &&
         !base::holds(Extent::own_block, true, false)));
  CHECK((base::holds_some(Extent::own_block, false) && !base::holds_some(Extent::on_root, false)));
}

}  // namespace
}  // namespace rondo
