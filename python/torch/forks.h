// SPDX-License-Identifier: Apache-2.0
//
// Lists what a forked child must not touch: the threads of its parent do not run there, and their
// locks may be held for ever.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>

namespace rondo::python {

// How many forks made this process. Grows in the child.
inline std::atomic<unsigned>& forks() {
  static std::atomic<unsigned> count{0};
  return count;
}
inline void watch_forks() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++forks(); });
  static_cast<void>(registered);
}

// One T for this process, until it ends. A forked child makes its own and leaves its parent's
// alone. Thread-safe.
template <class T>
T& of_this_process() {
  struct Holder {
    const unsigned forks = rondo::python::forks().load();
    T value;
  };
  static std::atomic<Holder*> holder{nullptr};
  Holder* present = holder.load();
  if (present != nullptr && present->forks == forks().load()) return present->value;
  auto fresh = std::make_unique<Holder>();
  if (holder.compare_exchange_strong(present, fresh.get())) return fresh.release()->value;
  return present->value;
}

}  // namespace rondo::python
