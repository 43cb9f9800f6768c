// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/shared_memory.h"
#include "tools/ceilings/bare_all_reduce.h"
#include "tools/ceilings/ceiling.h"

namespace rondo::tools {

// The ceiling of an all-reduce on ordinary memory between ranks on one host: the bare all-reduce of
// f32 sums (bare_all_reduce.h), over memory of its own. Rank 0 makes the memory, and the others
// open it in /proc, which needs one PID namespace and one user. Ranks that wait notice a rank that
// has ended, or that does nothing for ten seconds. Then measure() returns 0 for good, or throws if
// the communicator has failed too.
class CoreCeiling final : public Ceiling {
 public:
  // `from` and `to` are the buffers of the benchmark: both have the same size, on all ranks.
  // measure() overwrites them. fresh: the row writes its buffers anew before each iteration, so
  // measure() does too. All ranks call it together. Throws only when the communicator fails.
  CoreCeiling(Communicator& communicator, std::span<std::byte> from, std::span<std::byte> to,
              bool fresh);
  CoreCeiling(const CoreCeiling&) = delete;
  CoreCeiling& operator=(const CoreCeiling&) = delete;
  ~CoreCeiling() override;

  // Whether all ranks have mapped the memory and none has given up: the same on all ranks.
  bool usable() const noexcept { return usable_; }
  // Returns the bus bandwidth of the median of some calls, each timed like an iteration of a row:
  // after a barrier, at the slowest rank. They take about a tenth of a second, or five calls.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  struct Announcement;
  struct Head;
  std::vector<Announcement> exchange(const Announcement& mine);
  void offer(Announcement& mine);
  void open(const Announcement& first);
  void agree();
  std::vector<double> times_of(std::size_t bytes);
  void look(std::chrono::steady_clock::duration waited);
  Head& head() const;

  Communicator& communicator_;
  const std::span<std::byte> from_, to_;
  const bool fresh_;
  std::vector<::pid_t> processes_;  // of all ranks
  base::FileDescriptor file_;       // of rank 0, until the others have opened it
  base::Mapping memory_;
  std::unique_ptr<BareAllReduce> bare_;
  std::chrono::steady_clock::time_point next_look_{};
  std::size_t prepared_bytes_ = 0;
  double prepared_seconds_ = 0;
  bool usable_ = false;
  std::string trouble_;
};

}  // namespace rondo::tools
