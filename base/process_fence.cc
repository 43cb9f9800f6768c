// SPDX-License-Identifier: Apache-2.0
#include "base/process_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace rondo::base {
namespace {

bool membarrier(int command) noexcept {
  return ::syscall(SYS_membarrier, command, 0, 0) == 0;
}

}  // namespace

bool join_process_fences() noexcept {
  return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
         membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
}

// A system that begins to refuse leaves a fence of this thread alone. Then a wake-up may be lost,
// and the sleep ends by its time limit.
void heavy_fence() noexcept {
  if (!membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace rondo::base
