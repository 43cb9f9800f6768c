// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <rondo/batch_norm.h>

#include "bn/layer/late_check.h"
#include "bn/layer/model.h"
#include "bn/layer/pass.h"
#include "bn/layer/place.h"
#include "bn/statistics/exchange.h"

namespace rondo::layer {

// The passes of a layer, on the processor or on a GPU. The arguments have been checked, and the
// communicator is there. The calls for one pass are a begin and an end with the same arguments; an
// evaluation may come in between. Throws Error; then the pass has ended. Thread-bound.
class Compute {
 public:
  // Binds the layer's own arrays to the model: gamma, beta and the running statistics. Throws
  // Error.
  explicit Compute(Model& model);
  ~Compute();

  // Takes the stream for the next calls: that of the pass under way or, for a new pass and for an
  // evaluation, the one that was set last. Returns what is wrong with it, or nothing.
  std::string take_stream(bool of_pass_under_way);
  void set_stream(void* stream) noexcept { next_stream_ = stream; }
  void set_threads() noexcept;

  // Takes the sums of x and sends them to the other ranks.
  void begin_forward(PassRecord& pass, const Activations& x);
  // Merges the sums of all ranks, writes the record, the running statistics and y.
  void end_forward(PassRecord& pass, const Activations& x, void* y);
  // Begin and end do the same with the sums of dy and dy * (x - mean).
  void begin_backward(const PassRecord& pass, const Activations& x, const void* dy);
  void end_backward(const PassRecord& pass, const Activations& x, const void* dy, void* dx,
                    const BatchNormGradients& gradients);
  // Without a collective.
  void backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                           const BatchNormGradients& gradients);
  void evaluate(const Activations& x, void* y);
  // Waits for the collective of a pass under way and forgets it.
  void dissolve() noexcept { exchange_.dissolve(); }

  // Returns what is wrong with memory that the layer is to use; empty if nothing is.
  std::string problem_of(const void* data, std::size_t bytes) const {
    return place_->problem_of(data, bytes);
  }
  BatchNormStatistics statistics() const noexcept;

 private:
  bool on_gpu() const noexcept { return model_.options.device >= 0; }
  double* array(Array which) const noexcept { return place_->arrays() + which * model_.channels; }
  Buffer buffer(Array which) const noexcept {
    return {array(which), model_.channels, DType::f64, model_.options.device};
  }
  BatchNormBuffers own_buffers() const noexcept;
  Section section() { return {exchange_.section(), exchange_.far_word()}; }
  RecordMemory* record_of(PassRecord& pass) const;
  ChannelArguments arguments_of(ChannelTask task, const RecordMemory* record) const noexcept;
  ChannelArguments arguments_with_buffers(ChannelTask task,
                                          const RecordMemory* record) const noexcept;

  // Takes the moments of x about the point, or about a better one.
  void take_moments(const Activations& x);
  // Starts the collective of the moments. again: the ranks repeat it about another point.
  void send_moments(const PassRecord& pass, bool again);
  void look_at_sums(const PassRecord& pass);
  // Takes the sums over all ranks, and/or ends the pass with statistics and coefficients.
  void end_moments(ChannelTask task, const PassRecord& pass, double momentum);
  // Takes the sums of dy and dy * (x - mean). Returns how to fold them.
  ChannelArguments gradient_sums(const PassRecord& pass, const Activations& x, const void* dy);
  // Computes the gradients of this rank and, if there is a section, the coefficients of dx.
  void end_gradients(const PassRecord& pass, const BatchNormGradients& gradients,
                     const Section& section);
  // Computes y or, where there is a dy, dx, with the coefficients of the pass.
  void map(const Activations& x, TensorLayout layout, const void* dy, void* out);

  // Folds the sums into the section.
  void fold(ChannelArguments arguments, const statistics::Position& position);
  void join();
  GpuReport& report();
  void expect_report(const statistics::Position& position, Model* layer);

  Model& model_;
  const std::unique_ptr<Place> place_;
  statistics::Exchange exchange_;
  void *stream_ = nullptr, *next_stream_ = nullptr, *pass_stream_ = nullptr;
  PassRecord evaluation_;
};

}  // namespace rondo::layer
