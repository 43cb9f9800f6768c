// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/sizes.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include <rondo/error.h>

#include "base/text.h"
#include "transports/rdma/messages.h"
#include "transports/rdma/path.h"
#include "transports/rdma/regions.h"
#include "transports/rdma/send_pool.h"

namespace rondo::rdma {
namespace {

constexpr std::array<std::uint32_t, 3> slot_sizes = {64u << 10, 32u << 10, 16u << 10};

// True when this process may lock as much memory as it likes, whatever its limit is.
bool may_lock_all() {
  constexpr unsigned ipc_lock = 14;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("CapEff:"))
      return (std::strtoull(line.c_str() + 7, nullptr, 16) >> ipc_lock & 1) != 0;
  return ::geteuid() == 0;
}

// Returns what this process may lock; no value: as much as it likes.
std::optional<std::uint64_t> lockable_bytes() {
  rlimit limit{};
  if (may_lock_all() || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

std::uint64_t needed_bytes(int ranks, std::uint32_t slot_bytes, std::size_t devices) noexcept {
  std::uint64_t slots = 0;
  for (const transports::Lane lane : transports::link_lanes) slots += slot_count(lane, slot_bytes);
  const std::uint64_t link = slots * (slot_bytes + slot_head_bytes) +
                             transports::link_lane_count * Path::receive_depth * control_bytes;
  return devices * (SendPool::bytes + static_cast<std::uint64_t>(std::max(0, ranks - 1)) * link);
}

}  // namespace

// Twice what the largest small frame needs, or more: a receiver tells of consumed slots when they
// are half of all, and a small frame must find room at once.
std::uint32_t slot_count(transports::Lane lane, std::uint32_t slot_bytes) noexcept {
  const std::uint32_t least = lane == transports::Lane::bulk ? 8 : 4;
  return std::max(least, static_cast<std::uint32_t>(2 * transports::eager_bytes / slot_bytes));
}

std::uint32_t fitting_slot_bytes(int ranks, std::size_t devices) {
  const auto most = lockable_bytes();
  std::uint64_t needed = 0;
  for (const std::uint32_t size : slot_sizes) {
    needed = needed_bytes(ranks, size, devices);
    if (!most || needed <= *most) return size;
  }
  throw Error(Errc::system, fmt::format("{} ranks need {} of locked memory{}", ranks,
                                        base::describe_bytes(needed), describe_lock_limit()));
}

// One path for each urgent link, and one for each pair of ports and wanted connection for the
// others.
std::size_t completion_entries(const Devices& devices, std::size_t device, int ranks,
                               unsigned connections) noexcept {
  const auto ports =
      static_cast<std::size_t>(std::ranges::count(devices.ports(), device, &Port::device_index));
  const std::size_t wide = std::min(most_paths, ports * connections);
  const auto peers = static_cast<std::size_t>(std::max(ranks - 1, 1));
  return peers * (2 * wide + 1) * (Path::send_depth + Path::receive_depth);
}

}  // namespace rondo::rdma
