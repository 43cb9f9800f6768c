// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "grad/collecting.h"
#include "grad/header.h"
#include "grad/setup.h"

namespace rondo::grad {

// Finds the gradients that no rank gives in a step: they must stay as they are. One bit for each
// parameter travels. With find_unused it travels in finish(), after all buckets, because only then
// do ranks know what is unused. Where ranks only name unused parameters in begin_step(), it travels
// before the first bucket.
//
// Threads: start() on the holder of the launcher's role or on the step thread, which are never at
// work at once; everything else on the step thread.
// Locks: start() takes the collector's, once.
// Failure: start() and wait() throw what a collective throws.
class Usage {
 public:
  explicit Usage(const Setup& setup) : setup_(setup), bits_((setup.parameters.size() + 63) / 64) {}
  Usage(const Usage&) = delete;
  Usage& operator=(const Usage&) = delete;
  ~Usage();  // waits: the collective borrows the bits

  // Whether bits travel in a step with this plan.
  bool travels(const StepPlan& plan) const noexcept {
    return plan.hints || setup_.options.find_unused;
  }
  void start(const Collector& collector);
  void wait() { work_.wait(); }
  void release() { work_ = Work(); }
  // No rank gives this gradient. When no rank takes part at all, all gradients become zero instead.
  bool untouched(const StepPlan& plan, std::size_t parameter) const noexcept {
    return travels(plan) && plan.active > 0 && (bits_[parameter / 64] >> parameter % 64 & 1) == 0;
  }

 private:
  const Setup& setup_;
  std::vector<std::uint64_t> bits_;
  Work work_;
};

}  // namespace rondo::grad
