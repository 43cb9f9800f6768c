// SPDX-License-Identifier: Apache-2.0
//
// The session of a process group: errors become torch's, Ctrl-C ends sleeps in futures, and works
// for which nobody waits are finished somewhere.
#pragma once

#include <rondo/communicator.h>
#include <rondo/error.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "python/core/session.h"
#include "python/torch/finishers.h"
#include "python/torch/hooks.h"
#include "python/torch/norms.h"
#include "python/torch/side_marks.h"

namespace rondo::python {

// Thread-safe. Works keep it alive, so it may outlive its process group.
class GroupSession {
 public:
  using TimePoint = Session::TimePoint;

  // who: the group and its ranks, for messages.
  static std::shared_ptr<GroupSession> open(Communicator communicator, std::string who) {
    return Opened<GroupSession>::add(
        std::make_shared<GroupSession>(std::move(communicator), std::move(who)));
  }
  // At the end of the process.
  static void close_all() noexcept;

  GroupSession(Communicator communicator, std::string who)
      : session_(std::move(communicator), "the process group has been destroyed"),
        who_(std::move(who)) {}
  GroupSession(const GroupSession&) = delete;
  GroupSession& operator=(const GroupSession&) = delete;
  ~GroupSession();

  // Calls function(communicator), which does not wait for operations. Throws DistBackendError.
  template <class Function>
  auto use(const Function& function) {
    return guarded([&] { return session_.use(function); });
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
    return guarded([&] {
      return session_.start(Lane::bulk, [&](Communicator& communicator) {
        const auto own = std::this_thread::get_id();
        if (std::exchange(last_starter_, own) != own) starters_.fetch_add(1);
        return function(communicator);
      });
    });
  }
  // Drives until the operation has ended or the time is over. Returns whether it has ended. Its
  // error stays with it. close() interrupts this, and so does a signal whose handler raises.
  bool await(const rondo::Work& work, TimePoint until);
  // Throws what a handler of a signal raises. Before that it ends the operations of all ranks: this
  // rank may never make the calls that they wait for.
  void run_handlers();
  // Drives until the operation has ended, or all of it is enqueued on its GPU: the stream waits for
  // it from then on. False where the stream does not: it is captured, or its GPU refuses it.
  // close() waits for its end, since the caller goes on as if it had come.
  bool join(const rondo::Work& work, void* stream);
  // Throws the first error, when all have ended.
  void await_all(const std::vector<rondo::Work>& works);
  // Nobody will wait soon.
  void leave(const std::vector<rondo::Work>& works);

  [[noreturn]] void fail(const std::string& message, std::error_code code = {}) const;
  // After the abort hooks.
  std::exception_ptr error(const rondo::Work& failed);

  // While the main thread may sleep until operations end and cannot look for signals, Ctrl-C ends
  // them. Calls come in pairs.
  void begin_sleep();
  void end_sleep() noexcept { sleeps_.fetch_sub(1); }

  // To be called before an operation whose end calls finish_later().
  void prepare_finish() { finishers_->prepare(); }
  void finish_later(Finishers::Task task) { finishers_->add(std::move(task)); }

  // Marks of copies that follow the operations of the group on GPUs.
  SideMarks& sides() noexcept { return *sides_; }

  Completions& completions() noexcept { return completions_; }
  AbortHooks& abort_hooks() noexcept { return abort_hooks_; }

  // State that batch norm layers of the group share.
  Norms& norms() noexcept { return norms_; }

  // Ends every operation with this cause, on every rank, after the abort hooks.
  void abort(const std::string& why) noexcept {
    tell_abort_hooks();
    if (!session_.in_child()) session_.abort(why);
  }
  // Leaves the group. What is under way ends with an error on this rank, but for the last copies of
  // operations that streams have joined. Again, or in a forked child: does nothing.
  void close() noexcept;

 private:
  template <class Function>
  auto guarded(const Function& function) {
    refuse_child();
    try {
      return function();
    } catch (const Error& error) {
      if (has_failed(error.code())) tell_abort_hooks();
      fail(error.what(), error.code());
    }
  }
  void refuse_child() const;
  // Whether a call that throws this has found the group failed: batch norm waits, others do not.
  static bool has_failed(std::error_code code) {
    return code != Errc::invalid_argument && code != Errc::unsupported && code != Errc::system;
  }
  // The end of the group on this rank is no failure.
  void tell_abort_hooks() {
    if (!session_.in_child() && !session_.is_closed()) abort_hooks_.tell();
  }
  void await_aborted(const rondo::Work& work);
  static void interrupt_sleep();

  Completions completions_;
  AbortHooks abort_hooks_;
  std::thread::id last_starter_;  // of the last start()
  std::atomic<int> starters_{0};  // how often a call came from another thread than the one before
  std::mutex relied_on_mutex_;
  std::vector<rondo::Work> relied_on_;  // streams have joined them
  Norms norms_;  // before the session, whose communicator tells its layers when it ends
  Session session_;
  const std::string who_;
  std::unique_ptr<SideMarks> sides_ = std::make_unique<SideMarks>();
  std::atomic<bool> interrupted_{false};
  std::atomic<int> sleeps_{0};
  std::unique_ptr<Finishers> finishers_ = std::make_unique<Finishers>();
};

}  // namespace rondo::python
