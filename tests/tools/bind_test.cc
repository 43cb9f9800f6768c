// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/bind.h"

#include "catch.h"
#include "tools/shared/text.h"

using namespace rondo;
using namespace rondo::tools;
using Catch::Contains;

namespace {

// Two NUMA nodes of four cores of two hardware threads. Processors 0 to 7 are on the first node,
// and 0 and 1 are a core.
constexpr const char* two_nodes = "numa:2 core:4 pu:2";

base::ProcessorSet set(std::string_view text) {
  return *base::parse_processors(text);
}

std::vector<std::string> bind(const char* machine, std::string_view usable, int ranks,
                              std::optional<Binding> wish = {}) {
  std::vector<std::string> texts;
  for (const auto& one : bind_ranks(load_topology(machine), set(usable), ranks, wish))
    texts.push_back(base::describe_processors(one));
  return texts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("each rank gets a whole core while there are enough, neighbours side by side") {
  CHECK(bind(two_nodes, "0-15", 3) == Texts{"0-1", "2-3", "4-5"});
  CHECK(bind(two_nodes, "0-15", 8) ==
        Texts{"0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"});
  CHECK(bind(two_nodes, "0-15", 2, Binding::core) == Texts{"0-1", "2-3"});
  CHECK(bind("core:2 pu:1", "0-1", 1) == Texts{"0"});
}

TEST_CASE("only processors that this process may use are given away") {
  // One thread of core 1, core 5 and one thread of core 7.
  CHECK(bind(two_nodes, "3,10-11,14", 3) == Texts{"3", "10-11", "14"});
  CHECK(bind(two_nodes, "3,10-11,14", 4) == Texts{"3", "3", "10-11,14", "10-11,14"});
  CHECK(bind(two_nodes, "100-101", 2).empty());
}

TEST_CASE("ranks that outnumber the cores get the node of their share of the cores") {
  CHECK(bind(two_nodes, "0-15", 9) ==
        Texts{"0-7", "0-7", "0-7", "0-7", "0-7", "8-15", "8-15", "8-15", "8-15"});
  // Three cores of the first node and one of the second: three quarters of the ranks.
  const Texts uneven = bind(two_nodes, "0-5,8", 8);
  CHECK(uneven == Texts{"0-5", "0-5", "0-5", "0-5", "0-5", "0-5", "8", "8"});
  CHECK(bind("core:2 pu:1", "0-1", 4) == Texts(4, "0-1"));
}

TEST_CASE("the user's choice of a binding") {
  CHECK(bind(two_nodes, "0-15", 5, Binding::numa) == Texts{"0-7", "0-7", "0-7", "0-7", "8-15"});
  CHECK(bind(two_nodes, "0-15", 5, Binding::none).empty());
  CHECK(bind(two_nodes, "0-15", 8, Binding::core).size() == 8);
  CHECK_THROWS_WITH(bind(two_nodes, "0-15", 9, Binding::core),
                    Contains("--bind core: there are 9 ranks, and this process may use 8 cores") &&
                        Contains("start at most 8, or give --bind numa or --bind none"));
  CHECK_THROWS_AS(bind(two_nodes, "0-15", 9, Binding::core), UsageError);
  CHECK_FALSE(parse_binding(""));
  CHECK(parse_binding("core") == Binding::core);
  CHECK(parse_binding("numa") == Binding::numa);
  CHECK(parse_binding("none") == Binding::none);
  CHECK_THROWS_WITH(parse_binding("socket"),
                    Contains("--bind socket: unknown") && Contains("possible: core, numa, none"));
}

TEST_CASE("a mask is named after what it covers") {
  const Topology topology = load_topology(two_nodes);
  const auto words = [&](std::string_view mask) {
    const Bound bound = classify(topology, set(mask));
    return std::string(name_of(bound)) + ": " + describe(bound, set(mask));
  };
  CHECK(words("2-3") == "core: bound to a core (2-3)");
  CHECK(words("2") == "core: bound to a core (2)");
  CHECK(words("1-2") == "part: bound to 2 processors (1-2)");
  CHECK(words("8-15") == "numa: bound to a NUMA node (8-15)");
  CHECK(words("8-14") == "part: bound to 7 processors (8-14)");
  CHECK(words("0-15") == "none: not bound");
  CHECK(classify(load_topology("core:1 pu:2"), set("0-1")) == Bound::none);
}

TEST_CASE("this machine has a core for one rank") {
  const auto mine = base::affinity_mask();
  const auto sets = bind_ranks(load_topology(), mine, 1, {});
  REQUIRE(sets.size() == 1);
  CHECK(sets.front().any());
  CHECK((sets.front() & ~mine).none());
}
