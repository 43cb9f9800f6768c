// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <rondo/communicator.h>

namespace rondo {

// What to do when ranks do not divide the samples.
enum class Remainder : std::uint8_t {
  pad,    // the first samples of the epoch again, with weight 0, so that every rank has equally many
  drop,   // the last samples of the epoch are left out
  uneven  // some ranks have one sample fewer
};

struct SamplerOptions {
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same on all ranks
  Remainder remainder = Remainder::pad;
};

struct Sample {
  std::size_t index = 0;  // into the data set
  double weight =
      1;  // 1; 0 for one that was only padded: over all ranks the weights of an epoch add up to the samples in it
};

// Which samples of a data set this rank sees, in which order. Position p of an epoch's order belongs to rank p % size, so the k-th batch of b
// samples on each rank is, over all ranks, positions [k b size, (k+1) b size): what one process with batches of b * size sees. The order
// depends on seed and epoch alone, on every machine, and not on the number of ranks.
class RONDO_API ShardedSampler {
 public:
  // Throws Error(invalid_argument): rank outside size.
  ShardedSampler(std::size_t samples, int rank, int size, const SamplerOptions& options = {});
  ShardedSampler(std::size_t samples, const Communicator& communicator, const SamplerOptions& options = {});

  void set_epoch(std::uint64_t epoch);  // starts it from the beginning
  std::uint64_t epoch() const noexcept;
  std::size_t size() const noexcept;       // samples of this rank in an epoch
  std::size_t remaining() const noexcept;  // of them, those not yet taken
  // The next `most` samples or what is left; valid until the next call. Empty at the end of the epoch.
  std::vector<Sample> next(std::size_t most);

  // Where all ranks together stand, when all have taken equally many. A sampler of another number of ranks can go on from there.
  struct Position {
    std::uint64_t epoch = 0;
    std::uint64_t taken = 0;  // positions of the order that have been taken
  };
  Position position() const noexcept;
  void resume(
      const Position& position);  // throws Error(invalid_argument) for one that this data set does not have

 private:
  std::size_t samples_;
  int rank_, size_;
  SamplerOptions options_;
  Position start_;         // of the part of the epoch that this sampler deals
  std::size_t taken_ = 0;  // of this rank since then
  std::vector<std::size_t> order_;
};

}  // namespace rondo
