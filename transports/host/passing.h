// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstddef>
#include <span>

#include "base/file_descriptor.h"

namespace rondo::host {

inline constexpr std::size_t most_passed_bytes = 32;  // of a message

// Takes descriptors that peers pass. The transport calls it under the lock that guards progress().
class DescriptorSink {
 public:
  virtual ~DescriptorSink() = default;
  // message: as the peer wrote it, so it is checked.
  virtual void passed(int rank, std::span<const std::byte> message,
                      base::FileDescriptor descriptor) = 0;
  // Transport::halt() has been called: callers get their memory back soon.
  virtual void halted() noexcept = 0;
};

// Passes descriptors between the ranks of a transport's windows. The windows of shm and mem are
// such an object too; memory of GPUs (transports/cuda_ipc) needs it.
class DescriptorPassing {
 public:
  virtual ~DescriptorPassing() = default;
  // Passes a copy of the descriptor to the sink of `rank`, with at most most_passed_bytes. Returns
  // 0 or an errno: after a shortage (base/shortage.h) try again later. Thread-safe.
  virtual int pass_descriptor(int, std::span<const std::byte>, int) { return ENOTSUP; }
  // Whether the process of `rank` has ended without closing its transport. In doubt false.
  // Thread-safe.
  virtual bool has_died(int) const noexcept { return false; }
  // Null: what peers pass is dropped. The sink outlives this object or is taken away before.
  // Thread-bound: the thread that drives the transport.
  virtual void set_sink(DescriptorSink*) noexcept = 0;
};

}  // namespace rondo::host
