// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/communicator.h>

namespace rondo {

// How to deal the rest if the number of samples is no multiple of the number of ranks.
enum class Remainder : std::uint8_t {
  pad,   // the first samples of the epoch again, with weight 0, so that every rank has equally many
  drop,  // the last samples of the epoch are left out
  uneven  // some ranks have one sample fewer
};

struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on all ranks
  Remainder remainder = Remainder::pad;
};

struct Sample {
  std::size_t index = 0;  // into the data set
  // 0 for padding, otherwise 1: over all ranks the weights of an epoch add up to its samples.
  double weight = 1;
};

// Deals the samples of a data set to the ranks. Position p of an epoch's order belongs to rank
// p % size. So the k-th batches of b samples on all ranks are together positions
// [k b size, (k+1) b size): the k-th batch of one process with batches of b * size.
//
// The order depends on seed and epoch alone: not on the machine or the number of ranks. It is a
// Fisher-Yates shuffle from the last place down, drawn without bias (Lemire 2019, ACM TOMACS 29/1)
// from splitmix64 (Steele, Lea, Flood 2014, OOPSLA).
//
// All ranks must make the same calls: call next() with the same number equally often on each, also
// if Remainder::uneven leaves a rank without samples.
class RONDO_API ShardedSampler {
 public:
  // Throws Error(invalid_argument): rank outside size, or samples beyond 2^62.
  ShardedSampler(std::size_t samples, int rank, int size, const SamplerOptions& options = {});
  ShardedSampler(std::size_t samples, const Communicator& communicator,
                 const SamplerOptions& options = {});

  void set_epoch(std::uint64_t epoch);  // starts it from the beginning
  std::uint64_t epoch() const noexcept;
  // Samples of this rank in the epoch; after resume(), in the rest of it.
  std::size_t size() const noexcept;
  std::size_t remaining() const noexcept;  // of them, those not yet taken
  // Returns the next `most` samples or what is left. Empty at the end of the epoch.
  std::vector<Sample> next(std::size_t most);

  // How far all ranks together have come: the same on each if all have made the same calls. A
  // sampler with any number of ranks can resume there, on the same data set with the same options.
  // It deals the samples that have not been dealt, in the same order, and pads or drops at their
  // end. At the end of an epoch `taken` is the number of samples, also if some were dropped:
  // continue with set_epoch(epoch + 1).
  struct Position {
    std::uint64_t epoch = 0;
    std::uint64_t taken = 0;  // positions of the order that have been taken
    bool operator==(const Position&) const = default;
  };
  Position position() const noexcept;
  // Throws Error(invalid_argument) for a position beyond the end of this data set.
  void resume(const Position& position);

 private:
  std::size_t rounds() const noexcept;
  std::size_t index_at(std::size_t position) const;

  std::size_t samples_;
  std::size_t rank_, size_;
  SamplerOptions options_;
  Position start_;                  // of the part of the epoch that this sampler deals
  std::size_t taken_ = 0;           // rounds since then: each gives every rank one position
  std::vector<std::size_t> order_;  // of start_.epoch, once it is needed
};

}  // namespace rondo
