// SPDX-License-Identifier: Apache-2.0
#include "call.h"

#include <pthread.h>

#include <atomic>

namespace fake {
namespace {

std::atomic<bool> initialized{false}, forked{false};

[[maybe_unused]] const int registered = ::pthread_atfork(nullptr, nullptr, [] {
  if (initialized.load(std::memory_order_relaxed)) forked.store(true, std::memory_order_relaxed);
});

}  // namespace

bool in_forked_child() {
  return forked.load(std::memory_order_relaxed);
}
bool is_initialized() {
  return initialized.load(std::memory_order_relaxed);
}
void set_initialized() {
  initialized.store(true, std::memory_order_relaxed);
}

int& capture_mode() {
  thread_local int mode = 0;
  return mode;
}

bool& on_executor() {
  thread_local bool here = false;
  return here;
}

Status refusal() {
  if (in_forked_child() || !is_initialized()) return not_initialized;
  return on_executor() ? not_permitted : 0;
}

Status sticky_error(ContextHandle context) {
  const Seen seen;
  return context->sticky.load(std::memory_order_acquire);
}

}  // namespace fake
