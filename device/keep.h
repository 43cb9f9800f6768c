// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace rondo::device {

// Keeps an object until the process ends, without its destructor: a GPU may still use it, and CUDA
// would wait for the GPU. Thread-safe. Where there is no memory to remember it, it is kept too.
template <class T>
void keep_until_exit(std::unique_ptr<T> object) noexcept {
  static std::mutex mutex;
  static auto* const kept = new std::vector<T*>;
  const std::lock_guard lock(mutex);
  try {
    kept->push_back(object.get());
  } catch (const std::bad_alloc&) {  // the vector only shows checkers of leaks that it is meant
  }
  static_cast<void>(object.release());
}

}  // namespace rondo::device
