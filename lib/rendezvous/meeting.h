// SPDX-License-Identifier: Apache-2.0
//
// The address and the secret of a job that a launcher has started on several hosts. Rank 0 chooses
// both once in the life of its process, and the launcher carries them to the other ranks. Later
// communicators of these processes use them again.
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

// Fills in a place whose address the launcher carries: its meeting, its URL and, if it has none,
// its secret. The first call waits for the launcher and the other ranks, until the place's
// deadline. Throws Error. Thread-safe.
void meet_by_launcher(Place& place, const Options& options);

}  // namespace rondo::rendezvous
