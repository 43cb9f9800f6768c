// SPDX-License-Identifier: Apache-2.0
//
// Where the ranks of a job meet that a launcher has started on several hosts, and their secret.
// Rank 0 chooses both once in the life of its process; the launcher carries them to the others.
// Later communicators of the processes meet at the same place.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <rondo/options.h>

#include "base/file_descriptor.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::rendezvous {

struct Meeting {
  std::string host;  // base::host_identity() of rank 0
  std::vector<std::string> addresses;
  std::string secret;
  std::vector<base::FileDescriptor> listeners;  // of rank 0, as long as its process
  std::timed_mutex turn;                        // of the thread that joins
};

// Fills in a place that is joined by the launcher: its meeting, its URL and, if it has none, its
// secret. The first call waits for the launcher and the other ranks, until the place's deadline.
// Throws Error. Thread-safe.
void meet_by_launcher(Place& place, const Options& options);

}  // namespace rondo::rendezvous
