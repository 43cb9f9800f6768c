// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rondo/batch_norm.h>

#include "bn/layer/device/objects.h"
#include "bn/layer/kernels/coefficients.h"
#include "bn/statistics/values.h"

namespace rondo::layer {

// The arrays of a layer on a GPU, and the launches of kernels that use them. It enqueues on
// a stream and waits for no kernel. Every call that enqueues comes in the life of an Enqueuing.
// Thread-bound. Throws Error(system).
class GpuWork {
 public:
  // Orders what is enqueued in its life behind earlier work on the layer's memory and on a record,
  // perhaps on another stream. end() orders later work behind it. The GPU's context is current.
  class Enqueuing {
   public:
    // record: null if none is used.
    Enqueuing(GpuWork& work, GpuRecord* record);
    // Ends by itself what an exception leaves: kernels may be under way, and the memory stays
    // theirs.
    ~Enqueuing();
    Enqueuing(const Enqueuing&) = delete;
    Enqueuing& operator=(const Enqueuing&) = delete;
    void end();

   private:
    const device::Current current_;
    GpuWork& work_;
    GpuRecord* record_;
    bool ended_ = false;
  };

  GpuWork(std::shared_ptr<GpuKernels> kernels, std::size_t channels,
          const BatchNormOptions& options);
  // Waits for work under way, at most 10 s. What work may still use after that is never freed.
  ~GpuWork();

  const std::shared_ptr<GpuKernels>& kernels() const noexcept { return kernels_; }
  const device::Gpu& gpu() const noexcept { return kernels_->gpu(); }
  void set_stream(device::StreamHandle stream) noexcept { stream_ = stream; }
  device::StreamHandle stream() const noexcept { return stream_; }
  // Waits for work under way, at most 10 s. Returns whether it has ended.
  bool settle() const noexcept { return use_.settle(); }

  // The layer's own arrays, zero at first. Each has room for [channels] f64.
  std::byte* own_arrays() const noexcept { return reinterpret_cast<std::byte*>(array(own_at)); }
  static constexpr std::size_t own_array_count = 4;
  Buffer point() const noexcept { return buffer(point_at); }
  Buffer mean() const noexcept { return buffer(mean_at); }
  Buffer variance() const noexcept { return buffer(variance_at); }
  // Sets gamma and the running variance to 1, on a stream of its own, and waits for that.
  void fill(const statistics::LayerBuffers& buffers);

  // The moments of x about the point.
  void take_moments(const Activations& x, TensorLayout layout);
  // Writes the rank's section. again: the moments of before, about another point.
  void put_moments(double* section, const SectionHead& head, double count, bool again);
  // Takes the sums over all ranks, and/or ends the pass with statistics and coefficients.
  void end_moments(ChannelsTask task, double* section, const GpuRecord& record,
                   const statistics::LayerBuffers& buffers, double momentum);
  // The coefficients of an evaluation, from the running statistics.
  void evaluation(const GpuRecord& record, const statistics::LayerBuffers& buffers);

  // The sums of dy and dy * (x - mean). section: where they go; null: not to other ranks.
  void take_gradient_sums(const Activations& x, TensorLayout layout, const void* dy,
                          const GpuRecord& record, double* section, const SectionHead& head);
  // The gradients of this rank and the coefficients of dx. section: the sums over all ranks; null:
  // there is no dx.
  void end_gradient_sums(double* section, const GpuRecord& record,
                         const BatchNormGradients& gradients);

  // y or dx, with the coefficients of the pass.
  void map(DeviceKernel kernel, const Activations& x, TensorLayout layout, const void* dy,
           void* out);

 private:
  // Arrays of [channels] f64.
  enum Array : std::size_t {
    mean_at,
    rest_at,
    m2_at,
    point_at,
    variance_at,
    center_at,
    offset_at,
    own_m2_at,
    far_at,
    sums_at,
    lines_at = sums_at + 2,
    own_at = lines_at + coefficient_count,
    array_count = own_at + own_array_count
  };

  double* array(std::size_t which) const noexcept { return arrays_->data() + which * channels_; }
  Buffer buffer(std::size_t which) const noexcept {
    return {array(which), channels_, DType::f64, gpu().ordinal()};
  }
  template <class Arguments>
  void launch(DeviceKernel kernel, const Arguments& arguments, unsigned blocks) const {
    kernels_->launch(kernel, type_, arguments, blocks, stream_);
  }
  void add_up(DeviceKernel kernel, SumArguments& arguments);
  FoldArguments fold(FoldTask task, double count) const noexcept;
  void point_moments(FoldArguments& arguments) const noexcept;
  ChannelsArguments channels(ChannelsTask task,
                             const statistics::LayerBuffers& buffers) const noexcept;

  const std::shared_ptr<GpuKernels> kernels_;
  const std::size_t channels_;
  const DType type_;
  const double epsilon_;
  device::StreamHandle stream_ = nullptr;
  std::unique_ptr<GpuArrays> arrays_, partials_;
  std::uint32_t parts_ = 0;  // that partials_ has now
  StreamUse use_;
};

}  // namespace rondo::layer
