// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <rondo/export.h>

namespace rondo {

// A key-value store that the program already has (a framework's store, an MPI broadcast). Rank 0
// puts one short value, its address and the job's nonce; the other ranks get it. Connections
// between ranks do not use the store. Its functions run on the thread that calls
// Communicator::connect, never concurrently. Keys and values are printable text. An exception of
// put or get ends connect(), except a deadline_exceeded of get.
class RONDO_API Store {
 public:
  virtual ~Store() = default;
  // Makes the value visible to get() on all ranks. Replaces the value of an earlier job.
  virtual void put(std::string_view key, std::string_view value) = 0;
  // Waits until the key is there and returns its value. Throws Error(deadline_exceeded) if the key
  // is not there by the deadline; connect() then reports that rank 0 was not found.
  virtual std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) = 0;
  // Removes a value. Rank 0 calls this when all ranks have come, before any of them knows it, so
  // that the ranks of the next communicator wait for its value and do not find this one. It may do
  // nothing and may throw.
  virtual void remove(std::string_view /*key*/) {}
};

}  // namespace rondo
