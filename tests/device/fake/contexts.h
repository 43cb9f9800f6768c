// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <mutex>
#include <set>

#include "device/driver.h"

// The primary context of a GPU. It stands in the table of contexts() until the process ends.
struct rondo::device::ContextObject {
  int ordinal = 0;
  // The sticky error. The executor alone sets it, when none of the GPU's work runs.
  std::atomic<int> sticky{0};
  std::atomic<unsigned> retained{0};
  std::mutex mutex;
  StreamHandle legacy = nullptr;  // guarded by mutex
  std::set<int> peers;            // guarded by mutex
};

namespace fake {

using rondo::device::ContextHandle;
using rondo::device::Status;

// Values of CUresult.
inline constexpr Status invalid_value = 1, not_initialized = 3, no_such_device = 101,
                        invalid_image = 200, invalid_context = 201, map_failed = 205,
                        peer_access_unsupported = 217, invalid_handle = 400, not_found = 500,
                        peer_access_already_enabled = 704, already_registered = 712,
                        not_registered = 713, not_permitted = 800, not_supported = 801,
                        capture_unsupported = 900, capture_implicit = 906;

// The context of a GPU, or null where there is none.
ContextHandle context_of(int ordinal);
bool is_context(ContextHandle context);
// The contexts of this thread: the last one pushed is current.
ContextHandle current_context();
void push_context(ContextHandle context);
void pop_context();

}  // namespace fake
