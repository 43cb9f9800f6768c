// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <memory>
#include <string>

#include "tools/measure.h"

namespace rondo::tools {

// What the machine reaches without a library, to compare rows of Rondo with. Measured before and
// after each row, since machines have fast and slow minutes.
class Ceiling {
 public:
  virtual ~Ceiling() = default;
  // GB/s to compare such a row with (its size and what it moves); 0 when it could not be measured.
  // All ranks call it together and get the same result.
  virtual double measure(const Row& row) = 0;
  // Why it could not be measured, as far as this rank knows.
  virtual const std::string& trouble() const noexcept = 0;
};

// The ceiling for bus bandwidth: what plain TCP sockets reach between these ranks at once, over the
// links that the operation loads. For most operations all ranks send to their right neighbour and
// receive from their left one, the traffic of a ring. For broadcast and reduce the link that closes
// the ring is left out; for gather and scatter one rank sends to one other. Measured once with
// socket buffers that the kernel adapts (better between hosts) and once with small ones that stay
// in the cache (better within a host).
class SocketCeiling final : public Ceiling {
 public:
  // Connects the ring, from and to the addresses over which the communicator works. Called by all
  // ranks together.
  SocketCeiling(Communicator& communicator, const Options& options, Collective operation);
  SocketCeiling(const SocketCeiling&) = delete;
  SocketCeiling& operator=(const SocketCeiling&) = delete;
  ~SocketCeiling() override;

  // In one direction: the best of a long round and of some that move as much as the row, in about a
  // fifth of a second. A round is timed like a row: from a barrier on, at the slowest rank. Short
  // rounds may be faster, because a busy machine disturbs them less.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  struct Ring;
  bool connect(Ring& ring, const Options& options);
  double measure(Ring& ring, std::size_t moved);
  double round(Ring& ring, std::size_t bytes);

  Communicator& communicator_;
  Collective operation_;
  bool sends_, receives_;
  std::unique_ptr<Ring> adapting_, bounded_;
  bool usable_ = false;
  std::string trouble_;
};

}  // namespace rondo::tools
