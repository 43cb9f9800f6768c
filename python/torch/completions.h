// SPDX-License-Identifier: Apache-2.0
//
// Tells torch's flight recorder which operations have succeeded, so that it shows which hang.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/Hooks.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace rondo::python {

// The hooks of a process group. Thread-safe.
class Completions {
 public:
  void add(std::int64_t id, c10d::CompletionHook hook) {
    const std::lock_guard lock(mutex_);
    hooks_[id] = std::move(hook);
    wanted_ = true;
  }
  void remove(std::int64_t id) {
    const std::lock_guard lock(mutex_);
    hooks_.erase(id);
    wanted_ = !hooks_.empty();
  }
  bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }
  // key: that of the Work. Hooks have locks of their own, so none is held here.
  void tell(std::uint64_t key) {
    if (!wanted()) return;
    std::vector<c10d::CompletionHook> hooks;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [id, hook] : hooks_) hooks.push_back(hook);
    }
    for (const auto& hook : hooks) hook({key, std::nullopt});
  }

 private:
  std::mutex mutex_;
  std::map<std::int64_t, c10d::CompletionHook> hooks_;
  std::atomic<bool> wanted_{false};
};

// The Work of a blocking call that has returned, for hooks that look at it afterwards. Thread-safe.
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
