// SPDX-License-Identifier: Apache-2.0
//
// The cores of a host and the ranks that share them. Each rank tells what it knows in its record,
// so the ranks of a communicator agree. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include <rondo/options.h>

#include "base/bytes.h"
#include "base/cores.h"

namespace rondo::lib {

// One rank's share of its host's cores, as it sees it when it joins.
struct CoreShare {
  base::ProcessorSet mask;  // where it may run
  // Where ranks of this host that are not in this communicator may run: the processors of the host
  // or its container.
  base::ProcessorSet host;
  int quota = 0;                  // of its control group, in thousandths of a core; 0: none
  std::uint64_t quota_group = 0;  // equal for ranks that share the quota
  int ranks_on_host = 0;          // over all communicators; 0: it knows only this one
};

// Reads this thread's mask and quota. The number of ranks is that of the options, else the
// launcher's. Throws Error(invalid_argument) if RONDO_LOCAL_SIZE is no number of ranks.
CoreShare find_core_share(const Options& options);

// share := mask:set host:set quota:u32 quota_group:u64 ranks_on_host:u32
// set   := words:u16 {bits:u64}*                ; at most 128 words, the lowest processor first
void put_core_share(base::Writer& writer, const CoreShare& share);
CoreShare get_core_share(base::Reader& reader);

// The cores that the ranks of one host have together.
struct HostCores {
  int cores = 1;  // that these ranks may use: all their masks together, but no more than the quotas
  int ranks = 1;  // that share the host's cores: at least those of this communicator
  base::ProcessorSet processors;  // where all those ranks may run, as far as these know
  // Rounded up: the larger of two numbers, that of this communicator alone and that of all ranks.
  int ranks_per_core = 1;
  // Ranks that spin use up a quota, because it is smaller than the number of ranks that share it,
  // and than the number of processors on which these may run.
  bool short_of_quota = false;

  // A rank that spins may keep another one from running.
  bool crowded() const noexcept { return ranks_per_core > 1; }
};
// shares: of the ranks of one host, at least one.
HostCores cores_of_host(std::span<const CoreShare> shares);

// Warns, once in a process and on the first rank of a host only, if the host is short of quota.
void warn_about_quota(const HostCores& cores);

}  // namespace rondo::lib
