// SPDX-License-Identifier: Apache-2.0
//
// Gradients that no rank has given stay as they are. A bit for each parameter travels: where ranks
// may find out about unused ones in finish(), after all buckets; where they only name them at the
// start, before the first bucket.
#include "grad/state.h"

namespace rondo {

void GradientBuckets::State::start_usage() {
  {
    const std::lock_guard lock(mutex_);
    usage_.assign(usage_.size(), 0);
    for (std::size_t parameter = 0; weight_ > 0 && parameter < marks_.size(); ++parameter)
      if (marks_[parameter] != Mark::unused || accumulated_[parameter])
        usage_[parameter / 64] |= std::uint64_t{1} << parameter % 64;
  }
  const Buffer buffer = buffer_of(std::span(usage_));
  usage_work_ = communicator_.all_reduce(buffer, buffer, ReduceOp::bit_or,
                                         operation_options("gradients in use"));
}

// By every rank. In a step in which no rank takes part all gradients become zero.
bool GradientBuckets::State::untouched(std::size_t parameter) const noexcept {
  return tells_unused() && plan_.active > 0 && (usage_[parameter / 64] >> parameter % 64 & 1) == 0;
}

}  // namespace rondo
