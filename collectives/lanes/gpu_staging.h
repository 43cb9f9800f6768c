// SPDX-License-Identifier: Apache-2.0
//
// Carries the operations of one lane whose buffers are on one GPU. Copies their segments to pinned
// host memory before they open, and results back when their steps are done, while links and the CPU
// work on other segments (Run::staged). Nothing on a stream waits for another process.
//   - The staging memory has two halves, each with streams of its own. An operation uses one half
//     until it ends. So the first segments of an operation are loaded while the last ones of the
//     operation before are stored, and on its own GPU no operation waits for the caller's stream of
//     another.
//   - No copy is enqueued before the operation's mark has been reached: see gpu_port.h.
//   - TwoLevelOwner may take over one direction or both: it writes sums to the staging memory of a
//     segment, or copies from there what the links have brought, and then calls Run::stored().
//
// Threads and failures: as in gpu_port.h.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fifo.h"
#include "collectives/operation/gpu_port.h"
#include "collectives/operation/operation.h"
#include "collectives/operation/waker.h"
#include "device/gpu.h"

namespace rondo::lanes {

class GpuStaging {
 public:
  // half_bytes: of staging memory, the most that one operation may need. gpu outlives the object.
  GpuStaging(const device::Gpu& gpu, std::size_t half_bytes, bool urgent,
             std::shared_ptr<operation::Waker> waker);

  operation::GpuPort& port() noexcept { return port_; }
  const operation::GpuPort& port() const noexcept { return port_; }
  std::size_t half_bytes() const noexcept { return half_bytes_; }

  // The operation has begun, is staged and has its mark.
  void begin(operation::ScheduledOperation& operation) noexcept;
  bool idle() const noexcept {
    return waiting_.empty() && halves_[0].owner == nullptr && halves_[1].owner == nullptr;
  }
  // Does what can be done now. True when anything was.
  bool advance();
  // An operation that is complete, which this object then forgets; null when there is none.
  operation::ScheduledOperation* take_complete() noexcept;
  // Whether what was enqueued before the call is done. Throws as GpuPort::reached() does.
  bool reached(operation::ScheduledOperation& operation) const;
  // Makes the stream wait for the operation's last store. Requires that it is enqueued().
  void join(const operation::ScheduledOperation& operation, device::StreamHandle stream);
  // Whether everything of another operation has been enqueued since the last call.
  bool take_enqueued() noexcept { return std::exchange(any_enqueued_, false); }
  // Makes the GPU wake the driver when it has done something that advance() waits for. False: it
  // already has.
  bool prepare_sleep();
  // Does the same for the mark of an operation alone.
  bool watch(operation::ScheduledOperation& operation);
  // Forgets all operations. Their copies may still be under way.
  void clear() noexcept;
  // "GPU 1, which has not yet done ...", if the operation's mark has not been reached; else empty.
  std::string awaited(const operation::ScheduledOperation& operation) const;

 private:
  struct Half {
    operation::ScheduledOperation* owner = nullptr;
    std::byte* memory = nullptr;
    device::CopyQueue* loads = nullptr;
    device::CopyQueue* stores = nullptr;
  };
  bool has_news(const Half& half) const;
  bool grant();
  bool advance(Half& half);
  bool load(Half& half);
  bool store(Half& half);

  const std::size_t half_bytes_;
  operation::GpuPort port_;
  std::array<Half, 2> halves_;
  struct Linked {
    static auto& of(operation::ScheduledOperation& operation) noexcept {
      return operation.on_gpu.next;
    }
  };
  base::Fifo<operation::ScheduledOperation, Linked> waiting_;  // for a half
  bool any_enqueued_ = false;
  std::vector<operation::Run::Copy> copies_;  // of the segment that is being enqueued
};

}  // namespace rondo::lanes
