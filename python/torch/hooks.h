// SPDX-License-Identifier: Apache-2.0
//
// Tells the hooks of torch, those of its flight recorder among them, which operations have
// succeeded, so that it shows which hang, and that the group fails, so that it writes them down.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Hooks.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "python/core/gil.h"

namespace rondo::python {

// Hooks of one kind of a process group. A hook may be a function of Python, which takes Python's
// lock when it is copied, called or destroyed, and it has locks of its own. So none of this is done
// under the lock of the table, and a hook that is removed while it runs runs on. Thread-safe.
template <class Hook>
class Hooks {
 public:
  using Table = std::map<std::int64_t, std::shared_ptr<const Hook>>;

  void add(std::int64_t id, Hook hook) {
    auto entry = std::make_shared<const Hook>(std::move(hook));
    change([&](Table& table) { table[id] = std::move(entry); });
  }
  void remove(std::int64_t id) {
    change([&](Table& table) { table.erase(id); });
  }
  bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }

 protected:
  std::shared_ptr<const Table> all() {
    const std::lock_guard lock(mutex_);
    return hooks_;
  }
  // Leaves none.
  std::shared_ptr<const Table> take() {
    return change([](Table& table) { table.clear(); });
  }

 private:
  // A table is never changed: readers may have it. Returns the one before.
  template <class Change>
  std::shared_ptr<const Table> change(const Change& change) {
    const std::lock_guard lock(mutex_);
    auto next = std::make_shared<Table>(*hooks_);
    change(*next);
    wanted_ = !next->empty();
    return std::exchange(hooks_, std::move(next));
  }

  std::mutex mutex_;
  std::shared_ptr<const Table> hooks_ = std::make_shared<const Table>();
  std::atomic<bool> wanted_{false};
};

// Thread-safe.
class Completions final : public Hooks<c10d::CompletionHook> {
 public:
  // key: that of the Work that has succeeded.
  void tell(std::uint64_t key) {
    if (!wanted()) return;
    const auto table = all();
    for (const auto& [id, hook] : *table) (*hook)({key, std::nullopt});
  }
};

// Each is called once, before the error of the group is raised. Thread-safe.
class AbortHooks final : public Hooks<c10d::AbortHook> {
 public:
  // Calls those that have not been called, and waits for those that another thread calls: the
  // process may end with the error, and a hook writes a file. In a hook: does nothing.
  void tell() {
    const Unlocked others_run(PyGILState_Check() != 0);  // a hook may wait for threads of Python
    const auto own = std::this_thread::get_id(), nobody = std::thread::id{};
    std::unique_lock lock(mutex_);
    if (runner_ == own || !ended_.wait_for(lock, longest, [&] { return runner_ == nobody; }))
      return;
    runner_ = own;
    lock.unlock();
    const auto table = take();
    for (const auto& [id, hook] : *table) call(*hook);
    lock.lock();
    runner_ = nobody;
    ended_.notify_all();
  }

 private:
  static constexpr std::chrono::seconds longest{60};  // torch's own takes 30 s at most

  static void call(const c10d::AbortHook& hook) {
    try {
      hook();
    } catch (const std::exception& error) {
      TORCH_WARN("rondo: an abort hook has failed: ", error.what());
    }
  }

  std::mutex mutex_;
  std::condition_variable ended_;
  std::thread::id runner_;
};

// The Work of a blocking call that has returned, for hooks that look at it afterwards. Each call
// has its own: the recorder finds its entry by the key, and threads may call at once. Thread-safe.
class FinishedWork final : public c10d::Work {
 public:
  FinishedWork(int rank, c10d::OpType type, std::uint64_t sequence)
      : c10d::Work(rank, type), sequence_(sequence) {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  bool wait(std::chrono::milliseconds) override { return true; }
  std::uint64_t getSequencenumber() const override { return sequence_; }
  std::uint64_t getCompletionKey() const override { return sequence_; }

 private:
  const std::uint64_t sequence_;
};

}  // namespace rondo::python
