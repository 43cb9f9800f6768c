// SPDX-License-Identifier: Apache-2.0
//
// Runs ranks as threads of this process, connects them over any transport, and says which of them
// failed and how. Catch's assertions work only on the main thread: a function on a rank throws
// instead (see expect), and run_ranks reports it.
#pragma once

#include <chrono>
#include <concepts>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <rondo/communicator.h>
#include <rondo/store.h>

#include "transports/mem/mem.h"

namespace rondo::testing {

// A store for ranks that share a process. Thread-safe.
class MemoryStore final : public Store {
 public:
  void put(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) override;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
};

// Throws std::runtime_error(message) unless good.
void expect(bool good, std::string_view message);
// For loops over many elements: the message is made only when it is needed.
template <std::invocable Message>
void expect(bool good, Message message) {
  if (!good) expect(false, std::string(message()));
}

// Calls function(rank) on a thread for each rank and waits for all. Throws std::runtime_error with
// the message of every rank that threw. When a rank has not ended by the limit, its thread cannot
// be stopped: run_ranks prints which ranks hang and what all threads do, and aborts the program.
void run_ranks(int size, std::string_view what, const std::function<void(int)>& function,
               std::chrono::seconds limit = std::chrono::seconds{120});

// A barrier for the ranks of a run. It can be used again. If a rank has failed and does not come,
// the others throw std::runtime_error after half of the limit of run_ranks. So the run ends, with
// the message of the failed rank. Thread-safe.
class RankBarrier {
 public:
  explicit RankBarrier(int size) : size_(size) {}
  void arrive_and_wait();

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
};

enum class Over { mem, tcp, shm, rdma };
std::string_view name_of(Over over) noexcept;

// How to make the communicators of a test. run_communicators sets rank, size and store of the
// options, and host and transports where other fields give them.
struct Setup {
  int size = 2;
  Over over = Over::mem;
  Options options = quick_options();
  std::vector<int> hosts;  // by rank, as the algorithms see them; empty: all ranks on one
  mem::MemFaults faults;
  std::uint64_t seed = 0;

  // Options with deadlines that a test can wait for.
  static Options quick_options();
};

// run_ranks, with a connected communicator for each rank. It is destroyed before the thread ends.
void run_communicators(const Setup& setup, std::string_view what,
                       const std::function<void(Communicator&, int)>& function,
                       std::chrono::seconds limit = std::chrono::seconds{120});

}  // namespace rondo::testing
