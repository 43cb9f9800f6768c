// SPDX-License-Identifier: Apache-2.0
//
// Chooses the processors of each rank of a job on this host. hwloc knows which of them belong to a
// core and to a NUMA node. Reentrant.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cores.h"

struct hwloc_topology;

namespace rondo::tools {

// core: one core a rank, with all its hardware threads. numa: the cores of the rank's NUMA node.
enum class Binding : unsigned char { core, numa, none };
// Reads the value of --bind. No value for an empty text: the default. Throws UsageError that names
// the choices.
std::optional<Binding> parse_binding(const std::string& text);

struct FreeTopology {
  void operator()(hwloc_topology* topology) const noexcept;
};
using Topology = std::unique_ptr<hwloc_topology, FreeTopology>;

// This machine, or one that `synthetic` describes in hwloc's words: "numa:2 core:4 pu:2". Throws
// std::system_error.
Topology load_topology(const std::string& synthetic = {});

// Returns, by rank, the processors to bind it to, which are some of `usable`. Without a wish each
// rank gets a core while there are enough; beyond that it gets the NUMA node of its share of the
// cores. Ranks fill the cores in the order of the machine, so neighbouring ranks are near each
// other. Returns nothing for Binding::none, and where the topology knows no processor of `usable`:
// then no rank is bound. Throws UsageError if the wish is core and there are more ranks than cores.
std::vector<base::ProcessorSet> bind_ranks(const Topology& topology,
                                           const base::ProcessorSet& usable, int ranks,
                                           std::optional<Binding> wish);

// The meaning of a mask on this machine. none: it has every processor of the topology.
// part: neither a core nor a NUMA node.
enum class Bound : unsigned char { none, core, numa, part };
std::string_view name_of(Bound bound);
Bound classify(const Topology& topology, const base::ProcessorSet& mask);
// "bound to a core (processors 0,8)", "not bound".
std::string describe(Bound bound, const base::ProcessorSet& mask);

}  // namespace rondo::tools
