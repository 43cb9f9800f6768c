// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan/two_level_formulas.h"

#include <bit>

namespace rondo::plan {
namespace {

struct Levels {
  explicit Levels(const Topology& t)
      : n(t.ranks),
        hosts(t.hosts),
        rails(t.ranks_per_host),
        height(std::bit_width(static_cast<unsigned>(t.hosts - 1))) {}
  double n, hosts, rails, height;  // height: rounds of a binomial tree of hosts
  double k = n - 1, last = hosts - 1, inside = (rails - 1) / rails;
  double near = rails > 1 ? 1 : 0;  // hops within a host, each way
};

}  // namespace

Shape two_level_all_reduce(const Topology& topology) {
  const Levels l(topology);
  return {.slices = l.rails * l.hosts,
          .host = {.hops = 2 * l.near,
                   .path_bytes = 2 * l.inside,
                   .path_frames = l.near * 2 * ((l.rails - 1) * l.hosts - 1),
                   .busy_bytes = 2 * l.inside,
                   .busy_frames = 4 * (l.rails - 1) * l.hosts},
          .network = {.hops = 2 * l.last,
                      .path_bytes = 2 * l.last / l.hosts,
                      .busy_bytes = 2 * l.last / l.hosts,
                      .busy_frames = 4 * l.last},
          .path_reduce = l.inside + l.last / l.n,
          .busy_reduce = l.inside + l.last / l.n,
          .frames = 2 * (l.n - l.hosts) * l.rails * l.hosts + 2 * l.last * l.rails * l.hosts,
          .bytes = 2 * l.k,
          .reduce = l.k};
}
Shape two_level_all_gather(const Topology& topology) {
  const Levels l(topology);
  const double blocks = l.rails > 1 ? l.n * l.inside : 0,
               between = l.n * l.last / l.rails / l.hosts;
  return {.slices = l.n,
          .host = {.hops = l.near,
                   .path_bytes = l.inside,
                   .path_frames = l.near * (blocks - 1),
                   .busy_bytes = l.inside,
                   .busy_frames = 2 * blocks},
          .network = {.hops = l.last,
                      .path_bytes = l.last / l.hosts,
                      .busy_bytes = l.last / l.hosts,
                      .busy_frames = 2 * between},
          .frames = (l.n - l.hosts) * l.n + l.last * l.n,
          .bytes = l.k};
}
Shape two_level_reduce_scatter(const Topology& topology) {
  const Levels l(topology);
  Shape shape = two_level_all_gather(topology);
  shape.path_reduce = shape.busy_reduce = l.inside + l.last / l.n;
  shape.reduce = l.k;
  return shape;
}
Shape two_level_broadcast(const Topology& topology) {
  const Levels l(topology);
  return {.slices = l.rails,
          .host = {.hops = 3 * l.near,
                   .path_bytes = 2 * l.inside,
                   .path_frames = l.near * 4 * (l.rails - 1),
                   .busy_bytes = 2 * l.inside,
                   .busy_frames = 4 * l.rails},
          .network = {.hops = l.last + l.height,
                      .path_bytes = l.last,
                      .busy_bytes = 1,
                      .busy_frames = 2 + l.height},
          .frames = l.k * l.rails + l.k,
          .bytes = l.k};
}
Shape two_level_reduce(const Topology& topology) {
  const Levels l(topology);
  Shape shape = two_level_broadcast(topology);
  shape.path_reduce = l.inside + l.last / l.rails;
  shape.busy_reduce = l.inside + 1 / l.rails;
  shape.reduce = l.k;
  return shape;
}
Shape two_level_barrier(const Topology& topology) {
  const Levels l(topology);
  return {.host = {.hops = 2 * l.near,
                   .path_frames = l.near * 2 * (l.rails - 2),
                   .busy_frames = 2 * (l.rails - 1)},
          .network = {.hops = l.height, .busy_frames = 2 * l.height},
          .frames = 2 * (l.n - l.hosts) + l.hosts * l.height};
}

}  // namespace rondo::plan
