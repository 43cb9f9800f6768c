// SPDX-License-Identifier: Apache-2.0
//
// A value is an expression of ranks, kept once and named by a number. So two values are compared by
// their numbers, and a + b equals b + a but (a + b) + c differs from a + (b + c).
#include "collectives/proof/symbolic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace rondo::proof {

namespace {

constexpr std::size_t no_memory = ~std::size_t{0};

std::size_t size_of_set(std::span<const std::uint64_t> set) {
  std::size_t count = 0;
  for (const std::uint64_t word : set) count += static_cast<std::size_t>(std::popcount(word));
  return count;
}

// The lowest rank in `set`; when `member` is false, the lowest that is not in it.
int first_rank(std::span<const std::uint64_t> set, bool member) {
  for (std::size_t word = 0; word < set.size(); ++word)
    if (const std::uint64_t bits = member ? set[word] : ~set[word]; bits != 0)
      return static_cast<int>(word * 64) + std::countr_zero(bits);
  return schedules::no_rank;
}

void insert(std::span<std::uint64_t> set, int rank) {
  set[static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << (rank % 64);
}

void unite(std::span<std::uint64_t> set, std::span<const std::uint64_t> other) {
  for (std::size_t word = 0; word < set.size(); ++word) set[word] |= other[word];
}

}  // namespace

std::string describe_step(int rank, std::size_t index, const schedules::Step& step,
                          std::uint32_t slices) {
  std::string text = fmt::format("rank {} step {} (", rank, index);
  text += step.slice == slices ? std::string("token") : fmt::format("slice {}", step.slice);
  if (step.from != schedules::no_rank) text += fmt::format(" from {}", step.from);
  if (step.to != schedules::no_rank) text += fmt::format(" to {}", step.to);
  if (step.reduce) text += ", reduce";
  if (step.keep) text += ", keep";
  return text + ")";
}

Symbolic::Symbolic(const std::vector<schedules::Schedule>& schedules, Collective operation,
                   int root, std::size_t frames, bool in_place)
    : schedules_(&schedules),
      operation_(schedules::without_counts(operation)),
      traits_(&base::traits_of(operation)),
      root_(root),
      size_(static_cast<int>(schedules.size())),
      slices_(schedules.front().slices),
      in_place_(in_place),
      values_(schedules.size() * (slices_ + 1) + frames),
      contributions_(values_.size(), size_),
      begun_(values_.size(), size_),
      readers_(2 * schedules.size() * (slices_ + 1), 0),
      read_by_(frames, no_memory),
      grants_(schedules.size() * (slices_ + 1), 0),
      kept_(slices_, 0) {
  for (int rank = 0; rank < size_; ++rank)
    for (std::uint32_t slice = 0; slice <= slices_; ++slice)
      insert(begun_.of(place(rank, slice)), rank);
}

void Symbolic::fail(int rank, std::size_t step, const std::string& text) {
  if (problem_.empty())
    problem_ = describe_step(rank, step, step_of(rank, step), slices_) + ": " + text;
}

bool Symbolic::has_part(int rank, std::size_t step, bool written) {
  if (values_[place(rank, step_of(rank, step).slice)].written == written) return true;
  fail(rank, step, "its part is not in the memory where the engine looks for it");
  return false;
}

// Only the granted frame may use memory that a peer may write.
bool Symbolic::may_use(int rank, std::size_t step, std::size_t frame) {
  const std::size_t granted = grants_[place(rank, step_of(rank, step).slice)];
  if (granted == 0 || granted == frame + 1) return true;
  fail(rank, step, "it uses memory that a peer may write already");
  return false;
}

bool Symbolic::may_write(int rank, std::size_t step) {
  if (readers_[memory(place(rank, step_of(rank, step).slice), true)] == 0) return true;
  fail(rank, step, "it writes over memory from which a link still reads");
  return false;
}

// Gives a slice without a value the rank's own input.
bool Symbolic::touch(int rank, std::size_t step, std::uint32_t slice) {
  Value& value = values_[place(rank, slice)];
  if (value.expression != 0) return true;
  if (!has_input(rank, slice)) {
    fail(rank, step, "there is no value of this slice here yet, and this rank has none of its own");
    return false;
  }
  value.expression = input_of(rank, slice);
  insert(contributions_.of(place(rank, slice)), rank);
  return true;
}

// Gives the same result for (a, b) and (b, a): floating-point addition is commutative, but not
// associative.
std::uint32_t Symbolic::combine(std::uint32_t a, std::uint32_t b) {
  const std::uint64_t key = std::uint64_t{std::min(a, b)} << 32 | std::max(a, b);
  const auto leaves = static_cast<std::uint32_t>(size_) * slices_;
  const auto next = 1 + leaves + static_cast<std::uint32_t>(operands_.size());
  const auto [place, added] = expressions_.try_emplace(key, next);
  if (added) operands_.push_back(key);
  return place->second;
}

std::string Symbolic::write(std::uint32_t expression) const {
  const auto leaves = static_cast<std::uint32_t>(size_) * slices_;
  if (expression == 0) return {};
  if (expression <= leaves) return std::to_string((expression - 1) / slices_);
  const std::uint64_t operands = operands_[expression - leaves - 1];
  std::string first = write(static_cast<std::uint32_t>(operands >> 32));
  std::string second = write(static_cast<std::uint32_t>(operands));
  if (first.size() != second.size() ? first.size() < second.size() : first > second)
    first.swap(second);
  return fmt::format("({} + {})", first, second);
}

// The step's slice now knows which ranks the value at `from` (a frame or another slice) knows to
// have begun. A token tells all slices.
void Symbolic::learn(int rank, const schedules::Step& step, std::size_t from) {
  const std::uint64_t depth = values_[from].depth;
  const bool fence = step.slice == slices_;
  for (std::uint32_t slice = fence ? 0 : step.slice; slice <= (fence ? slices_ : step.slice);
       ++slice) {
    unite(begun_.of(place(rank, slice)), begun_.of(from));
    std::uint64_t& known = values_[place(rank, slice)].depth;
    known = std::max(known, depth);
  }
  rounds_ = std::max(rounds_, depth);
}

void Symbolic::receive(int rank, std::size_t index, std::size_t frame, bool written) {
  const schedules::Step& step = step_of(rank, index);
  const std::size_t from = static_cast<std::size_t>(size_) * (slices_ + 1) + frame;
  learn(rank, step, from);
  if (step.slice == slices_) return;
  const Value& arrived = values_[from];
  Value& value = values_[place(rank, step.slice)];
  const auto set = contributions_.of(place(rank, step.slice));
  const auto other = contributions_.of(from);
  if (!has_part(rank, index, written) || !may_use(rank, index, frame) || !may_write(rank, index))
    return;
  grants_[place(rank, step.slice)] = 0;
  if (value.kept) return fail(rank, index, "it writes over a value that has been kept");
  if (!step.reduce) {
    if (reduces() && arrived.expression <= static_cast<std::uint32_t>(size_) * slices_)
      return fail(rank, index,
                  "it stores another rank's input: only a step that reduces applies the input's "
                  "scale");
    value.expression = arrived.expression;
    value.finished = arrived.finished;
    std::copy(other.begin(), other.end(), set.begin());
  } else {
    if (!reduces()) return fail(rank, index, "this operation does not reduce");
    if (!touch(rank, index, step.slice)) return;
    if (value.finished || arrived.finished)
      return fail(rank, index, "it reduces a value that is already finished");
    for (std::size_t word = 0; word < set.size(); ++word)
      if (const std::uint64_t both = set[word] & other[word]; both != 0)
        return fail(rank, index,
                    fmt::format("the contribution of rank {} would be counted twice",
                                static_cast<int>(word * 64) + std::countr_zero(both)));
    unite(set, other);
    value.expression = combine(value.expression, arrived.expression);
  }
  value.written = true;
  if (step.keep) keep(rank, index);
}

void Symbolic::keep(int rank, std::size_t index) {
  const schedules::Step& step = step_of(rank, index);
  Value& value = values_[place(rank, step.slice)];
  const auto set = contributions_.of(place(rank, step.slice));
  if (!promises(rank, step.slice))
    return fail(rank, index, "this rank keeps nothing of this slice");
  if (value.kept) return fail(rank, index, "the slice is kept twice");
  if (step.reduce || step.from == schedules::no_rank || moves_inputs()) value.finished = true;
  if (!value.finished)
    return fail(
        rank, index,
        "the value that arrives was never finished: the step that finished it does not keep");
  const std::size_t wanted = reduces() ? schedules_->size() : 1;
  if (size_of_set(set) != wanted)
    return fail(rank, index,
                fmt::format("the contribution of rank {} is missing", first_rank(set, false)));
  if (operation_ == Collective::broadcast && first_rank(set, true) != root_)
    return fail(rank, index, "the value is not the root's");
  value.kept = true;
  // In an all_to_all the slice's number is the rank that sent this block.
  if (operation_ == Collective::all_to_all) {
    if (value.expression !=
        input_of(static_cast<int>(step.slice), static_cast<std::uint32_t>(rank)))
      fail(rank, index, "the value is not the block that its rank has for this one");
    return;
  }
  std::uint32_t& first = kept_[step.slice];
  if (first == 0) first = value.expression;
  if (first != value.expression)
    fail(rank, index, "the value is summed in another order than on a rank that kept it before");
}

void Symbolic::keep_local(int rank, std::size_t index) {
  const schedules::Step& step = step_of(rank, index);
  if (step.slice == slices_ || !step.keep || !touch(rank, index, step.slice)) return;
  Value& value = values_[place(rank, step.slice)];
  if (!may_use(rank, index, read_by_.size())) return;
  // Finishing a sum writes to its memory. A value that is only moved may already lie there.
  const bool writes = reduces() || (!value.written && !in_place_);
  if (writes && !may_write(rank, index)) return;
  value.written = true;
  keep(rank, index);
}

void Symbolic::granted(int rank, std::size_t index, std::size_t frame) {
  if (step_of(rank, index).slice == slices_ || !may_write(rank, index)) return;
  grants_[place(rank, step_of(rank, index).slice)] = frame + 1;
}

void Symbolic::send(int rank, std::size_t index, std::size_t frame, bool written, bool held) {
  const schedules::Step& step = step_of(rank, index);
  const std::size_t to = static_cast<std::size_t>(size_) * (slices_ + 1) + frame;
  const std::size_t own = place(rank, step.slice);
  if (step.slice == slices_) {
    for (std::uint32_t slice = 0; slice < slices_; ++slice) learn(rank, step, place(rank, slice));
  } else if (!touch(rank, index, step.slice) || !has_part(rank, index, written) ||
             ((written || in_place_) && !may_use(rank, index, read_by_.size()))) {
    return;
  } else if (held) {
    read_by_[frame] = memory(own, written);
    ++readers_[read_by_[frame]];
  }
  values_[to] = values_[own];
  values_[to].depth = values_[own].depth + 1;
  std::copy_n(contributions_.of(own).begin(), contributions_.of(own).size(),
              contributions_.of(to).begin());
  std::copy_n(begun_.of(own).begin(), begun_.of(own).size(), begun_.of(to).begin());
}

void Symbolic::released(std::size_t frame) {
  if (read_by_[frame] != no_memory) --readers_[read_by_[frame]];
  read_by_[frame] = no_memory;
}

void Symbolic::rank_done(int rank) {
  for (std::uint32_t slice = 0; slice < slices_; ++slice)
    for (const bool written : {false, true})
      if (readers_[memory(place(rank, slice), written)] != 0 && problem_.empty())
        problem_ = fmt::format("rank {} is done while a link still reads slice {}", rank, slice);
  const auto all = begun_.of(place(rank, slices_));
  for (std::uint32_t slice = 0; slice < slices_; ++slice) unite(all, begun_.of(place(rank, slice)));
  if (size_of_set(all) != schedules_->size() && problem_.empty())
    problem_ = fmt::format(
        "rank {} is done before rank {} has begun: nothing that it waits for depends on that rank",
        rank, first_rank(all, false));
}

void Symbolic::all_done() {
  for (int rank = 0; rank < size_ && problem_.empty(); ++rank)
    for (std::uint32_t slice = 0; slice < slices_; ++slice)
      if (promises(rank, slice) && !values_[place(rank, slice)].kept) {
        problem_ = fmt::format("rank {} never keeps slice {}", rank, slice);
        return;
      }
}

}  // namespace rondo::proof
