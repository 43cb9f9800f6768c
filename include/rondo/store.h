// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <rondo/export.h>

namespace rondo {

// A key-value store that the embedding program already has (a framework's store, an MPI broadcast).
// Rondo puts one short value, rank 0's address and the job's nonce, and reads it on the other
// ranks; its control connections are its own. Called from the thread that calls
// Communicator::connect, never concurrently. Keys and values are printable text.
class RONDO_API Store {
 public:
  virtual ~Store() = default;
  virtual void put(std::string_view key, std::string_view value) = 0;
  // Waits until the key is there; throws Error(deadline_exceeded) when it is not by then.
  virtual std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) = 0;
};

}  // namespace rondo
