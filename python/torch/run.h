// SPDX-License-Identifier: Apache-2.0
//
// Backend::run, which makes every call of the backend: it starts operations and sees to their end.
#pragma once

#include <utility>

#include "python/torch/backend.h"

namespace rondo::python {

template <class Start, class After>
Backend::WorkPtr Backend::run(const Call& call, const Start& start, After after) {
  const CallStream stream(call.inputs, call.outputs);
  const std::uint64_t sequence = ++sequence_;
  OpOptions options = options_of(call);
  options.stream = stream.handle();
  const auto pending = [&](Milliseconds timeout) {
    session_->prepare_finish();
    return c10::make_intrusive<PendingWork>(session_, getRank(), call.type, call.title, call.inputs,
                                            call.outputs, stream, sequence, timeout,
                                            call.after_waits, call.after_all);
  };
  // On a GPU a blocking call returns before its end, so a work keeps the tensors.
  const bool lean = !call.async && !coalescing_ && !stream && !at::hasCallbacks();
  c10::intrusive_ptr<PendingWork> work;
  if (!lean) work = pending(options.deadline);
  Parts parts;
  try {
    session_->start([&](Communicator& communicator) { start(communicator, options, parts); });
  } catch (...) {
    // Operations that have started go on and use their memory.
    if (!parts.empty()) pending(options.deadline)->begin(std::move(parts), [after] {});
    throw;
  }
  if (lean) {
    session_->await_all(parts);
    const at::NoGradGuard no_gradient;
    after();
    if (call.after_all) session_->sides().order();
    if (!session_->completions().wanted()) return nullptr;
    return c10::make_intrusive<FinishedWork>(getRank(), call.type, sequence);
  }
  work->begin(std::move(parts), std::move(after));
  remember(work);
  if (coalescing_)
    coalesced_.push_back(work);
  else if (!call.async)
    work->wait(kNoTimeout);
  return work;
}

}  // namespace rondo::python
