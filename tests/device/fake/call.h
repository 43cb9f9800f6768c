// SPDX-License-Identifier: Apache-2.0
//
// Every function of the API begins with the checks in this file.
#pragma once

#include "contexts.h"
#include "faults.h"
#include "quiet.h"

#define FAKE_EXPORT extern "C" __attribute__((visibility("default")))

namespace fake {

// Traits of a function of the API.
enum Traits : unsigned {
  plain = 0,
  current = 1,   // a context must be current on the thread
  blocks = 2,    // may block in CUDA
  releases = 4,  // does its work even if it returns the error of something else
};

bool in_forked_child();
// Whether cuInit has been called. In a child made by fork() after that, CUDA does not work.
bool is_initialized();
void set_initialized();
// Whether this thread runs work of streams.
bool& on_executor();

// The capture mode of this thread.
int& capture_mode();

// Returns a status that forbids any call here, or 0.
Status refusal();
Status sticky_error(ContextHandle context);

// Runs body(context), which is quiet, unless the call must fail. context: the current one, or null.
template <class Body>
Status call(const char* function, unsigned traits, Body body) {
  const Quiet quiet;
  count_call();
  if (const Status status = refusal(); status != 0) return status;
  if (traits & blocks) may_block(function);
  const Status injected = next_failure(function);
  const ContextHandle context = current_context();
  if ((traits & current) && context == nullptr) return invalid_context;
  const Status sticky = traits & current ? sticky_error(context) : 0;
  if (traits & releases) {
    const Status status = body(context);
    return status != 0 ? status : injected != 0 ? injected : sticky;
  }
  if (injected != 0) return injected;
  return sticky != 0 ? sticky : body(context);
}

}  // namespace fake
