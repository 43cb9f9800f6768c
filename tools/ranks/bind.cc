// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/bind.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::array<std::pair<std::string_view, Binding>, 3> words{
    {{"core", Binding::core}, {"numa", Binding::numa}, {"none", Binding::none}}};

base::ProcessorSet set_of(hwloc_const_bitmap_t bitmap) {
  base::ProcessorSet set;
  for (int i = hwloc_bitmap_first(bitmap); i >= 0; i = hwloc_bitmap_next(bitmap, i))
    if (static_cast<std::size_t>(i) < base::most_processors) set.set(static_cast<std::size_t>(i));
  return set;
}

// The sets of all objects of one type, in the order of the machine.
std::vector<base::ProcessorSet> sets_of(const Topology& topology, hwloc_obj_type_t type) {
  std::vector<base::ProcessorSet> sets;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology.get(), type, object)) != nullptr)
    sets.push_back(set_of(object->cpuset));
  return sets;
}

// Without /sys hwloc knows no cores: then each processor counts as one.
std::vector<base::ProcessorSet> cores_of(const Topology& topology) {
  auto cores = sets_of(topology, HWLOC_OBJ_CORE);
  return cores.empty() ? sets_of(topology, HWLOC_OBJ_PU) : cores;
}

std::vector<base::ProcessorSet> usable_cores_of(const Topology& topology,
                                                const base::ProcessorSet& usable) {
  std::vector<base::ProcessorSet> cores;
  for (const base::ProcessorSet& core : cores_of(topology))
    if ((core & usable).any()) cores.push_back(core & usable);
  return cores;
}

bool is_within(const base::ProcessorSet& set, const base::ProcessorSet& other) {
  return (set & ~other).none();
}

// Returns what this process may use of the core's NUMA node. Nodes of memory alone have no
// processors, and several nodes may have the same ones.
base::ProcessorSet node_of(const base::ProcessorSet& core,
                           const std::vector<base::ProcessorSet>& nodes,
                           const base::ProcessorSet& usable) {
  const auto node =
      std::ranges::find_if(nodes, [&](const auto& one) { return is_within(core, one); });
  return node == nodes.end() ? usable : *node & usable;
}

}  // namespace

void FreeTopology::operator()(hwloc_topology* topology) const noexcept {
  hwloc_topology_destroy(topology);
}

std::optional<Binding> parse_binding(const std::string& text) {
  if (text.empty()) return std::nullopt;
  std::vector<std::string> possible;
  for (const auto& [word, binding] : words) {
    if (word == text) return binding;
    possible.emplace_back(word);
  }
  refuse_unknown("--bind", text, possible);
}

Topology load_topology(const std::string& synthetic) {
  const auto check = [](int result, const char* call) {
    if (result != 0) throw std::system_error(errno, std::generic_category(), call);
  };
  if (synthetic.empty()) {
    // hwloc tries larger and larger masks until this works, without end where a sandbox refuses it.
    std::array<cpu_set_t, base::most_processors / CPU_SETSIZE> mask{};
    check(::sched_getaffinity(0, sizeof mask, mask.data()), "sched_getaffinity");
  }
  hwloc_topology_t made = nullptr;
  check(hwloc_topology_init(&made), "hwloc_topology_init");
  Topology topology(made);
  if (!synthetic.empty())
    check(hwloc_topology_set_synthetic(made, synthetic.c_str()), "hwloc_topology_set_synthetic");
  check(hwloc_topology_load(made), "hwloc_topology_load");
  return topology;
}

std::vector<base::ProcessorSet> bind_ranks(const Topology& topology,
                                           const base::ProcessorSet& usable, int ranks,
                                           std::optional<Binding> wish) {
  if (wish == Binding::none) return {};
  const auto cores = usable_cores_of(topology, usable);
  const auto count = static_cast<std::size_t>(ranks);
  if (wish == Binding::core && count > cores.size())
    throw UsageError(
        fmt::format("--bind core: there are {} ranks, and this process may use {} {}; start at "
                    "most {}, or give --bind numa or --bind none",
                    ranks, cores.size(), cores.size() == 1 ? "core" : "cores", cores.size()));
  if (cores.empty()) return {};
  const bool alone = wish != Binding::numa && count <= cores.size();
  const auto nodes = sets_of(topology, HWLOC_OBJ_NUMANODE);
  std::vector<base::ProcessorSet> sets;
  for (std::size_t rank = 0; rank < count; ++rank) {
    const auto& core = cores[count <= cores.size() ? rank : rank * cores.size() / count];
    sets.push_back(alone ? core : node_of(core, nodes, usable));
  }
  return sets;
}

std::string_view name_of(Bound bound) {
  constexpr std::string_view names[] = {"none", "core", "numa", "part"};
  return names[static_cast<std::size_t>(bound)];
}

Bound classify(const Topology& topology, const base::ProcessorSet& mask) {
  const auto within = [&](const base::ProcessorSet& set) { return is_within(mask, set); };
  const auto all = set_of(hwloc_topology_get_topology_cpuset(topology.get()));
  if (is_within(all, mask)) return Bound::none;
  if (std::ranges::any_of(cores_of(topology), within)) return Bound::core;
  const auto nodes = sets_of(topology, HWLOC_OBJ_NUMANODE);
  const bool whole = std::ranges::any_of(
      nodes, [&](const auto& node) { return node.any() && is_within(node, mask) && within(node); });
  return whole ? Bound::numa : Bound::part;
}

std::string describe(Bound bound, const base::ProcessorSet& mask) {
  if (bound == Bound::none) return "not bound";
  const std::string what = bound == Bound::core   ? "a core"
                           : bound == Bound::numa ? "a NUMA node"
                                                  : fmt::format("{} processors", mask.count());
  return fmt::format("bound to {} ({})", what, base::describe_processors(mask));
}

}  // namespace rondo::tools
