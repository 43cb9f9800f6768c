// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/communicator.h>

namespace rondo {

// What to do when ranks do not divide the samples.
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
  double weight = 1;  // 1; 0 for one that was only padded: over all ranks the weights of an epoch
                      // add up to the samples in it
};

// Which samples of a data set this rank sees, in which order. Position p of an epoch's order
// belongs to rank p % size, so the k-th batch of b samples on each rank is, over all ranks,
// positions [k b size, (k+1) b size): what one process with batches of b * size sees. The order
// depends on seed and epoch alone, on every machine, and not on the number of ranks: a shuffle by
// Fisher and Yates from the last place down, drawn without bias (Lemire 2019, ACM TOMACS 29/1) from
// splitmix64 (Steele, Lea, Flood 2014, OOPSLA).
//
// Calls that are alike on all ranks keep them in step: call next() with the same number equally
// often on each, also where Remainder::uneven leaves one of them with nothing.
class RONDO_API ShardedSampler {
 public:
  // Throws Error(invalid_argument): rank outside size, or samples beyond 2^62.
  ShardedSampler(std::size_t samples, int rank, int size, const SamplerOptions& options = {});
  ShardedSampler(std::size_t samples, const Communicator& communicator,
                 const SamplerOptions& options = {});

  void set_epoch(std::uint64_t epoch);  // starts it from the beginning
  std::uint64_t epoch() const noexcept;
  std::size_t size()
      const noexcept;  // samples of this rank in the epoch; after resume(), in the rest of it
  std::size_t remaining() const noexcept;  // of them, those not yet taken
  // The next `most` samples or what is left. Empty at the end of the epoch.
  std::vector<Sample> next(std::size_t most);

  // Where all ranks together stand: the same on each when all have made the same calls. A sampler
  // of any number of ranks, on the same data set with the same options, goes on from there: what it
  // deals are the samples that have not been dealt, in the same order, however few they are; what
  // is padded or dropped is then counted from them. At the end of an epoch, `taken` is the number
  // of samples also where some have been dropped: what follows is set_epoch(epoch + 1).
  struct Position {
    std::uint64_t epoch = 0;
    std::uint64_t taken = 0;  // positions of the order that have been taken
    bool operator==(const Position&) const = default;
  };
  Position position() const noexcept;
  void resume(const Position& position);  // throws Error(invalid_argument) for one that this data
                                          // set does not have

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
