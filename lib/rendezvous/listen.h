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

// Where rank 0 can be reached while the object lives; the announcement is withdrawn with it.
struct Listening {
  std::vector<base::FileDescriptor> listeners;
  std::unique_ptr<Board> board;  // null for tcp://
  bool this_host_only = false;   // peers of other hosts are to be turned away
};

// Throws Error when the URL is not this rank's to listen on, or needs a secret.
Listening start_listening(const Place& place, const Options& options, std::uint64_t job);

// The file or the store, null for tcp://.
std::unique_ptr<Board> board_of(const Place& place, const Options& options);
// The URL or what stands for it, for messages.
std::string name_of_rendezvous(const Place& place, const Options& options);
[[noreturn]] void demand_secret(const std::string& what);

}  // namespace rondo::rendezvous
