// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include <rondo/batch_norm.h>

#include "bn/layer/model.h"
#include "bn/layer/place.h"

namespace rondo::layer {

// The arrays of a layer, and the computations with them. Every call that computes comes in the life
// of an Enqueuing. Thread-bound. Throws Error(system).
class Arrays {
 public:
  // Orders what comes in its life behind earlier work on the layer's memory and on a record,
  // perhaps on another stream. end() orders later work behind it. A GPU's context is current.
  class Enqueuing {
   public:
    // record: null if none is used.
    Enqueuing(Place& place, RecordMemory* record);
    // Ends by itself what an exception leaves: kernels may be under way, and the memory stays
    // theirs.
    ~Enqueuing();
    Enqueuing(const Enqueuing&) = delete;
    Enqueuing& operator=(const Enqueuing&) = delete;
    void end();

   private:
    const std::optional<device::Current> current_;
    Place& place_;
    RecordMemory* const record_;
    bool ended_ = false;
  };

  static constexpr std::size_t elements(std::size_t channels) noexcept {
    return array_count * channels;
  }
  // place: has that many elements, and outlives the object.
  Arrays(Place& place, std::size_t channels, DType type, double epsilon, int device) noexcept
      : place_(place), channels_(channels), type_(type), epsilon_(epsilon), device_(device) {}

  // The arrays that the layer owns, as f64 for activations of f64, else f32.
  BatchNormBuffers own(bool gamma, bool beta) const noexcept;
  Buffer point() const noexcept { return buffer(point_at); }
  Buffer mean() const noexcept { return buffer(mean_at); }
  Buffer variance() const noexcept { return buffer(variance_at); }
  // On the processor: makes 0 of infinity and NaN that a program may have written into the point
  // (SyncBatchNorm::point).
  void mend_point() noexcept;
  // Sets gamma and the running variance to 1.
  void fill(const BatchNormBuffers& buffers);

  // The moments of x about the point, or about a better one.
  void take_moments(const Activations& x, TensorLayout layout);
  // Writes the rank's section. again: the moments of before, about another point.
  void put_moments(const Section& section, const SectionHead& head, double count, bool again);
  // Takes the sums over all ranks, and/or ends the pass with statistics and coefficients.
  void end_moments(ChannelTask task, const Section& section, const RecordMemory& record,
                   const BatchNormBuffers& buffers, double momentum);
  // The coefficients of an evaluation, from the running statistics.
  void evaluation(const RecordMemory& record, const BatchNormBuffers& buffers);

  // The sums of dy and dy * (x - mean). They go to the section, if there is one.
  void take_gradient_sums(const Activations& x, TensorLayout layout, const void* dy,
                          const RecordMemory& record, const Section& section,
                          const SectionHead& head);
  // The gradients of this rank, and, if there is a section, the coefficients of dx.
  void end_gradient_sums(const Section& section, const RecordMemory& record,
                         const BatchNormGradients& gradients);

  // y or, where there is a dy, dx, with the coefficients of the pass.
  void map(const Activations& x, TensorLayout layout, const void* dy, void* out);

 private:
  double* array(Array which) const noexcept { return place_.arrays() + which * channels_; }
  Buffer buffer(Array which) const noexcept {
    return {array(which), channels_, DType::f64, device_};
  }
  ChannelArguments arguments_of(ChannelTask task, const RecordMemory* record = nullptr,
                                const Section& section = {},
                                const BatchNormBuffers& buffers = {}) const noexcept;

  Place& place_;
  const std::size_t channels_;
  const DType type_;
  const double epsilon_;
  const int device_;
};

}  // namespace rondo::layer
