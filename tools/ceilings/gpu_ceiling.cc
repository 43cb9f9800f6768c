// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/gpu_ceiling.h"

#include <exception>

#include "tools/measure/agree.h"

namespace rondo::tools {

double GpuCeiling::measure(const Row& /*row*/) {
  double rate = 0;
  try {
    if (gpu_ != nullptr) rate = 2 * gpu_->measure(GpuCopy::on_gpu, copy_bytes_) / 1e9;
  } catch (const std::exception& error) {
    trouble_ = error.what();
  }
  const bool failed = maximum_over_ranks(communicator_, trouble_.empty() ? 0 : 1) > 0;
  const double sum = sum_over_ranks(communicator_, rate);
  return failed ? 0 : sum;
}

}  // namespace rondo::tools
