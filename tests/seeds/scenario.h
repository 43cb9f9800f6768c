// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "support/ranks.h"
#include "support/trial.h"

namespace rondo::testing {

// A seed determines a scenario: the communicator, the faults of its network, and the calls that
// every rank makes.
struct Scenario {
  enum class Kind {
    slow,
    cut,
    closed,
    flipped
  };  // slow: late, stalled and in pieces, but nothing is lost

  explicit Scenario(std::uint64_t seed);
  std::string describe() const;

  std::uint64_t seed;
  Kind kind;
  Setup setup;
  std::size_t in_flight = 1;
  std::vector<Case> calls;
};

// How one call ended on one rank.
struct Ending {
  std::error_code code;
  std::string message;
  std::string wrong;  // with the result or the memory around it
};
using Endings = std::vector<std::vector<Ending>>;  // by rank, by call

// Runs all ranks until each call has ended.
Endings play(const Scenario& scenario);
// Returns the first result that must not happen; empty when all are allowed.
std::string judge(const Scenario& scenario, const Endings& endings);

}  // namespace rondo::testing
