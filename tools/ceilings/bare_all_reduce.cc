// SPDX-License-Identifier: Apache-2.0
//
// Ranks offer chunks of their input in shared slots, sum the chunks of the others, and collect
// sums. The number of a chunk says that it is complete; there is nothing else to wait for.
#include "tools/ceilings/bare_all_reduce.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "base/copy.h"
#include "base/cores.h"
#include "base/processor.h"
#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t line_bytes = 64;
// The slots of a rank are used in turns. A rank that offers chunk n has seen every other rank offer
// chunk n - 2, which each does after its sum of chunk n - 4. A rank that writes its sum of chunk n
// has seen them offer chunk n, which each does after it has collected chunk n - 3.
constexpr std::size_t depth = 4;
constexpr std::size_t largest_chunk = std::size_t{256} << 10;
// With three ranks or more, one shot reads more than two shots: beyond that it is never faster.
constexpr std::size_t most_in_one_shot = std::size_t{1} << 20;
// A yield can take a whole turn of another process.
constexpr int spins_between_looks = 1000, yields_between_looks = 20;

// Short calls need more trials, because other programs disturb them more.
int trials_of(std::size_t bytes) {
  if (bytes <= std::size_t{256} << 10) return 25;
  return bytes <= std::size_t{16} << 20 ? 7 : 3;
}

[[gnu::always_inline]] inline void sum_blocks(float* out, const std::byte* const* sources,
                                              std::size_t source_count, std::size_t count) {
  // The sums of one block stay in the first cache.
  constexpr std::size_t block = 2048;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t length = std::min(block, count - begin);
    float* const to = out + begin;
    const auto* const first = reinterpret_cast<const float*>(sources[0]) + begin;
    const auto* const second = reinterpret_cast<const float*>(sources[1]) + begin;
    for (std::size_t i = 0; i < length; ++i) to[i] = first[i] + second[i];
    for (std::size_t source = 2; source < source_count; ++source) {
      const auto* const next = reinterpret_cast<const float*>(sources[source]) + begin;
      for (std::size_t i = 0; i < length; ++i) to[i] += next[i];
    }
  }
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void sum_wide(float* out, const std::byte* const* sources,
                                      std::size_t source_count, std::size_t count) {
  sum_blocks(out, sources, source_count, count);
}
#endif

// out[i] = the sum of sources[s][i] over s, for i < count. As fast as Rondo's kernels are here:
// data that comes from another core is the limit.
void sum_floats(std::byte* out, const std::byte* const* sources, std::size_t source_count,
                std::size_t count) {
  if (source_count == 1) {
    base::copy_bytes(out, sources[0], count * sizeof(float));
    return;
  }
#if defined(__x86_64__)
  if (base::best_isa() != base::Isa::scalar)
    return sum_wide(reinterpret_cast<float*>(out), sources, source_count, count);
#endif
  sum_blocks(reinterpret_cast<float*>(out), sources, source_count, count);
}

}  // namespace

// One chunk of a rank, and the number of that chunk once it is complete. Chunks are numbered from 1
// on, over all calls. Data that fits shares the line of the number.
struct alignas(line_bytes) BareAllReduce::Slot {
  std::atomic<std::uint64_t> chunk;
  std::array<std::byte, line_bytes - sizeof(chunk)> inside;
  std::array<std::byte, largest_chunk> beside;

  std::byte* data(std::size_t bytes) noexcept {
    return bytes <= inside.size() ? inside.data() : beside.data();
  }
};

struct alignas(line_bytes) BareAllReduce::Shared {
  std::atomic<std::uint64_t> barriers;  // that this rank has reached
  std::atomic<std::size_t> cut;         // rank 0's, and its time
  std::atomic<double> seconds;
  // Where this rank may run, and how many of these processors its quota is enough for.
  base::ProcessorSet processors;
  int quota;
  std::array<Slot, depth> inputs, sums;
};

const std::array<BareAllReduce::Cut, 6> BareAllReduce::cuts = {{{false, std::size_t{16} << 10},
                                                                {false, std::size_t{64} << 10},
                                                                {true, std::size_t{16} << 10},
                                                                {true, std::size_t{64} << 10},
                                                                {true, std::size_t{128} << 10},
                                                                {true, std::size_t{256} << 10}}};

std::size_t BareAllReduce::memory_bytes(int ranks) noexcept {
  return static_cast<std::size_t>(ranks) * sizeof(Shared);
}

BareAllReduce::BareAllReduce(int rank, int size, std::byte* memory, Look look)
    : rank_(rank),
      size_(size),
      ranks_(reinterpret_cast<Shared*>(memory)),
      look_(std::move(look)),
      cut_(cuts.front()) {
  const base::UsableCores cores = base::find_usable_cores();
  of(rank).processors = cores.mask;
  of(rank).quota = cores.quota ? cores.quota->rounded_up() : std::numeric_limits<int>::max();
}

// A rank that is bound sees its own core only, so this counts those of all ranks.
bool BareAllReduce::has_a_core_for_each() const {
  base::ProcessorSet all;
  int quota = std::numeric_limits<int>::max();
  for (int rank = 0; rank < size_; ++rank) {
    all |= of(rank).processors;
    quota = std::min(quota, of(rank).quota);
  }
  return size_ <= quota && static_cast<std::size_t>(size_) <= all.count();
}

double BareAllReduce::prepare(std::span<const std::byte> input, std::span<std::byte> output) {
  input_ = input;
  output_ = output;
  barrier();
  yields_ = !has_a_core_for_each();
  std::pair<double, std::size_t> best{std::numeric_limits<double>::infinity(), 0};
  for (std::size_t number = 0; number < cuts.size(); ++number) {
    cut_ = cuts[number];
    if (!cut_.two_shots && size_ > 2 && input.size() > most_in_one_shot) continue;
    // Both cuts take the whole input as one chunk.
    if (number > 0 && cuts[number - 1].two_shots == cut_.two_shots &&
        cuts[number - 1].chunk_bytes >= input.size())
      continue;
    best = std::min(best, {median_seconds(trials_of(input.size())), number});
  }
  if (rank_ == 0) {
    ranks_[0].seconds = best.first;
    ranks_[0].cut = best.second;
  }
  barrier();
  const double seconds = ranks_[0].seconds;
  cut_ = cuts[ranks_[0].cut];
  barrier();
  return seconds;
}

double BareAllReduce::median_seconds(int trials) {
  std::vector<double> times(static_cast<std::size_t>(trials));
  for (double& time : times) {
    barrier();
    const auto start = Clock::now();
    all_reduce();
    barrier();
    time = std::chrono::duration<double>(Clock::now() - start).count();
  }
  return median(times);
}

// Goes chunk by chunk, so that each stays in a cache. A rank offers the next chunk before it waits
// for the others' part of this one.
void BareAllReduce::all_reduce() {
  const std::size_t chunks = (input_.size() + cut_.chunk_bytes - 1) / cut_.chunk_bytes;
  for (std::size_t step = 0; step < chunks + 2; ++step) {
    if (step < chunks) offer(step);
    if (step >= 1 && step - 1 < chunks) sum(step - 1);
    if (step >= 2 && cut_.two_shots) collect(step - 2);
  }
  done_ += chunks;
}

void BareAllReduce::barrier() {
  const std::uint64_t number = ++barriers_;
  of(rank_).barriers.store(number, std::memory_order_release);
  for (int rank = 0; rank < size_; ++rank) wait_for(of(rank).barriers, number);
}

void BareAllReduce::offer(std::size_t chunk) {
  const Extent whole = chunk_at(chunk);
  Slot& slot = of(rank_).inputs[(done_ + chunk) % depth];
  std::byte* const to = slot.data(whole.bytes);
  const Extent mine = cut_.two_shots ? part_of(whole, rank_) : Extent{whole.begin + whole.bytes, 0};
  const std::size_t before = mine.begin - whole.begin, after = before + mine.bytes;
  base::copy_bytes(to, &input_[whole.begin], before);
  if (after < whole.bytes)
    base::copy_bytes(to + after, &input_[whole.begin + after], whole.bytes - after);
  slot.chunk.store(done_ + chunk + 1, std::memory_order_release);
}

void BareAllReduce::sum(std::size_t chunk) {
  const Extent whole = chunk_at(chunk);
  const Extent mine = cut_.two_shots ? part_of(whole, rank_) : whole;
  sources_.clear();
  if (mine.bytes > 0) sources_.push_back(&input_[mine.begin]);
  for (int step = 1; step < size_; ++step) {
    Slot& slot = of((rank_ + step) % size_).inputs[(done_ + chunk) % depth];
    wait_for(slot.chunk, done_ + chunk + 1);
    sources_.push_back(slot.data(whole.bytes) + (mine.begin - whole.begin));
  }
  if (mine.bytes > 0)
    sum_floats(&output_[mine.begin], sources_.data(), sources_.size(), mine.bytes / sizeof(float));
  if (!cut_.two_shots) return;
  Slot& slot = of(rank_).sums[(done_ + chunk) % depth];
  if (mine.bytes > 0) base::copy_bytes(slot.data(mine.bytes), &output_[mine.begin], mine.bytes);
  slot.chunk.store(done_ + chunk + 1, std::memory_order_release);
}

void BareAllReduce::collect(std::size_t chunk) {
  const Extent whole = chunk_at(chunk);
  for (int step = 1; step < size_; ++step) {
    const int other = (rank_ + step) % size_;
    const Extent theirs = part_of(whole, other);
    Slot& slot = of(other).sums[(done_ + chunk) % depth];
    wait_for(slot.chunk, done_ + chunk + 1);
    if (theirs.bytes > 0)
      base::copy_bytes(&output_[theirs.begin], slot.data(theirs.bytes), theirs.bytes);
  }
}

BareAllReduce::Shared& BareAllReduce::of(int rank) const {
  return ranks_[rank];
}

BareAllReduce::Extent BareAllReduce::chunk_at(std::size_t chunk) const {
  const std::size_t begin = chunk * cut_.chunk_bytes;
  return {begin, std::min(cut_.chunk_bytes, input_.size() - begin)};
}

// Parts are whole lines, except the last that has bytes.
BareAllReduce::Extent BareAllReduce::part_of(const Extent& whole, int rank) const {
  const std::size_t lines = (whole.bytes + line_bytes - 1) / line_bytes;
  const std::size_t ranks = static_cast<std::size_t>(size_);
  const std::size_t each = (lines + ranks - 1) / ranks * line_bytes;
  const std::size_t begin = std::min(static_cast<std::size_t>(rank) * each, whole.bytes);
  return {whole.begin + begin, std::min(each, whole.bytes - begin)};
}

template <class Atomic>
void BareAllReduce::wait_for(const Atomic& value, std::uint64_t least) const {
  Clock::time_point begin{};
  const int turns = yields_ ? yields_between_looks : spins_between_looks;
  for (int turn = 1; value.load(std::memory_order_acquire) < least; ++turn) {
    if (yields_) {
      ::sched_yield();
    } else {
      base::pause_processor();
    }
    if (turn < turns) continue;
    turn = 0;
    const auto now = Clock::now();
    if (begin == Clock::time_point{}) begin = now;
    look_(now - begin);
  }
}

}  // namespace rondo::tools
