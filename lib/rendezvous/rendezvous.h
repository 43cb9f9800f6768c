// SPDX-License-Identifier: Apache-2.0
//
// How ranks find each other. Rank 0 listens. The others learn its address from a URL, a shared file
// or the program's store, connect, prove the secret and send a record. When all ranks have come,
// each gets the records of all. Thread-bound to the thread that connects.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/options.h>

#include "base/cores.h"
#include "base/handshake.h"
#include "collectives/operation/failure.h"
#include "lib/control/control.h"
#include "lib/settings/exchange.h"
#include "transports/transport.h"

namespace rondo::rendezvous {

struct Meeting;

struct Joined {
  std::uint64_t job = 0;                      // fresh for each communicator, from rank 0
  std::vector<transports::Blob> records;      // by rank
  std::unique_ptr<control::Control> control;  // null when alone
};

// The options rank, size, rendezvous and secret, resolved: env:// is replaced by what the
// launcher's variables mean.
struct Place {
  int rank = 0;
  int size = 1;
  std::string url;  // tcp:// or file://; empty with a store or when alone
  // A launcher's variables gave the URL, and other hosts may have another name for rank 0's host.
  bool from_several_hosts = false;
  std::string secret;           // the job's; if none is set: that of this user on this host
  bool this_host_only = false;  // other hosts cannot know the secret
  std::string source;  // "torchrun", "Open MPI", "options" ... for messages and `rondo info`
  // Not none: the launcher carries address and secret, and meet_by_launcher() fills them in.
  settings::ExchangeKind by_launcher = settings::ExchangeKind::none;
  std::shared_ptr<Meeting> meeting;
  // The planner's constants of the parent, for a split.
  std::optional<PlanConstants> constants;
  // Where the parent's ranks of this host may run, for a split.
  std::optional<base::ProcessorSet> host_processors;
  // One deadline for all of connect(): to join, share memory and measure.
  base::TimePoint deadline = base::TimePoint::max();
  std::string group;  // empty, or the numbers and colors of splits: "/1.0/2.7"
  // By rank here: its rank in the communicator that connect() made. Empty: the same.
  std::vector<int> ranks;

  // Protection of data connections between hosts: RONDO_INTEGRITY.
  base::Protection between_hosts = base::Protection::headers;
  bool protect_all = false;  // for tests: protect connections within a host as well

  // How long rank 0 waits for missing ranks that were all turned away because of the secret. A
  // stranger that claims to be all of them can end a join after this time.
  milliseconds refused_grace{60'000};

  int rank_outside(int of) const noexcept {
    return ranks.empty() ? of : ranks[static_cast<std::size_t>(of)];
  }
  // Without a job secret only ranks of this host can join.
  bool stays_here() const noexcept { return secret.empty() || this_host_only; }
  // Terms for the handshake of a connection. One that leaves this host is protected.
  base::Terms terms(bool within_host) const noexcept {
    return {this_host_only ? base::SecretOf::user : base::SecretOf::job,
            within_host && !protect_all ? base::Protection::none : base::Protection::headers};
  }
};
// Throws Error: invalid_argument if rank, size or URL cannot be; authentication if a secret is
// needed; system if the user's directory cannot be used.
Place resolve_place(const Options& options);

// Joins by place.deadline. Throws Error with the ranks that are missing, came twice or disagree
// (about size, version or secret); every rank that came gets the same. A record may have up to 64
// KiB.
Joined join(const Place& place, const Options& options, const transports::Blob& record);

// For a rank that cannot join. Tells the others at the rendezvous, so that they end at once.
// Returns the cause that all ranks get: "rank 2 cannot take part: WHY". Takes failure_grace at
// most.
operation::Failure fail_to_join(const Place& place, const Options& options,
                                const operation::Failure& failure);
inline constexpr milliseconds failure_grace{5'000};

}  // namespace rondo::rendezvous
