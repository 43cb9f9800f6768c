// SPDX-License-Identifier: Apache-2.0
//
// Starts the copies and kernels of direct operations on one GPU. Each kind of step has a queue of
// its own, so a chunk is copied in while another one is combined.
//
// Where all buffers are in windows, a kernel reads the inputs and writes the outputs of all ranks.
// Other buffers go through slots in memory of the GPUs, where kernels combine too. If a rank has no
// slots there, chunks go through slots in host memory, as they do where no GPU is. The GPU then
// copies between its buffers and pinned memory (carriers), and this rank's processor between
// carriers and slots; the processor also combines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <rondo/types.h>

#include "collectives/direct/exchange.h"
#include "collectives/direct/mover.h"
#include "collectives/gpu/port.h"
#include "collectives/gpu/slots.h"
#include "device/objects.h"
#include "transports/gpu_windows.h"

namespace rondo::gpu {

class Mover final : public OnPort<direct::Mover> {
 public:
  struct Size {
    std::size_t ranks = 1;
    std::size_t slot_bytes = 0;      // of a slot in the host's memory
    std::size_t gpu_slot_bytes = 0;  // of one in the GPU's
  };
  // windows: those of memory on GPUs. They outlive the object, as gpu does. Loads the kernels.
  Mover(const device::Gpu& gpu, transports::GpuWindows& windows, const Size& size, bool urgent,
        std::shared_ptr<operation::Waker> waker);

  // See GpuSlots::make_wanted().
  void make_wanted_slots() { slots_.make_wanted(); }
  // See Port.
  void abandon() noexcept;

  bool await_copies(base::TimePoint until) noexcept override;
  std::size_t bytes() const noexcept override { return port_.bytes() + slots_.bytes(); }

  transports::Windows& windows() noexcept override { return windows_; }
  // Without kernels it cannot combine where buffers lie.
  bool works_in_windows(bool reduces) const noexcept override {
    return windows_.reaches_all() && (!reduces || most_blocks_ != 0);
  }
  std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) override {
    return windows_.map_for(port_.gpu(), rank, place, bytes);
  }
  transports::WindowPlace place_of_slots() const noexcept override { return slots_.place(); }
  Slots slots() const noexcept override { return {slots_.memory(), slots_.slot_bytes()}; }
  void want_slots() noexcept override { slots_.want(); }

  bool load_value(const operation::DirectOperation& next) override;
  const std::byte* value() const noexcept override { return port_.memory(); }
  void posted(bool has_value) noexcept override;
  void ended() noexcept override;
  std::byte* result() noexcept override { return port_.memory() + most_value_bytes; }
  void store_result(direct::Exchange& first) override;
  bool result_landed() override;

  bool may_start(direct::Counter kind) const noexcept override {
    return started_[index(kind)] - landed_[index(kind)] < depth;
  }
  void copy_in(direct::Exchange& first, std::uint64_t chunk) override;
  void combine(direct::Exchange& first, std::uint64_t chunk) override;
  void copy_out(direct::Exchange& first, std::uint64_t chunk) override;
  bool landed(direct::Exchange& first, direct::Counter kind, std::uint64_t chunk) override;
  std::string awaited_work(bool posted) const override;

 private:
  // Steps of one kind that may be under way, each with room for a chunk that goes through the host.
  static constexpr std::size_t depth = 2;
  static constexpr std::size_t most_value_bytes = direct::most_eager_bytes;
  static constexpr std::size_t load_queue = direct::counter_kinds,
                               store_queue = direct::counter_kinds + 1,
                               queues = direct::counter_kinds + 2;
  // Bytes of a value: where they lie in the buffer, and where in value() or result().
  struct Piece {
    std::size_t in_buffer = 0, in_value = 0, bytes = 0;
  };

  static constexpr std::size_t index(direct::Counter kind) noexcept {
    return static_cast<std::size_t>(kind);
  }
  static std::size_t pinned_bytes(const Size& size) noexcept {
    return most_value_bytes * (1 + size.ranks) + direct::counter_kinds * depth * size.slot_bytes;
  }
  device::CopyQueue& queue(direct::Counter kind) noexcept { return port_.queue(index(kind)); }

  void load_kernels(const void* image);
  void list_pieces(const operation::DirectOperation& operation, bool one_block, std::size_t bytes);

  // Host memory for the step of this chunk, until it has landed.
  std::byte* carrier(direct::Counter kind, std::uint64_t chunk) noexcept;
  void to_host(direct::Counter kind, std::byte* to, const std::byte* from, std::size_t bytes);
  void to_device(direct::Counter kind, std::byte* to, const std::byte* from, std::size_t bytes);
  void on_device(direct::Counter kind, std::byte* to, const std::byte* from, std::size_t bytes);
  void end_step(direct::Counter kind);

  void copy_in_to_carrier(const direct::Exchange& first, std::uint64_t chunk);
  void copy_in_to_slot(const direct::Exchange& first, std::uint64_t chunk);
  void combine_in_host(direct::Exchange& first, const direct::DirectPart& part,
                       std::uint64_t chunk);
  void combine_by_kernel(direct::Exchange& first, const direct::DirectPart& part,
                         std::uint64_t chunk);
  void take_own_pinned(const direct::Exchange& first, const direct::Exchange::Taken& block,
                       std::uint64_t chunk);

  enum class Value { none, loading, loaded };

  const Size size_;
  transports::GpuWindows& windows_;
  GpuSlots slots_;
  std::unique_ptr<device::Module> module_;
  std::array<device::FunctionHandle, dtype_count> functions_{};
  unsigned most_blocks_ = 0;  // of a launch; 0: there are no kernels
  std::array<std::uint64_t, direct::counter_kinds> started_{}, landed_{};
  std::vector<Piece> pieces_;  // of the value that is loaded or stored
  Value value_ = Value::none;
  bool storing_ = false, holds_windows_ = false;
};

}  // namespace rondo::gpu
