// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <memory>
#include <string>

namespace rondo::tools {

// What the machine gives without a library: the measure that Rondo is held against, taken in the same run, before and after it.
class Ceiling {
 public:
  virtual ~Ceiling() = default;
  // GB/s; 0 when it could not be measured. Called by all ranks together; the same result on all.
  virtual double measure() = 0;
  // Why it could not be measured, as far as this rank knows.
  virtual const std::string& trouble() const noexcept = 0;
};

// For bus bandwidth: what plain TCP sockets give between these ranks: all at once stream to their right neighbour and receive from their left one,
// which is the traffic of a ring. Once with socket buffers that the kernel adapts, the better choice between hosts, once with small
// ones that stay in the cache, the better choice within a host.
class SocketCeiling final : public Ceiling {
 public:
  // Connects the ring, from and to the addresses over which the communicator works. Called by all ranks together.
  SocketCeiling(Communicator& communicator, const Options& options);
  SocketCeiling(const SocketCeiling&) = delete;
  SocketCeiling& operator=(const SocketCeiling&) = delete;
  ~SocketCeiling() override;

  // In one direction at the slowest rank, the best of some rounds, in about half a second.
  double measure() override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  struct Ring;
  bool connect(Ring& ring, const Options& options);
  double measure(Ring& ring);
  double round(Ring& ring, std::size_t bytes);

  Communicator& communicator_;
  std::unique_ptr<Ring> adapting_, bounded_;
  bool usable_ = false;
  std::string trouble_;
};

}  // namespace rondo::tools
