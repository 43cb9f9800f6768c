// SPDX-License-Identifier: Apache-2.0
//
// std::mutex and its guards with the annotations that clang checks.
#pragma once

#include <mutex>

#include "base/thread_annotations.h"

namespace rondo::base {

// Thread-safe, as std::mutex is.
class RONDO_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() RONDO_ACQUIRE() { mutex_.lock(); }
  void unlock() RONDO_RELEASE() { mutex_.unlock(); }
  // For std::condition_variable, which accepts no other type.
  std::mutex& standard() noexcept { return mutex_; }

 private:
  std::mutex mutex_;
};

// Holds a lock for as long as the object lives.
template <class Lockable>
class RONDO_SCOPED_CAPABILITY Locked {
 public:
  explicit Locked(Lockable& lock) RONDO_ACQUIRE(lock) : lock_(lock) { lock_.lock(); }
  ~Locked() RONDO_RELEASE() { lock_.unlock(); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  Lockable& lock_;
};

// Releases a lock that the caller holds, and takes it again when the object ends.
template <class Lockable>
class RONDO_SCOPED_CAPABILITY Unlocked {
 public:
  explicit Unlocked(Lockable& lock) RONDO_RELEASE(lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() RONDO_RELEASE() { lock_.lock(); }  // for clang, RELEASE here ends the scope
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  Lockable& lock_;
};

}  // namespace rondo::base
