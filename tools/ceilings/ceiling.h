// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "tools/ceilings/rounds.h"
#include "tools/measure/row.h"

namespace rondo::tools {

// Measures what the machine reaches without Rondo, to compare a row with. The benchmark measures it
// before and after each row, because the speed of a machine changes within minutes.
class Ceiling {
 public:
  virtual ~Ceiling() = default;
  // Returns GB/s to compare a row of this size and traffic with; 0 when it could not be measured.
  // All ranks call it together and get the same result. Throws when the communicator fails.
  virtual double measure(const Row& row) = 0;
  // Why it could not be measured, as far as this rank knows.
  virtual const std::string& trouble() const noexcept = 0;
};

// The ceiling for bus bandwidth: what plain TCP sockets between these ranks reach at once, over the
// links that the operation loads (directions_of). It measures once with socket buffers that the
// kernel adapts (better between hosts), and once with small ones that stay in the cache (better
// within a host). A socket that fails makes it useless for good: measure() returns 0.
class SocketCeiling final : public Ceiling {
 public:
  // Connects the ring at the addresses that the communicator uses. All ranks call it together.
  // A socket that fails does not throw: trouble() says why.
  SocketCeiling(Communicator& communicator, const Options& options, Operation operation);
  SocketCeiling(const SocketCeiling&) = delete;
  SocketCeiling& operator=(const SocketCeiling&) = delete;
  ~SocketCeiling() override;

  // Returns the rate in one direction, of messages between pairs that of all their streams, in
  // rounds that are timed like a row: after a barrier, at the slowest rank.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  struct Ring;
  bool connect(Ring& ring, const Options& options);
  double round(Ring& ring, std::size_t bytes);

  Communicator& communicator_;
  Operation operation_;
  const Directions directions_;
  const std::chrono::nanoseconds patience_;
  std::unique_ptr<Ring> adapting_, bounded_;
  bool usable_ = false;
  std::string trouble_;
};

}  // namespace rondo::tools
