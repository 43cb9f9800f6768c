// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/failure.h"
#include "collectives/operation/recorder.h"

namespace rondo::engine {

// Holds what an engine knows at one moment, for the dump.
struct Snapshot {
  base::TimePoint now;
  std::optional<operation::Failure> failure;  // the cause, if the communicator has failed
  base::TimePoint failed{};                   // when
  operation::RankStatus status;
  // Operations under way, then those that have ended, the newest first.
  std::vector<operation::Record> records;
  std::vector<operation::PeerView> peers;
};

}  // namespace rondo::engine
