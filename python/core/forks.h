// SPDX-License-Identifier: Apache-2.0
//
// Objects of one process. A forked child must not touch those of its parent, whose threads do not
// run there and whose locks may be held for ever.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace rondo::python {

// How many forks made this process. Grows in the child.
inline std::atomic<unsigned>& forks() {
  static std::atomic<unsigned> count{0};
  return count;
}
inline const int watches_forks = ::pthread_atfork(nullptr, nullptr, [] { ++forks(); });

// Whether this process is a forked child of the one that made this object.
class Origin {
 public:
  bool in_child() const noexcept { return forks_ != forks().load(std::memory_order_relaxed); }

 private:
  unsigned forks_ = forks().load();
};

// One T for this process, until it ends. A forked child makes its own and leaves its parent's
// alone. Thread-safe.
template <class T>
T& of_this_process() {
  struct Holder {
    Origin origin{};
    T value{};
  };
  static std::atomic<Holder*> holder{nullptr};
  Holder* present = holder.load();
  if (present != nullptr && !present->origin.in_child()) return present->value;
  auto fresh = std::make_unique<Holder>();
  if (holder.compare_exchange_strong(present, fresh.get())) return fresh.release()->value;
  return present->value;
}

// The objects of one kind in this process that must be closed at its end. Thread-safe.
template <class T>
class Opened {
 public:
  static std::shared_ptr<T> add(std::shared_ptr<T> one) {
    Opened& own = of_this_process<Opened>();
    const std::lock_guard lock(own.mutex_);
    std::erase_if(own.all_, [](const auto& other) { return other.expired(); });
    own.all_.push_back(one);
    return one;
  }
  static std::vector<std::shared_ptr<T>> all() {
    Opened& own = of_this_process<Opened>();
    const std::lock_guard lock(own.mutex_);
    std::vector<std::shared_ptr<T>> alive;
    for (const auto& one : own.all_)
      if (auto present = one.lock()) alive.push_back(std::move(present));
    return alive;
  }

 private:
  std::mutex mutex_{};
  std::vector<std::weak_ptr<T>> all_{};
};

}  // namespace rondo::python
