// SPDX-License-Identifier: Apache-2.0
//
// One rank of an all-reduce on ordinary memory over shared memory that does what each such
// all-reduce must, and nothing else: a rank copies what the others need of its input into shared
// memory, they read it while it is in a cache, and sum. It has no protocol, no safety and no sleep,
// so its time is what the way between the cores costs. It is no library: MEMORY is the descriptor
// of an empty memory file that all ranks have inherited.
//
//   peer_ceiling CONTROL RANK SIZE MEMORY
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <system_error>

#include "base/cores.h"
#include "base/processor.h"
#include "collectives/kernels/reduce.h"
#include "library.h"
#include "transports/host/shared_memory.h"

namespace {

constexpr std::size_t line_bytes = 64;
// The slots of a rank are used in turns. A rank that offers chunk n has seen every other rank offer
// chunk n - 2, which each does after its sum of chunk n - 4. A rank that writes its sum of chunk n
// has seen them offer chunk n, which each does after it has collected chunk n - 3.
constexpr std::size_t depth = 4;
constexpr std::size_t largest_chunk = std::size_t{256} << 10;

// One chunk of a rank, and the number of that chunk once it is complete. Chunks are numbered from 1
// on, over all calls. Data that fits shares the line of the number.
struct alignas(line_bytes) Slot {
  std::atomic<std::uint64_t> chunk;
  std::array<std::byte, line_bytes - sizeof(chunk)> inside;
  std::array<std::byte, largest_chunk> beside;

  std::byte* data(std::size_t bytes) noexcept {
    return bytes <= inside.size() ? inside.data() : beside.data();
  }
};

struct alignas(line_bytes) Shared {
  std::atomic<std::uint64_t> barriers;  // that this rank has reached
  std::atomic<std::size_t> plan;        // rank 0's
  std::array<Slot, depth> inputs, sums;
};

// How a call is cut. In one shot every rank sums everything. In two shots rank r sums part r of
// each chunk, and the others copy the sum.
struct Plan {
  bool two_shots;
  std::size_t chunk_bytes;
};
constexpr std::array<Plan, 6> plans = {{{false, std::size_t{16} << 10},
                                        {false, std::size_t{64} << 10},
                                        {true, std::size_t{16} << 10},
                                        {true, std::size_t{64} << 10},
                                        {true, std::size_t{128} << 10},
                                        {true, std::size_t{256} << 10}}};
constexpr int trials = 7;  // of each plan, for each size

struct Part {
  std::size_t begin, bytes;
};

rondo::host::Mapping map(int memory, int ranks) {
  const std::size_t bytes = static_cast<std::size_t>(ranks) * sizeof(Shared);
  // Every rank sets the same size. The file is full of zeros, with which all values begin.
  if (::ftruncate(memory, static_cast<off_t>(bytes)) != 0)
    throw std::system_error(errno, std::system_category(), "cannot make shared memory");
  return {memory, bytes, rondo::host::Mapping::Access::write};
}

class CeilingRank final : public rondo::compare::Library {
 public:
  CeilingRank(int rank, int size, int memory)
      : rank_(rank),
        size_(size),
        yields_(size > rondo::base::usable_cores()),
        memory_(map(memory, size)),
        ranks_(reinterpret_cast<Shared*>(memory_.data()), static_cast<std::size_t>(size)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> algorithms() const override { return {"default"}; }
  bool in_place(std::string_view) const override { return false; }
  std::span<float> allocate(std::string_view, std::size_t) override { return {}; }

  // Chooses the plan: the one with the fastest median on rank 0.
  void prepare(std::string_view, std::span<float> input, std::span<float> output) override {
    input_ = std::as_bytes(input);
    output_ = std::as_writable_bytes(output);
    std::array<std::chrono::steady_clock::duration, plans.size()> medians;
    for (std::size_t number = 0; number < plans.size(); ++number) {
      plan_ = plans[number];
      medians[number] = median_time();
    }
    if (rank_ == 0)
      ranks_[0].plan =
          static_cast<std::size_t>(std::ranges::min_element(medians) - medians.begin());
    barrier();
    plan_ = plans[ranks_[0].plan];
    barrier();
  }

  // Chunk by chunk, so that all of it stays in a cache. A rank offers the next chunk before it
  // waits for the others' part of this one.
  void all_reduce() override {
    const std::size_t chunks = (input_.size() + plan_.chunk_bytes - 1) / plan_.chunk_bytes;
    for (std::size_t step = 0; step < chunks + 2; ++step) {
      if (step < chunks) offer(step);
      if (step >= 1 && step - 1 < chunks) sum(step - 1);
      if (step >= 2 && plan_.two_shots) collect(step - 2);
    }
    done_ += chunks;
  }

  void barrier() override {
    const std::uint64_t number = ++barriers_;
    of(rank_).barriers.store(number, std::memory_order_release);
    for (const Shared& rank : ranks_) wait_for(rank.barriers, number);
  }

  void progress() override {}  // what another rank needs is in its slot when a call returns

 private:
  std::chrono::steady_clock::duration median_time() {
    std::array<std::chrono::steady_clock::duration, trials> times;
    for (auto& time : times) {
      barrier();
      const auto start = std::chrono::steady_clock::now();
      all_reduce();
      barrier();
      time = std::chrono::steady_clock::now() - start;
    }
    std::ranges::nth_element(times, times.begin() + trials / 2);
    return times[trials / 2];
  }

  void offer(std::size_t chunk) {
    const Part whole = chunk_at(chunk);
    Slot& slot = of(rank_).inputs[(done_ + chunk) % depth];
    std::byte* const to = slot.data(whole.bytes);
    const Part mine = plan_.two_shots ? part_of(whole, rank_) : Part{whole.begin + whole.bytes, 0};
    const std::size_t before = mine.begin - whole.begin, after = before + mine.bytes;
    std::memcpy(to, &input_[whole.begin], before);
    if (after < whole.bytes)
      std::memcpy(to + after, &input_[whole.begin + after], whole.bytes - after);
    slot.chunk.store(done_ + chunk + 1, std::memory_order_release);
  }

  void sum(std::size_t chunk) {
    const Part whole = chunk_at(chunk);
    const Part mine = plan_.two_shots ? part_of(whole, rank_) : whole;
    sources_.clear();
    if (mine.bytes > 0) sources_.push_back(&input_[mine.begin]);
    for (int step = 1; step < size_; ++step) {
      Slot& slot = of((rank_ + step) % size_).inputs[(done_ + chunk) % depth];
      wait_for(slot.chunk, done_ + chunk + 1);
      sources_.push_back(slot.data(whole.bytes) + (mine.begin - whole.begin));
    }
    if (mine.bytes > 0)
      add_(&output_[mine.begin], sources_.data(), sources_.size(), mine.bytes / sizeof(float), {});
    if (!plan_.two_shots) return;
    Slot& slot = of(rank_).sums[(done_ + chunk) % depth];
    if (mine.bytes > 0) std::memcpy(slot.data(mine.bytes), &output_[mine.begin], mine.bytes);
    slot.chunk.store(done_ + chunk + 1, std::memory_order_release);
  }

  void collect(std::size_t chunk) {
    const Part whole = chunk_at(chunk);
    for (int step = 1; step < size_; ++step) {
      const int other = (rank_ + step) % size_;
      const Part theirs = part_of(whole, other);
      Slot& slot = of(other).sums[(done_ + chunk) % depth];
      wait_for(slot.chunk, done_ + chunk + 1);
      if (theirs.bytes > 0)
        std::memcpy(&output_[theirs.begin], slot.data(theirs.bytes), theirs.bytes);
    }
  }

  Shared& of(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  Part chunk_at(std::size_t chunk) const {
    const std::size_t begin = chunk * plan_.chunk_bytes;
    return {begin, std::min(plan_.chunk_bytes, input_.size() - begin)};
  }

  // Parts are whole lines, except the last that has bytes.
  Part part_of(const Part& whole, int rank) const {
    const std::size_t lines = (whole.bytes + line_bytes - 1) / line_bytes;
    const std::size_t ranks = static_cast<std::size_t>(size_);
    const std::size_t each = (lines + ranks - 1) / ranks * line_bytes;
    const std::size_t begin = std::min(static_cast<std::size_t>(rank) * each, whole.bytes);
    return {whole.begin + begin, std::min(each, whole.bytes - begin)};
  }

  // Without a deadline: the harness ends this process when the driver's has passed.
  void wait_for(const std::atomic<std::uint64_t>& value, std::uint64_t least) const {
    while (value.load(std::memory_order_acquire) < least) {
      if (yields_) {
        ::sched_yield();
      } else {
        rondo::base::pause_processor();
      }
    }
  }

  const int rank_;
  const int size_;
  const bool yields_;
  const rondo::host::Mapping memory_;
  const std::span<Shared> ranks_;
  const rondo::kernels::ReduceFunction add_ =
      rondo::kernels::find_reduce(rondo::DType::f32, rondo::ReduceOp::sum);
  std::span<const std::byte> input_;
  std::span<std::byte> output_;
  Plan plan_ = plans[0];
  std::uint64_t barriers_ = 0;
  std::uint64_t done_ = 0;  // chunks of earlier calls
  std::vector<const std::byte*> sources_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "usage: " << argv[0]
              << " CONTROL RANK SIZE MEMORY (started by bench/peers/compare.py)\n";
    return 2;
  }
  return rondo::compare::run_rank(argv[1], [argv] {
    return std::make_unique<CeilingRank>(std::stoi(argv[2]), std::stoi(argv[3]),
                                         std::stoi(argv[4]));
  });
}
