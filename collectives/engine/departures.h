// SPDX-License-Identifier: Apache-2.0
//
// Ranks that have destroyed their communicators in order, and what they had finished by then. A
// collective that one of them has not called never ends.
//
// Threads: thread-bound to whoever holds the engine's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/operation/failure.h"
#include "collectives/operation/operation.h"

namespace rondo::engine {

class Departures {
 public:
  // finished: the rank's last operation in each lane.
  void add(int rank, const std::uint64_t (&finished)[lane_count]);
  // The failure of a collective that some rank had not called when it left. No value: there is no
  // such rank.
  std::optional<operation::Failure> without(const operation::CollectiveOperation& operation) const {
    return left_.empty() ? std::nullopt : find(operation);
  }

 private:
  struct Left {
    int rank;
    std::uint64_t finished[lane_count];
  };

  std::optional<operation::Failure> find(const operation::CollectiveOperation& operation) const;

  std::vector<Left> left_;
};

}  // namespace rondo::engine
