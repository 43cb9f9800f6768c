// SPDX-License-Identifier: Apache-2.0
//
// A signal asks this process for a dump of each of its communicators, so that a job that hangs can
// be asked from outside: kill -USR2 PID.
#pragma once

#include <functional>
#include <list>
#include <optional>

namespace rondo::recorder {

// Returns the signal that RONDO_DUMP_SIGNAL names; nothing if it is not set. Throws
// Error(invalid_argument) if it is neither USR1 nor USR2.
std::optional<int> signal_from_environment();

class SignalThread;

// Lists a communicator while it lives. The first listing of a process installs the handler, which
// only writes to a descriptor, and starts the thread that calls the functions of all listings. The
// last listing ends the thread and puts back the handler that was there before, which until then is
// called as well, after ours. A handler that the program installs meanwhile replaces ours for good:
// it may call ours, so the two must not be chained the other way round.
//
// A forked child has no thread, and signals do nothing of Rondo there until it lists a communicator
// of its own. Thread-safe.
class SignalListing {
 public:
  // number: the first listing decides for all. dump: must not make or destroy a communicator; what
  // it throws is dropped. Throws Error(system).
  SignalListing(int number, std::function<void()> dump);
  // Waits for a call of `dump` under way, and not for those of other listings.
  ~SignalListing();
  SignalListing(const SignalListing&) = delete;
  SignalListing& operator=(const SignalListing&) = delete;

  using Dumps = std::list<std::function<void()>>;

 private:
  SignalThread& thread_;
  const Dumps::iterator place_;
};

}  // namespace rondo::recorder
