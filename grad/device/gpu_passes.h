// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "device/objects.h"
#include "grad/device/bucket_kernels.h"
#include "grad/device/results.h"
#include "grad/passes.h"
#include "grad/setup.h"

namespace rondo::grad {

// Passes on the GPU that the gradients are on. Its kernels run on one stream of its own, the bucket
// stream, which each collective comes after and which then waits for its end. So what is on the
// bucket stream never meets copies of the communicator. Orders with the program's streams:
//
// - A bucket's load comes after the ready events of its parameters: then gradients are complete.
// - All loads of a step come after the stream of begin_step(), and after that of finish() where
//   gradients become unused there: the program uses none that nobody calls ready() for.
// - A copy to a view, in a step that gives nothing, comes after the last use of gradients. Zeroing
//   and clipping also come after the ready events of their step.
// - The bucket stream comes after zeroing and clipping: it finds their results.
// - The stream of finish() comes after the last use, and after ready events that no load waits for:
//   it finds the results, and may use what it has given.
//
// The host waits for kernels in complete() without a stream, and for norms in squares(), once after
// each step.
//
// Locks: one mutex, held while work is enqueued, which does not block. After the constructor only
// make_room_to_save() allocates or makes objects of CUDA. After a failure kernels that wait for the
// program's streams may still be enqueued: settle() waits for them.
class GpuPasses final : public Passes {
 public:
  // Throws as BucketKernels does.
  GpuPasses(const Setup& setup, int ordinal);

  void check_stream(std::string_view call, void* stream) const override;
  bool takes(const void*) const noexcept override { return true; }
  void check_gradient(std::size_t parameter, const void* gradient) const override;
  bool take(std::size_t parameter, const void* gradient, void* stream) override;
  void zero(void* stream) override;
  void begin_step(void* stream, bool gives) override;
  void order_after(void* stream) override;
  void make_room_to_save() override;
  void load(std::size_t bucket, std::span<const LoadedPart> parts, double factor,
            bool save) override;
  void* stream() const noexcept override { return stream_.get(); }
  bool ends_in_finish() const noexcept override { return false; }
  void await(const Work& work, bool on_host) override;
  void store(std::size_t bucket, std::span<const StoredPart> parts, double scale) override;
  void add_squares(std::span<const SquareRange> ranges) override;
  void add_up_squares(std::span<const BlockSums> gradients) override;
  std::span<const double> squares() override;
  void clip(double max_norm, std::span<const ClipRange> ranges, void* stream) override;
  void complete(std::optional<void*> stream) override;
  bool settle(std::chrono::milliseconds time) noexcept override;

 private:
  // What ready() has said of a parameter.
  struct Given {
    std::uint64_t step = 0;             // in which it was ready
    const std::byte* source = nullptr;  // in that step; null: its view
    bool pending = false;               // the bucket stream has not waited for its event
  };

  const device::Gpu& gpu() const noexcept { return kernels_.gpu(); }
  std::string who(std::string_view call) const;
  void make_wait(device::StreamHandle stream, const device::Event& event);
  void record(device::Event& event, device::StreamHandle stream);
  void come_after_all(device::StreamHandle stream);
  void come_before_all(device::StreamHandle stream);
  template <class Body>
  void in_order(void* stream, const Body& body);
  void await_ready(std::size_t parameter);
  void await_all_ready();
  // Where the bytes of a part come from.
  std::byte* saved_at(std::size_t arena, std::size_t offset) const noexcept;
  const std::byte* source_of(std::size_t arena, const LoadedPart& part) const noexcept;
  void load_plain(std::size_t arena, std::span<const LoadedPart> parts, bool save);
  void load_wire(std::size_t bucket, std::span<const LoadedPart> parts, double factor);
  void store_plain(std::size_t arena, std::span<const StoredPart> parts);
  void store_wire(std::size_t bucket, std::span<const StoredPart> parts, double scale);
  void check_overflow();
  training::GpuWait wait() const noexcept;

  std::byte* block_sum_at(std::size_t block) const noexcept;

  const Setup& setup_;
  const BucketKernels kernels_;
  device::Stream stream_;               // the bucket stream
  device::Event mark_;                  // of a stream that the bucket stream then waits for
  device::Event last_;                  // the last use of gradients by zero() or the bucket stream
  std::vector<device::Event> readies_;  // by parameter
  std::vector<std::optional<device::DeviceMemory>> saved_;  // by arena

  // With norms: the sums of blocks. With them or f16 on the wire: what the host learns of a step.
  std::optional<device::DeviceMemory> block_sums_;
  std::optional<Results> results_;

  std::mutex mutex_;  // of the fields below
  std::vector<Given> given_;
  std::uint64_t step_ = 0;  // counts every step, from 1
  bool gives_ = false;      // in this step
};

}  // namespace rondo::grad
