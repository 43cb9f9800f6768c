// SPDX-License-Identifier: Apache-2.0
//
// The communicator of a process group, with what must happen around its life: nobody is inside when
// it goes, errors become torch's, and works for which nobody waits are finished somewhere.
#pragma once

#include <rondo/communicator.h>
#include <rondo/error.h>

#include <torch/csrc/distributed/c10d/exception.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "python/torch/completions.h"
#include "python/torch/finishers.h"
#include "python/torch/forks.h"
#include "python/torch/interrupts.h"
#include "python/torch/norms.h"
#include "python/torch/side_marks.h"
#include "python/torch/signals.h"

namespace rondo::python {

// Thread-safe. Works keep it alive, so it may outlive its process group.
class GroupSession {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // who: the group and its ranks, for messages.
  static std::shared_ptr<GroupSession> open(Communicator communicator, std::string who) {
    auto session = std::make_shared<GroupSession>(std::move(communicator), std::move(who));
    All& all = of_this_process<All>();
    const std::lock_guard lock(all.mutex);
    std::erase_if(all.sessions, [](const auto& one) { return one.expired(); });
    all.sessions.push_back(session);
    return session;
  }
  // At the end of the process.
  static void close_all() noexcept {
    std::vector<std::weak_ptr<GroupSession>> sessions;
    {
      All& all = of_this_process<All>();
      const std::lock_guard lock(all.mutex);
      sessions.swap(all.sessions);
    }
    for (const auto& one : sessions)
      if (const auto session = one.lock()) session->close();
    Finishers::join_all();
    Interrupts::stop();
  }

  GroupSession(Communicator communicator, std::string who)
      : communicator_(std::move(communicator)), who_(std::move(who)) {}
  GroupSession(const GroupSession&) = delete;
  GroupSession& operator=(const GroupSession&) = delete;
  ~GroupSession() {
    close();
    // A child leaves both alone: neither threads nor locks of its parent work there.
    if (!in_child()) return;
    static_cast<void>(finishers_.release());
    static_cast<void>(sides_.release());
    static_cast<void>(new std::optional<Communicator>(std::move(communicator_)));
  }

  // Calls function(communicator), which does not wait for operations. Throws DistBackendError.
  template <class Function>
  auto use(const Function& function) {
    refuse_child();
    const Inside inside(*this);
    if (closed_.load() || !communicator_) fail("the process group has been destroyed");
    try {
      return function(*communicator_);
    } catch (const Error& error) {
      fail(error.what(), error.code());
    }
  }
  // Like use(), for a function that waits for operations.
  template <class Function>
  auto use_asleep(const Function& function) {
    struct Sleep {
      explicit Sleep(GroupSession& session) : session_(session) { session_.begin_sleep(); }
      ~Sleep() { session_.end_sleep(); }
      GroupSession& session_;
    } const sleep(*this);
    return use(function);
  }
  // As use(), for one thread at a time: operations start in one order.
  template <class Function>
  auto start(const Function& function) {
    return use([&](Communicator& communicator) {
      const std::lock_guard one(starting_);
      if (std::exchange(last_starter_, std::this_thread::get_id()) != std::this_thread::get_id())
        starters_.fetch_add(1);
      return function(communicator);
    });
  }
  // Drives until the operation has ended or the time is over. Returns whether it has ended. Its
  // error stays with it. close() interrupts this, and so does a signal whose handler raises.
  bool await(const rondo::Work& work, TimePoint until) {
    return drive(work, until, [&](TimePoint::duration time) { return work.wait_for(time); });
  }
  // Throws what a handler of a signal raises. Before that it ends the operations of all ranks: this
  // rank may never make the calls that they wait for.
  void run_handlers() {
    try {
      run_signal_handlers();
    } catch (const py::error_already_set& error) {
      abort(name_of(error));
      throw;
    }
  }
  // Drives until the operation has ended, or all of it is enqueued on its GPU: the stream waits for
  // it from then on. False where the stream does not: it is captured, or its GPU refuses it.
  // close() waits for its end, since the caller goes on as if it had come.
  bool join(const rondo::Work& work, void* stream) {
    if (!drive(work, TimePoint::max(),
               [&](TimePoint::duration time) { return work.join_for(stream, time); }))
      return false;
    if (work.done()) return true;
    const std::lock_guard lock(relied_on_mutex_);
    std::erase_if(relied_on_, [](const rondo::Work& one) { return one.done(); });
    relied_on_.push_back(work.share());
    return true;
  }
  // Throws the first error, when all have ended.
  void await_all(const std::vector<rondo::Work>& works) {
    try {
      for (const rondo::Work& work : works) await(work, TimePoint::max());
    } catch (const py::error_already_set&) {
      for (const rondo::Work& work : works) await_aborted(work);
      throw;
    }
    for (const rondo::Work& work : works)
      if (work.error()) fail(work.message(), work.error());
  }
  // Says that nobody will wait soon.
  void leave(const std::vector<rondo::Work>& works) {
    refuse_child();
    const Inside inside(*this);
    for (const rondo::Work& work : works) work.leave();
  }

  // Programs look for the word timeout in torch's messages.
  [[noreturn]] void fail(const std::string& message, std::error_code code = {}) const {
    if (interrupted_.load()) throw Interrupted("rondo: " + message + who_);
    const char* more = code == Errc::deadline_exceeded ? "; the timeout has passed" : "";
    if (code == Errc::mismatch && starters_.load() > 1)
      more =
          "; several threads of this rank have called this group, and their order may differ "
          "between ranks: give each thread a group of its own, made by new_group()";
    TORCH_CHECK_WITH(DistBackendError, false, "rondo: ", message, more, who_);
  }
  std::exception_ptr error(const rondo::Work& failed) const {
    try {
      fail(failed.message(), failed.error());
    } catch (...) {
      return std::current_exception();
    }
  }

  // While the main thread may sleep until operations end and cannot look for signals, Ctrl-C ends
  // them. Calls come in pairs.
  void begin_sleep() {
    sleeps_.fetch_add(1);
    Interrupts::watch(&interrupt_sleep);
  }
  void end_sleep() noexcept { sleeps_.fetch_sub(1); }

  // To be called before an operation whose end calls finish_later().
  void prepare_finish() { finishers_->prepare(); }
  void finish_later(Finishers::Task task) { finishers_->add(std::move(task)); }

  // Marks of copies that follow the operations of the group on GPUs.
  SideMarks& sides() noexcept { return *sides_; }

  Completions& completions() noexcept { return completions_; }

  // State that batch norm layers of the group share.
  Norms& norms() noexcept { return norms_; }

  // Ends every operation with this cause, on every rank.
  void abort(const std::string& why) noexcept {
    if (in_child()) return;
    const Inside inside(*this);
    if (communicator_) communicator_->abort(make_error_code(Errc::aborted), why);
  }
  // Whether close() does nothing any more.
  bool closed() const noexcept { return closed_.load() || in_child(); }
  // Leaves the group. What is under way ends with an error on this rank, but for the last copies of
  // operations that streams have joined. Again, or in a forked child: does nothing.
  void close() noexcept {
    if (in_child()) return;
    await_relied_on();
    {
      const std::lock_guard nobody_enters(closing_);
      if (closed_.exchange(true)) return;
      const std::unique_lock nobody_inside(gate_);
      communicator_.reset();
    }
    finishers_->stop();
    sides_->clear();
  }

 private:
  // As long as it lives the communicator stays. While close() runs, waits for its end.
  class Inside {
   public:
    explicit Inside(GroupSession& session) : gate_(session.gate_, std::defer_lock) {
      if (session.closed_.load()) const std::lock_guard until_closed(session.closing_);
      gate_.lock();
    }

   private:
    std::shared_lock<std::shared_mutex> gate_;
  };

  void await_relied_on() {
    std::vector<rondo::Work> last;
    {
      const std::lock_guard lock(relied_on_mutex_);
      last.swap(relied_on_);
    }
    for (const rondo::Work& work : last) await_aborted(work);
  }
  // Does not look for signals.
  void await_aborted(const rondo::Work& work) {
    while (!drive(work, std::chrono::steady_clock::now(),
                  [&](TimePoint::duration) { return work.wait_for(signal_interval); })) {
    }
  }

  // reaches(time) drives for at most this time, and says whether that was enough. Threads that wait
  // look now and then whether the group is being closed: they cannot be woken without an abort,
  // which would end operations on other ranks.
  template <class Reaches>
  bool drive(const rondo::Work& work, TimePoint until, const Reaches& reaches) {
    refuse_child();
    while (true) {
      const auto left = until - std::chrono::steady_clock::now();
      try {
        const Inside inside(*this);
        if (reaches(std::clamp<TimePoint::duration>(left, TimePoint::duration::zero(),
                                                    signal_interval)))
          return true;
      } catch (const std::exception&) {
        return work.done();
      }
      if (left <= signal_interval) return work.done();
      run_handlers();
    }
  }

  static void interrupt_sleep() {
    std::vector<std::shared_ptr<GroupSession>> asleep;
    {
      All& all = of_this_process<All>();
      const std::lock_guard lock(all.mutex);
      for (const auto& one : all.sessions)
        if (auto session = one.lock(); session && session->sleeps_.load() > 0)
          asleep.push_back(std::move(session));
    }
    for (const auto& session : asleep) {
      session->interrupted_ = true;
      session->abort("KeyboardInterrupt");
    }
  }

  struct All {
    std::mutex mutex;
    std::vector<std::weak_ptr<GroupSession>> sessions;
  };

  bool in_child() const noexcept { return forks_ != forks().load(std::memory_order_relaxed); }
  void refuse_child() const {
    if (in_child())
      fail("a forked child cannot use the process group of its parent: make a group there");
  }

  const unsigned forks_ = forks().load();
  Completions completions_;
  std::shared_mutex gate_;
  std::mutex starting_, closing_;
  std::thread::id last_starter_;  // guarded by starting_
  std::atomic<int> starters_{0};  // how often a call came from another thread than the one before
  std::mutex relied_on_mutex_;
  std::vector<rondo::Work> relied_on_;  // streams have joined them
  Norms norms_;  // before the communicator, which tells its layers when it ends
  std::optional<Communicator> communicator_;
  const std::string who_;
  std::unique_ptr<SideMarks> sides_ = std::make_unique<SideMarks>();
  std::atomic<bool> closed_{false}, interrupted_{false};
  std::atomic<int> sleeps_{0};
  std::unique_ptr<Finishers> finishers_ = std::make_unique<Finishers>();
};

}  // namespace rondo::python
