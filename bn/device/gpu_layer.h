// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include <rondo/batch_norm.h>

#include "bn/device/gpu_record.h"
#include "bn/device/launch.h"

namespace rondo::bn {

// Parameters, statistics and gradients of a layer, wherever they lie. Count 0: there are none.
struct LayerBuffers {
  Buffer gamma, beta, running_mean, running_variance;
};

// What a layer on a GPU computes: the counterpart of Passes, LocalMoments, GlobalMoments and Lines.
// It enqueues kernels on the caller's stream and waits for none of them. The calls come in the
// order of Layer's, between begin() and end(). Thread-bound. Throws Error(system).
class GpuLayer {
 public:
  GpuLayer(std::shared_ptr<GpuKernels> kernels, std::size_t channels,
           const BatchNormOptions& options);
  // Waits for work under way, at most 10 s. What work may still use after that is never freed.
  ~GpuLayer();
  GpuLayer(const GpuLayer&) = delete;
  GpuLayer& operator=(const GpuLayer&) = delete;

  const std::shared_ptr<GpuKernels>& kernels() const noexcept { return kernels_; }
  const device::Gpu& gpu() const noexcept { return kernels_->gpu(); }
  void set_stream(void* stream) noexcept { stream_ = static_cast<device::StreamHandle>(stream); }
  device::StreamHandle stream() const noexcept { return stream_; }
  bool settle() const noexcept { return use_.settle(); }

  // The layer's own arrays: gamma, beta, their gradients, running mean and variance. Begin as 0.
  std::byte* own_arrays() const noexcept;
  Buffer point() const noexcept { return buffer(point_at); }
  Buffer mean() const noexcept { return buffer(mean_at); }
  Buffer variance() const noexcept { return buffer(variance_at); }
  Buffer beta_gradient_sum() const noexcept { return buffer(global_sums_at); }
  Buffer gamma_gradient_sum() const noexcept { return buffer(global_sums_at + 1); }
  // Sets gamma and the running variance to 1, on a stream of its own, and waits for that.
  void fill(const LayerBuffers& buffers);

  // What is wrong with memory that the layer is to use; empty if it is on this GPU, and large
  // enough.
  std::string problem_of(const void* data, std::size_t bytes) const;

  // Every call that enqueues is between these. record: the one that it uses; null: none.
  void begin(GpuRecord* record);
  void end(GpuRecord* record);

  // The moments of x, about the point; own: for statistics of this rank alone.
  void moments(const Activations& x, TensorLayout layout, bool own);
  // Writes the rank's section. again: about another point.
  void put_forward(std::uintptr_t section, const SectionHead& head, double count, bool again);
  // Takes the sums over all ranks, and/or ends the pass with statistics and coefficients.
  void forward(bool merge, bool finish, std::uintptr_t section, GpuRecord& record,
               const LayerBuffers& buffers, double momentum);
  // The same with the running statistics, or with those of the own batch of `count` elements.
  void evaluation(bool running, double count, GpuRecord& record, const LayerBuffers& buffers);
  // y = x normalized with the coefficients.
  void map_forward(const Activations& x, TensorLayout layout, void* y,
                   const BatchNormFusion& fusion);

  void gradient_sums(const Activations& x, TensorLayout layout, const void* dy, const void* y,
                     GpuRecord& record);
  // Adds the partial sums; section 0: gives nothing to the other ranks.
  void put_backward(std::uintptr_t section, const SectionHead& head, double count,
                    GpuRecord& record);
  void backward(BackwardKind kind, std::uintptr_t section, GpuRecord& record,
                const BatchNormGradients& gradients);
  void map_backward(const Activations& x, TensorLayout layout, const void* dy, void* dx, bool fixed,
                    const void* y, void* dz);

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
    // The same four of an evaluation, which may come while a forward pass is under way.
    evaluated_at,
    sums_at = evaluated_at + 4,
    global_sums_at = sums_at + 2,
    lines_at = global_sums_at + 2,
    own_at = lines_at + 5,
    array_count = own_at + 6
  };

  double* array(std::size_t which) const noexcept { return arrays_->data() + which * channels_; }
  Buffer buffer(std::size_t which) const noexcept {
    return {array(which), channels_, DType::f64, kernels_->gpu().ordinal()};
  }
  void add_up(DeviceKernel kernel, SumArguments& arguments);
  FoldArguments fold(FoldTask task, double count) const noexcept;
  void point_moments(FoldArguments& arguments, bool own) const noexcept;
  ChannelsArguments channels(ChannelsTask task) const noexcept;
  template <class Arguments>
  void launch(DeviceKernel kernel, const Arguments& arguments, unsigned blocks) const {
    kernels_->launch(kernel, type_, arguments, blocks, stream_);
  }

  const std::shared_ptr<GpuKernels> kernels_;
  const std::size_t channels_;
  const DType type_;
  const double epsilon_;
  device::StreamHandle stream_ = nullptr;
  std::unique_ptr<GpuArrays> arrays_, partials_;
  std::uint32_t parts_ = 0;  // that partials_ has now
  StreamUse use_;
};

}  // namespace rondo::bn
