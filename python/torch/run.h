// SPDX-License-Identifier: Apache-2.0
//
// Backend::run, which makes every call of the backend: it starts operations and sees to their end.
#pragma once

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "python/torch/backend.h"

namespace rondo::python {

template <class Start, class After>
Backend::WorkPtr Backend::run_parts(const GroupCall& call, const Start& start, After after,
                                    bool idle) {
  const CallStream stream(call.inputs, call.outputs);
  const std::uint64_t sequence = ++sequence_;
  OpOptions options = options_of(call);
  options.stream = stream.handle();
  options.tag = c10d::get_comm_profiling_name();  // of dist.record_comm
  const auto pending = [&](Milliseconds timeout) {
    session_->prepare_finish();
    return c10::make_intrusive<PendingWork>(session_, getRank(), call, stream, sequence, timeout);
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
    if (!parts.empty())
      pending(options.deadline)
          ->begin(
              std::move(parts), [after] {}, true);
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
  work->begin(std::move(parts), std::move(after), idle);
  remember(work);
  if (coalescing_)
    coalesced_.push_back(work);
  else if (!call.async)
    work->wait(kNoTimeout);
  return work;
}

template <class Start>
Backend::WorkPtr Backend::run(const GroupCall& call, std::vector<Operands> operands,
                              const Start& start) {
  const std::span<const Operands> all(operands);  // stay where they are, also when they are moved
  const bool idle =
      std::ranges::none_of(all, [](const Operands& each) { return each.out.copies_back(); });
  return run_parts(
      call,
      [&](Communicator& communicator, OpOptions options, Parts& parts) {
        for (const Operands& each : all) {
          options.input_scale = each.how.factor;
          parts.push_back(start(communicator, each, options));
        }
      },
      [kept = std::move(operands)]() mutable {
        for (Operands& each : kept) each.out.copy_back();
      },
      idle);
}

}  // namespace rondo::python
