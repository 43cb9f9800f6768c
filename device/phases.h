// SPDX-License-Identifier: Apache-2.0
//
// How a kernel for GPUs is written, so that the same source also runs on the processor, in tests
// (docs/reference/device-kernels.md). A kernel is a struct:
//
//   struct Kernel {
//     using Arguments = ...;          // plain data, at most 4 KiB
//     struct Shared { ... };          // what the threads of a block share; not initialized
//     static constexpr int phases = 1;
//     RONDO_HD static void run(int phase, const Arguments&, Shared&, const GridThread&);
//     // visit(pointer, bytes) for each pointer in the arguments, with how far the kernel uses it;
//     // visit may change the pointer
//     template <class Visit> static void for_each_pointer(Arguments&, Visit&& visit);
//   };
//
// Between two phases all threads of a block wait for each other. On the processor a phase runs for
// one thread after the other, so a value that a later phase needs lies in Shared or in memory:
//
//   phase 0: int mine = f(thread.index);            // wrong: lost before phase 1
//   phase 0: shared.values[thread.index] = f(...);  // right
#pragma once

#include <cstddef>

#include "base/host_device.h"

namespace rondo::device {

// Threads of a block in every launch. The kernels are compiled for no more.
inline constexpr unsigned block_threads = 256;

// A thread's place in a launch, which has one dimension.
struct GridThread {
  unsigned index, threads;  // in its block
  unsigned block, blocks;

  RONDO_HD std::size_t place() const noexcept {
    return static_cast<std::size_t>(block) * threads + index;
  }
  RONDO_HD std::size_t all() const noexcept { return static_cast<std::size_t>(blocks) * threads; }
};

}  // namespace rondo::device
