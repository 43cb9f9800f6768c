// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <algorithm>

#include "quiet.h"
#include "settings.h"

namespace fake {
namespace {

// Memory was there when the work was enqueued.
[[noreturn]] void stop_for_memory(const char* function, Address address) {
  const Quiet quiet;
  stop_test(std::string(function) +
            ": memory went away before the work that uses it: " + memory().describe(address));
}

}  // namespace

bool CopyWork::run(Status*) {
  if (bytes_ == 0) return true;
  const std::size_t copied =
      memory().copy(to_ + done_, from_ + done_, std::min(bytes_ - done_, settings().piece));
  if (copied == 0) {
    const bool is_target = memory().storage_of(to_ + done_, 1) == nullptr;
    stop_for_memory(function_, (is_target ? to_ : from_) + done_);
  }
  done_ += copied;
  return done_ == bytes_;
}

bool FillWork::run(Status*) {
  if (bytes_ == 0) return true;
  const std::size_t filled =
      memory().fill(to_ + done_, value_, std::min(bytes_ - done_, settings().piece));
  if (filled == 0) stop_for_memory("cuMemsetD8Async", to_ + done_);
  done_ += filled;
  return done_ == bytes_;
}

bool RecordWork::run(Status*) {
  record_->status.store(rondo::device::success, std::memory_order_release);
  return true;
}

bool WaitWork::run(Status*) {
  (void)record_->status.load(std::memory_order_acquire);
  return true;
}

bool HostFunctionWork::run(Status*) {
  function_(argument_);
  return true;
}

KernelWork::KernelWork(RondoFakeKernel* run, const RondoFakeLaunch& launch,
                       std::vector<std::vector<std::byte>> parameters)
    : run_(run), launch_(launch), parameters_(std::move(parameters)) {
  for (auto& each : parameters_) pointers_.push_back(each.data());
  launch_.parameters = pointers_.data();
}

bool KernelWork::run(Status* status) {
  *status = run_(&launch_);
  return true;
}

}  // namespace fake
