// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <span>

#include "transports/rdma/devices.h"

namespace rondo::rdma {

// The completions of all queue pairs of a transport on one device, and the channel that a rank
// sleeps on. Thread-bound (the driver of the transport), without locks.
class Completions {
 public:
  // entries: what may be complete and not polled yet. Throws Error(system).
  Completions(Device& device, std::size_t entries);
  ~Completions();
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  Device& device() const noexcept { return device_; }
  ibv_cq* queue() const noexcept { return queue_; }
  int descriptor() const noexcept { return channel_->fd; }
  // Sets entries aside for another queue pair. Throws Error(system) when there are too few.
  void reserve(std::size_t entries);
  static constexpr std::size_t most_at_once = 32;
  // Takes what is complete, a bounded number.
  std::span<const ibv_wc> poll();
  // Asks for an event at the next completion. Poll once more after it.
  void arm();
  // The channel is readable.
  void take_event() noexcept;
  // The device does not let the queue be read.
  bool failed() const noexcept { return failed_; }

 private:
  Device& device_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* queue_ = nullptr;
  std::size_t entries_ = 0, free_entries_ = 0;
  bool armed_ = false, failed_ = false;
  std::array<ibv_wc, most_at_once> batch_{};
  const unsigned generation_ = base::process_generation();
};

}  // namespace rondo::rdma
