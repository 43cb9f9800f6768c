// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include <rondo/c.h>

#include "python/core/error.h"
#include "python/core/view.h"

namespace rondo::python {

// The C API starts operations of one lane on one thread at a time, and messages count as a lane.
enum class Lane { bulk, urgent, messages };
inline constexpr std::size_t lanes = 3;

// How long a call waits before it looks whether Python has got a signal, as Ctrl-C.
inline constexpr std::chrono::milliseconds signal_interval{100};

// An operation that nobody waits for, with the memory that it uses.
struct Pending {
  rondo_request* request = nullptr;
  Borrowed buffers{};
};

// A communicator as Python needs it: closing it is safe while other threads use it, and memory of
// operations lives until they end. Shared by the objects of Python that need it. Functions are
// called with Python's lock held, unless they say otherwise.
//
// In a forked child the threads that held locks do not exist: nothing here is locked or waited for
// there, and the C API refuses each call.
class Session {
 public:
  explicit Session(rondo_communicator* communicator);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session();

  // While an Inside lives, the communicator is not destroyed. It needs no lock.
  class Inside {
   public:
    explicit Inside(Session& session) noexcept;
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { leave(); }
    bool is_open() const noexcept { return open_; }

   private:
    void leave() noexcept;

    Session& session_;
    bool open_;
  };

  rondo_communicator* get() const noexcept { return communicator_; }
  std::mutex& starting(Lane lane) noexcept { return starting_[static_cast<std::size_t>(lane)]; }
  bool in_child() const noexcept;

  // Ends pending operations and leaves the other ranks, once; a second call returns when the first
  // has. Operations that other threads wait for end with RONDO_ABORTED. Takes at most some seconds.
  void close();
  bool is_closed() const noexcept { return closing_.load(); }
  // Without Python's lock: as rondo_poll(), also while another thread closes the communicator.
  Outcome poll(rondo_request* request, std::chrono::milliseconds time, bool& done);

  // Keeps the memory of an operation until that ends.
  void keep(Pending pending);
  // Lets go of the memory of kept operations that have ended.
  void settle_kept();

 private:
  rondo_communicator* communicator_;
  const unsigned generation_;
  std::atomic<int> inside_{0};
  std::atomic<bool> closing_{false};
  std::atomic<bool> closed_{false};
  std::array<std::mutex, lanes> starting_{};
  std::vector<Pending> kept_{};  // guarded by Python's lock
};

// Closes every session. For the end of the interpreter: a communicator must not live on while the
// process ends.
void close_all_sessions();

// Raised where a call needs an open communicator.
[[noreturn]] void refuse_closed();

// Calls function(communicator) without Python's lock and returns how that ended. Raises if the
// communicator is closed.
template <class Function>
Outcome call_inside(Session& session, const Function& function) {
  bool open = false;
  Outcome outcome;
  {
    const Unlocked unlocked;
    const Session::Inside inside(session);
    open = inside.is_open();
    if (open) outcome = Outcome::of(function(session.get()));
  }
  if (!open) refuse_closed();
  return outcome;
}

}  // namespace rondo::python
