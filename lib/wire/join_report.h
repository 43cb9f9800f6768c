// SPDX-License-Identifier: Apache-2.0
//
// Describes which ranks came to a rendezvous and which did not. Thread-safe functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <set>
#include <string>
#include <vector>

#include "collectives/operation/failure.h"

namespace rondo::wire {

// "0.25 s", "30 s"
std::string describe_seconds(double seconds);

struct JoinReport {
  struct Doubled {
    std::uint32_t rank;
    std::string first, second;  // addresses
  };
  struct Disagreeing {
    std::uint32_t rank;
    std::uint32_t size;
    std::string address;
  };
  // A process that claimed a rank and was turned away, or closed its connection again.
  struct Turned {
    std::uint32_t rank;
    std::string address;
    std::string why;
  };

  int size = 0;
  std::vector<int> missing;
  std::vector<Doubled> doubled;
  std::vector<Disagreeing> disagreeing;
  std::vector<Turned> turned;
  std::set<std::string> other_hosts;  // addresses turned away because rank 0 has no job secret
  bool refused = false;               // every missing rank was turned away because of its secret
  std::size_t foreign = 0;            // connections that were not from Rondo
  std::string shortage;  // why rank 0 could not accept connections, the last time, and what to do

  // True if nothing that happens later can repair the join.
  bool hopeless() const noexcept { return !doubled.empty() || !disagreeing.empty(); }
};

// The failure that every rank that came gets. when: "within 30 s".
operation::Failure describe(const JoinReport& report, const std::string& url,
                            const std::string& when);

// The failure that the exception tells: of its own code if it is an Error, else Errc::system.
operation::Failure failure_of(const std::exception& error);
// "rank 2 could not connect: WHY".
std::string could_not_connect(int rank, const std::string& why);

}  // namespace rondo::wire
