// SPDX-License-Identifier: Apache-2.0
//
// Ceilings of bus bandwidth: the traffic of a ring, in rounds.
#pragma once

#include <rondo/communicator.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/ceilings/ceiling.h"
#include "tools/measure/operation.h"

namespace rondo::tools {

// Which of its two links a rank uses so that the links that an operation loads are busy at once.
// For most operations all ranks send to their right neighbour and receive from their left one.
// Broadcast and reduce leave out the link that closes the ring. For gather and scatter rank 0 sends
// to rank 1. Messages between pairs go to the peer, which is the neighbour on both sides.
struct Directions {
  bool sends = true, receives = true;
  int left = 0, right = 0;  // the neighbours
};
Directions directions_of(Operation operation, int rank, int ranks);

// One kind of streams around the ring of ranks.
class Ring {
 public:
  virtual ~Ring() = default;
  // Moves so many bytes over those links of this rank that the directions name. Throws when it
  // cannot, or not by the deadline.
  virtual void move(const Directions& directions, std::size_t bytes,
                    std::chrono::steady_clock::time_point deadline) = 0;
};

// The ceiling of bus bandwidth over one or several rings: the best rate of all, in one direction,
// or of messages between pairs that of all their streams. Rounds are timed like a row: after a
// barrier, at the slowest rank. A failure makes it useless for good: measure() returns 0.
class RingCeiling final : public Ceiling {
 public:
  // lost: why it failed, on a rank that only knows that another one did.
  RingCeiling(Communicator& communicator, const Options& options, Operation operation,
              std::string_view lost);
  const Directions& directions() const noexcept { return directions_; }
  // Does a step of its own on each rank. Returns whether it has succeeded on all of them; otherwise
  // no ring can be added.
  bool together(const std::function<void()>& step);
  // A ring that is connected on all ranks.
  void add(std::unique_ptr<Ring> ring);

  double measure(const Row& row) override;
  bool usable() const noexcept override { return usable_; }
  std::string trouble() const override { return trouble_; }

 private:
  struct Stream {
    std::unique_ptr<Ring> ring;
    std::size_t bytes = 0;  // of a long round; 0 before the first
  };
  double best_of(Stream& stream, std::size_t moved);
  double round(Ring& ring, std::size_t bytes);

  Communicator& communicator_;
  const Operation operation_;
  const Directions directions_;
  const std::chrono::nanoseconds patience_;
  const std::string_view lost_;
  std::vector<Stream> streams_;
  bool usable_ = false;
  std::string trouble_;
};

}  // namespace rondo::tools
