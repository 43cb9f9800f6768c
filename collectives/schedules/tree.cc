// SPDX-License-Identifier: Apache-2.0
//
// Two binary trees, each for one half of the segment. A leaf of one is an inner node of the other,
// so every rank sends and receives about the whole buffer in each direction. The depth is log2 n.
// (Sanders, Speck, Traeff: Two-tree algorithms for full bandwidth broadcast, reduction and scan,
// 2009.)
#include <algorithm>
#include <bit>

#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

namespace {

struct Node {
  int parent = no_rank;
  int depth = 0;
  int children[2] = {no_rank, no_rank};
};

// In an in-order tree of the nodes 1 to count, the lowest set bit of a node gives its level. 0: the
// node has no parent.
int in_order_parent(int node, int count) {
  const int bit = node & -node;
  const bool left = (node & (bit * 2)) == 0 && node + bit <= count;  // the left child of its parent
  return left ? node + bit : node - bit;
}

// The tree's node for index 0 to count-1. The second tree is the first one mirrored (even count) or
// shifted by one (odd count).
int label(int tree, int index, int count) {
  if (tree == 0) return index + 1;
  return count % 2 == 0 ? count - index : (index + 1) % count + 1;
}

int index_of(int tree, int node, int count) {
  if (tree == 0) return node - 1;
  return count % 2 == 0 ? count - node : (node - 2 + count) % count;
}

Node find_node(int tree, int index, int count) {
  const int self = label(tree, index, count);
  Node node;
  if (const int parent = in_order_parent(self, count); parent != 0)
    node.parent = index_of(tree, parent, count);
  for (int above = in_order_parent(self, count); above != 0; above = in_order_parent(above, count))
    ++node.depth;
  const int half = (self & -self) / 2;
  if (half == 0) return node;
  node.children[0] = index_of(tree, self - half, count);
  for (int step = half; step > 0; step /= 2) {
    if (self + step > count) continue;  // the tree ends at count: the child is on a lower level
    node.children[1] = index_of(tree, self + step, count);
    break;
  }
  return node;
}

// For operations with a root: the trees span the other ranks, and the root is the parent of both
// trees' top nodes.
Node find_rooted(int tree, int rank, int size, int root) {
  const auto rank_of = [&](int index) {
    return index == no_rank ? no_rank : wrap(root + 1 + index, size);
  };
  Node node;
  if (rank == root) {
    const int top = static_cast<int>(std::bit_floor(static_cast<unsigned>(size - 1)));
    node.children[0] = rank_of(index_of(tree, top, size - 1));
    return node;
  }
  node = find_node(tree, wrap(rank - root - 1, size), size - 1);
  node.parent = node.parent == no_rank ? root : rank_of(node.parent);
  ++node.depth;
  for (int& child : node.children) child = rank_of(child);
  return node;
}

int height_of(int count) {
  return std::bit_width(static_cast<unsigned>(count)) - 1;
}

// Towards the root: one step for each child adds its value, and the last step also sends to the
// parent.
void append_up(std::vector<Step>& steps, std::uint32_t slice, const Node& node, int height,
               bool token) {
  Step step{.slice = slice, .round = number(height - node.depth)};
  for (const int child : node.children) {
    if (child == no_rank) continue;
    if (step.from != no_rank) steps.push_back(step);
    step.from = child;
    step.reduce = !token;
  }
  step.to = node.parent;
  step.keep = !token && node.parent == no_rank;
  steps.push_back(step);
}

// Away from the root, which has the value already.
void append_down(std::vector<Step>& steps, std::uint32_t slice, const Node& node, int height,
                 bool token) {
  Step step{.slice = slice,
            .from = node.parent,
            .keep = !token && node.parent != no_rank,
            .round = number(height + node.depth)};
  for (const int child : node.children) {
    if (child == no_rank) continue;
    step.to = child;
    steps.push_back(step);
    step = Step{.slice = slice, .round = step.round};
  }
  if (step.from != no_rank) steps.push_back(step);
}

// The two trees share some links, and both ends must list a link's frames in the same order: by
// round, then by tree.
void sort_by_round(std::vector<Step>::iterator begin, std::vector<Step>::iterator end) {
  std::stable_sort(begin, end, [](const Step& a, const Step& b) {
    return a.round != b.round ? a.round < b.round : a.slice < b.slice;
  });
}

}  // namespace

Schedule tree_all_reduce(int rank, int size) {
  const int height = height_of(size);
  Schedule schedule{.slices = 2, .rounds = number(2 * height), .steps = {}};
  for (int tree = 0; tree < 2; ++tree) {
    const Node node = find_node(tree, rank, size);
    append_up(schedule.steps, number(tree), node, height, false);
    append_down(schedule.steps, number(tree), node, height, false);
  }
  sort_by_round(schedule.steps.begin(), schedule.steps.end());
  return schedule;
}

Schedule tree_reduce(int rank, int size, int root) {
  const int height = height_of(size - 1) + 1;
  Schedule schedule{.slices = 2, .rounds = number(2 * height), .steps = {}};
  for (int tree = 0; tree < 2; ++tree)
    append_up(schedule.steps, number(tree), find_rooted(tree, rank, size, root), height, false);
  sort_by_round(schedule.steps.begin(), schedule.steps.end());
  append_down(schedule.steps, schedule.slices, find_rooted(0, rank, size, root), height, true);
  return schedule;
}

Schedule tree_broadcast(int rank, int size, int root) {
  const int height = height_of(size - 1) + 1;
  Schedule schedule{.slices = 2, .rounds = number(2 * height), .steps = {}};
  if (rank == root)
    for (int tree = 0; tree < 2; ++tree)
      schedule.steps.push_back({.slice = number(tree), .keep = true});
  append_up(schedule.steps, schedule.slices, find_rooted(0, rank, size, root), height, true);
  const auto data = static_cast<std::ptrdiff_t>(schedule.steps.size());
  for (int tree = 0; tree < 2; ++tree)
    append_down(schedule.steps, number(tree), find_rooted(tree, rank, size, root), height, false);
  sort_by_round(schedule.steps.begin() + data, schedule.steps.end());
  return schedule;
}

// A token has no bytes that two trees could share, so one tree is enough.
Schedule tree_barrier(int rank, int size) {
  const int height = height_of(size);
  Schedule schedule{.slices = 1, .rounds = number(2 * height), .steps = {}};
  const Node node = find_node(0, rank, size);
  append_up(schedule.steps, schedule.slices, node, height, true);
  append_down(schedule.steps, schedule.slices, node, height, true);
  return schedule;
}

}  // namespace rondo::schedules
