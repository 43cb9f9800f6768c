// SPDX-License-Identifier: Apache-2.0
//
// How ranks find each other. Rank 0 listens; the others learn its address from a URL, a shared file
// or the program's store, connect, prove the secret, and hand in a record; when all are there
// everybody gets all records.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/options.h>

#include "base/handshake.h"
#include "collectives/engine/failure.h"
#include "lib/control/control.h"
#include "transports/transport.h"

namespace rondo::rendezvous {

struct Joined {
  std::uint64_t job = 0;                      // fresh for each communicator, from rank 0
  std::vector<transports::Blob> records;      // by rank
  std::unique_ptr<control::Control> control;  // null when alone
};

// Options with rank, size, rendezvous and secret resolved (env:// replaced by what the launcher's
// variables mean).
struct Place {
  int rank = 0;
  int size = 1;
  std::string url;     // tcp:// or file://; empty with a store or when alone
  std::string secret;  // the job's; of ranks that were given none: that of their user on this host
  bool this_host_only = false;  // the secret is one that other hosts cannot know
  std::string source;  // "torchrun", "Open MPI", "options" ... for messages and `rondo info`
  // Agreed before, in the communicator that this one is a part of.
  std::optional<plan::CostConstants> constants;
  // One point in time for all of connect(): joining, sharing memory and measuring together.
  base::TimePoint deadline = base::TimePoint::max();
  std::string group;  // which communicator of the job: empty, or "/1.0/2.7": by splits and colors

  // Of data connections: RONDO_INTEGRITY.
  base::Protection between_hosts = base::Protection::headers;
  bool protect_all = false;  // for tests: connections within a host as well

  // Without a job secret only ranks of this host can meet.
  bool stays_here() const noexcept { return secret.empty() || this_host_only; }
  // Terms for the handshake of a connection: a connection that leaves this host is protected.
  base::Terms terms(bool within_host) const noexcept {
    return {this_host_only ? base::SecretOf::user : base::SecretOf::job,
            within_host && !protect_all ? base::Protection::none : base::Protection::headers};
  }
};
Place resolve_place(const Options& options);

// Joins by place.deadline. Throws Error with the ranks that are missing, came twice or disagree
// (about size, version or secret), the same on every rank that did come. Records may be up to 64
// KiB each.
Joined join(const Place& place, const Options& options, const transports::Blob& record);

// For a rank that cannot join. Tells the others at the rendezvous, so that they end at once, and
// returns the cause that all ranks get: "rank 2 cannot take part: WHY". Takes failure_grace at
// most.
engine::Failure fail_to_join(const Place& place, const Options& options,
                             const engine::Failure& failure);
inline constexpr milliseconds failure_grace{5'000};

}  // namespace rondo::rendezvous
