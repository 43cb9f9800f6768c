// SPDX-License-Identifier: Apache-2.0
//
// Copies the segments of collectives between memory of one GPU and pinned host memory, where links
// and the CPU work on them. Nothing on a stream waits for another process.
//
// The staging memory has two halves, each with streams of its own. An operation uses one half until
// it ends. So the first segments of an operation are loaded while the last ones of the operation
// before are stored, and on its own GPU no operation waits for the caller's stream of another.
//
// Threads and failures: as in device_memory.h.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "base/fifo.h"
#include "collectives/gpu/port.h"
#include "collectives/lanes/staging.h"

namespace rondo::gpu {

class SegmentStaging final : public OnPort<lanes::Staging> {
 public:
  // half_bytes: of staging memory, the most that one operation may need. gpu outlives the object.
  SegmentStaging(const device::Gpu& gpu, std::size_t half_bytes, bool urgent,
                 std::shared_ptr<operation::Waker> waker);

  void begin(operation::ScheduledOperation& operation) noexcept override {
    waiting_.push(operation);
  }
  bool idle() const noexcept override {
    return waiting_.empty() && halves_[0].owner == nullptr && halves_[1].owner == nullptr;
  }
  bool advance() override;
  operation::ScheduledOperation* take_complete() noexcept override;
  void join(const operation::Operation& operation, Stream stream) override;
  bool take_enqueued() noexcept override { return std::exchange(any_enqueued_, false); }
  void forget_all() noexcept override;

 private:
  struct Half {
    operation::ScheduledOperation* owner = nullptr;
    std::byte* memory = nullptr;
    device::CopyQueue* loads = nullptr;
    device::CopyQueue* stores = nullptr;
  };
  bool grant();
  bool advance(Half& half);
  bool load(Half& half);
  bool store(Half& half);

  const std::size_t end_event_;  // for join()
  std::array<Half, 2> halves_;
  struct Linked {
    static auto& of(operation::ScheduledOperation& operation) noexcept {
      return operation.staged.next;
    }
  };
  base::Fifo<operation::ScheduledOperation, Linked> waiting_;  // for a half
  bool any_enqueued_ = false;
  std::vector<operation::Run::Copy> copies_;  // of the segment that is being enqueued
};

}  // namespace rondo::gpu
