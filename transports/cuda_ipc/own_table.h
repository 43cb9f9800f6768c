// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "device/driver.h"
#include "transports/cuda_ipc/table.h"
#include "transports/host/passing.h"
#include "transports/transport.h"

namespace rondo::cuda_ipc {

// The table of this rank, and what the others say in theirs about its exports.
//
// Threads: show(), withdraw() and is_everywhere() run under the lock of Exports. The others are
// thread-safe, and await_released() sleeps. Nothing fails but the constructor.
class OwnTable {
 public:
  // The contents of an entry beside its generation.
  struct Shown {
    std::uint64_t bytes = 0;
    device::Uuid gpu{};
    device::IpcMemoryHandle handle{};
    std::uint64_t name = 0;  // 0: allocated
  };
  struct Place {
    std::uint32_t slot = most_exports, generation = 0;  // most_exports: not shown
  };

  // windows: those of the host. passing: used until the last wait has ended. Throws Error(system).
  OwnTable(const transports::Windows& windows, const host::DescriptorPassing& passing, int rank);
  OwnTable(const OwnTable&) = delete;
  OwnTable& operator=(const OwnTable&) = delete;

  const std::vector<int>& ranks() const noexcept { return ranks_; }
  std::size_t place() const noexcept { return place_; }  // of this rank among ranks()
  const std::vector<Table*>& tables() const noexcept { return tables_; }
  // Not shown if there is no room.
  Place show(const Shown& shown) noexcept;
  // unsettled: others may still use the memory for operations that have failed here.
  void withdraw(const Place& place, bool unsettled) noexcept;
  // Whether all others have mapped it.
  bool is_everywhere(const Place& place) const noexcept;
  // Waits until no living rank has open what has been withdrawn, but neither beyond `until` nor
  // beyond the end of waits. Returns the places of the ranks that have it open at the end, a bit
  // for each.
  std::uint64_t await_released(const Place& place, base::TimePoint until) const noexcept;
  void end_waits(base::TimePoint until) noexcept { waits_end_ = until; }

 private:
  const host::DescriptorPassing& passing_;
  std::vector<int> ranks_;
  std::size_t place_ = 0;
  std::vector<Table*> tables_;  // by place
  std::uint32_t last_generation_ = 0;
  std::atomic<base::TimePoint> waits_end_{base::TimePoint::max()};
};

}  // namespace rondo::cuda_ipc
