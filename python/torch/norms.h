// SPDX-License-Identifier: Apache-2.0
//
// The batch norm layers of one process group share this: their names, their passes by number, and
// layers that nobody needs any more.
#pragma once

#include <rondo/batch_norm.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/core/forks.h"

namespace rondo::python {

class NormPass;

// Layers and passes end on any thread, for example when Python collects garbage, while another
// thread may be inside a pass. So a layer that nobody needs is kept here until the next pass.
// A session owns it, so it outlives the communicator. Thread-safe, except where it says otherwise.
class Norms {
 public:
  Norms() = default;
  Norms(const Norms&) = delete;
  Norms& operator=(const Norms&) = delete;
  // A child leaves the layers of its parent alone.
  ~Norms() {
    if (in_child()) static_cast<void>(new auto(std::move(retired_)));
  }

  // A thread that calls a layer holds it: one at a time is in a pass.
  std::mutex& calls() noexcept { return calls_; }
  // A name that no layer of this group has had: "bn1", then "bn1#2". Layers are made in the same
  // order on all ranks, but they end when Python collects them. With calls() held.
  std::string fresh_name(const std::string& name) {
    const std::uint64_t number = ++made_[name];
    return number == 1 ? name : name + "#" + std::to_string(number);
  }
  void retire(std::unique_ptr<SyncBatchNorm> layer) {
    if (in_child()) return static_cast<void>(layer.release());
    const std::lock_guard lock(mutex_);
    retired_.push_back(std::move(layer));
  }
  // Destroys the layers that nobody needs. With calls() held, while the communicator is in use.
  void clear() {
    std::vector<std::unique_ptr<SyncBatchNorm>> old;
    const std::lock_guard lock(mutex_);
    old.swap(retired_);
  }

  // Passes by their numbers: see NormPass.
  std::int64_t add(const std::shared_ptr<NormPass>& pass) {
    const std::lock_guard lock(mutex_);
    passes_[++last_pass_] = pass;
    return last_pass_;
  }
  void remove(std::int64_t number) {
    if (in_child()) return;
    const std::lock_guard lock(mutex_);
    passes_.erase(number);
  }
  std::shared_ptr<NormPass> find(std::int64_t number) {
    const std::lock_guard lock(mutex_);
    const auto found = passes_.find(number);
    return found == passes_.end() ? nullptr : found->second.lock();
  }

  // A child has locks of its parent, which may be held there for ever.
  bool in_child() const noexcept { return origin_.in_child(); }

 private:
  const Origin origin_{};
  std::mutex calls_;
  std::map<std::string, std::uint64_t> made_;
  std::mutex mutex_;  // of what follows
  std::vector<std::unique_ptr<SyncBatchNorm>> retired_;
  std::int64_t last_pass_ = 0;
  std::unordered_map<std::int64_t, std::weak_ptr<NormPass>> passes_;
};

}  // namespace rondo::python
