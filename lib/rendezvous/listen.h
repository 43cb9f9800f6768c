// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "lib/rendezvous/announcement.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::rendezvous {

// Where rank 0 can be reached while the object lives. The destructor withdraws the announcement.
// Thread-bound to the thread that connects.
struct Listening {
  std::vector<base::FileDescriptor> listeners;
  std::unique_ptr<Board> board;  // null for tcp://
  bool this_host_only = false;   // turn away peers of other hosts
};

// Throws Error if this rank cannot listen at the URL, or if that needs a secret.
Listening start_listening(const Place& place, const Options& options, std::uint64_t job);

// Listens at a port of the range at every address that the interface filters choose. Throws Error.
Listening listen_everywhere(const Options& options);
// Returns where they listen. Loopback comes first: ranks of the same host try the addresses in this
// order.
std::vector<std::string> addresses_of(const std::vector<base::FileDescriptor>& listeners);

// Returns the board: the file or the store; null for tcp:// and for a launcher.
std::unique_ptr<Board> board_of(const Place& place, const Options& options);
// Returns the URL, or "the program's store", for messages.
std::string name_of_rendezvous(const Place& place, const Options& options);
// Throws Error(authentication): `what`, and that a job secret must be set.
[[noreturn]] void demand_secret(const std::string& what);

}  // namespace rondo::rendezvous
