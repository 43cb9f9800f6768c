// SPDX-License-Identifier: Apache-2.0
//
// Engines of N ranks over the mem transport, without a communicator. A rank without an observer
// takes its own view of a failure as the cause.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/engine/engine.h"
#include "transports/mem/mem.h"

namespace rondo {

class Cluster {
 public:
  static constexpr std::size_t recorded = 4;

  explicit Cluster(int size, const mem::MemFaults& faults = {}, bool checksum = false,
                   bool reproducible = false, engine::EngineObserver* observer_of_rank_0 = nullptr)
      : fabric_(size, faults, 1), failures_(static_cast<std::size_t>(size)) {
    std::vector<transports::Blob> addresses;
    for (int rank = 0; rank < size; ++rank) {
      transports_.push_back(fabric_.endpoint(rank));
      addresses.push_back(transports_.back()->address());
    }
    for (int rank = 0; rank < size; ++rank) {
      transports::Transport* const own = transports_[static_cast<std::size_t>(rank)].get();
      own->start(addresses, 1);
      std::vector<transports::Transport*> routes(static_cast<std::size_t>(size), own);
      routes[static_cast<std::size_t>(rank)] = nullptr;
      engine::EngineOptions options;
      options.rank = rank;
      options.size = size;
      options.ranks_per_core = 2;
      options.checksum = checksum;
      options.reproducible = reproducible;
      options.transport = "mem";
      options.recorded = recorded;
      std::vector<engine::Snapshot>& failures = failures_[static_cast<std::size_t>(rank)];
      options.on_failure = [&failures](const engine::Snapshot& seen) {
        failures.push_back(seen);
        return " (noted " + std::to_string(failures.size()) + ")";
      };
      engines_.push_back(std::make_unique<engine::Engine>(
          options, std::move(routes), std::vector<transports::Transport*>{own},
          rank == 0 ? observer_of_rank_0 : nullptr));
    }
  }

  mem::MemFabric& fabric() { return fabric_; }
  transports::Transport& transport(int rank) {
    return *transports_[static_cast<std::size_t>(rank)];
  }
  // By rank: what its engine knew when it failed.
  const std::vector<engine::Snapshot>& failures(int rank) const {
    return failures_[static_cast<std::size_t>(rank)];
  }
  engine::Engine& operator[](int rank) { return *engines_[static_cast<std::size_t>(rank)]; }

 private:
  mem::MemFabric fabric_;
  std::vector<std::vector<engine::Snapshot>> failures_;
  std::vector<std::unique_ptr<transports::Transport>> transports_;
  std::vector<std::unique_ptr<engine::Engine>> engines_;
};

// A call on f32 with small segments.
inline schedules::Call make_call(Collective operation, schedules::Algorithm algorithm,
                                 std::vector<float>& in, std::vector<float>& out, std::size_t count,
                                 int root = 0) {
  schedules::Call call;
  call.signature = {
      operation, DType::f32, ReduceOp::sum, algorithm, static_cast<std::uint32_t>(root), count,
      1.0,       0};
  call.in = reinterpret_cast<const std::byte*>(in.data());
  call.out = reinterpret_cast<std::byte*>(out.data());
  call.in_bytes = call.out_bytes = count * sizeof(float);
  call.segment_elements = 64;
  call.depth = 3;
  call.time_limit = std::chrono::seconds{20};
  return call;
}

}  // namespace rondo
