// SPDX-License-Identifier: Apache-2.0
//
// The life of a communicator in Python, for both extensions of the package: rondo._core and
// rondo.torch._c.
#pragma once

#include <rondo/communicator.h>
#include <rondo/error.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "python/core/forks.h"
#include "python/core/signals.h"

namespace rondo::python {

// Operations of one lane are started on one thread at a time, and messages count as a lane.
enum class Lane { bulk, urgent, messages };

// A communicator that may be closed while other threads use it. Thread-safe. Called without
// Python's lock, for which threads that it waits for may wait. Failures: Error.
//
// In a forked child the threads that held locks do not exist: nothing here is locked or waited for
// there, and the communicator refuses each call.
class Session {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // closed: what calls say after close().
  Session(Communicator communicator, std::string closed)
      : rank_(communicator.rank()),
        size_(communicator.size()),
        closed_text_(std::move(closed)),
        communicator_(std::move(communicator)) {}
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() { close(); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool in_child() const noexcept { return origin_.in_child(); }
  // Whether close() has begun.
  bool is_closed() const noexcept { return closing_.load(); }
  // Whether it has ended.
  bool has_closed() const noexcept { return closed_.load(); }

  // While the object lives, the communicator stays as it is: open, or closed to the end.
  class Inside {
   public:
    explicit Inside(Session& session) noexcept
        : session_(session), outer_(std::exchange(here(), this)) {
      session_.inside_.fetch_add(1);
      // A handler of a signal comes here from within split(): close() waits for that.
      if (!session_.closing_.load() || session_.holds_this_thread(outer_)) return;
      leave();
      if (!session_.in_child()) session_.closed_.wait(false);
      session_.inside_.fetch_add(1);
    }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() {
      here() = outer_;
      leave();
    }

   private:
    friend class Session;
    // The innermost one of this thread.
    static const Inside*& here() noexcept {
      static thread_local const Inside* own = nullptr;
      return own;
    }
    void leave() noexcept {
      if (session_.inside_.fetch_sub(1) == 1 && session_.closing_.load())
        session_.inside_.notify_all();
    }

    Session& session_;
    const Inside* const outer_;
  };

  // Whether this thread is inside already: in a handler of a signal that came during split().
  bool holds_this_thread() const noexcept { return holds_this_thread(Inside::here()); }

  // Returns function(communicator), which does not wait for operations. While close() runs, waits
  // for its end.
  template <class Function>
  auto use(const Function& function) {
    const Inside inside(*this);
    if (is_closed()) throw Error(Errc::invalid_argument, closed_text_);
    return function(*communicator_);
  }
  // As use(), for one thread at a time in each lane: operations start in one order.
  template <class Function>
  auto start(Lane lane, const Function& function) {
    if (holds_this_thread())
      throw Error(Errc::invalid_argument,
                  "a handler of a signal cannot start an operation while split() waits");
    return use([&](Communicator& communicator) {
      std::unique_lock one(starting_[static_cast<std::size_t>(lane)], std::defer_lock);
      if (!in_child()) one.lock();
      return function(communicator);
    });
  }

  // Drives until the operation has ended or the time is over. Returns whether it has ended; its
  // error stays in `work`. Calls handle_signals() now and then, and throws what that throws.
  template <class Handle>
  bool await(const rondo::Work& work, TimePoint until, const Handle& handle_signals) {
    return drive(
        work, until, [&](TimePoint::duration time) { return work.wait_for(time); }, handle_signals);
  }
  // reaches(time) drives for at most this time, and says whether that was enough. Threads that wait
  // look now and then whether the communicator is being closed: they cannot be woken without an
  // abort, which would end operations on other ranks.
  template <class Reaches, class Handle>
  bool drive(const rondo::Work& work, TimePoint until, const Reaches& reaches,
             const Handle& handle_signals) {
    if (in_child()) return work.wait_for({});
    while (true) {
      const auto left = until == TimePoint::max() ? TimePoint::duration::max()
                                                  : until - std::chrono::steady_clock::now();
      try {
        const Inside inside(*this);
        if (reaches(std::clamp<TimePoint::duration>(left, TimePoint::duration::zero(),
                                                    signal_interval)))
          return true;
      } catch (const std::exception&) {
        return work.done();
      }
      if (left <= signal_interval) return work.done();
      handle_signals();
    }
  }

  // Ends every operation with this cause, on every rank. Does nothing after close().
  void abort(const std::string& why) noexcept;
  // Ends pending operations and leaves the other ranks, once: returns false if that was done
  // already. A second call returns when the first has. abort: if another thread is inside, ends its
  // operation, and those of all ranks, with this text. Takes at most some seconds.
  bool close(const char* abort = nullptr) noexcept;

 private:
  bool holds_this_thread(const Inside* one) const noexcept {
    if (in_child()) return false;  // split() goes on in the parent alone
    while (one != nullptr && &one->session_ != this) one = one->outer_;
    return one != nullptr;
  }

  const Origin origin_{};
  const int rank_, size_;
  const std::string closed_text_;
  std::optional<Communicator> communicator_;
  std::atomic<int> inside_{0};
  std::atomic<bool> closing_{false}, closed_{false};
  std::array<std::mutex, 3> starting_{};  // by lane
};

}  // namespace rondo::python
