// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <rondo/batch_norm.h>

#include "bn/layer/arrays.h"
#include "bn/layer/late_check.h"
#include "bn/layer/model.h"
#include "bn/layer/pass.h"
#include "bn/layer/place.h"
#include "bn/statistics/exchange.h"

namespace rondo::layer {

// The passes of a layer, on the processor or on a GPU. The arguments have been checked, and the
// communicator is there. The calls for one pass are a begin and an end with the same arguments; an
// evaluation may come in between. Throws Error; then the pass has ended. Thread-bound.
class Compute final : public ReportReader {
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
  const Arrays& arrays() const noexcept { return arrays_; }
  void take_report(double count, bool far) noexcept override;

 private:
  bool on_gpu() const noexcept { return model_.options.device >= 0; }
  Section section() { return {exchange_.section(), exchange_.far_word()}; }
  RecordMemory& record_of(PassRecord& pass) const;
  void send_moments(const PassRecord& pass, bool again);
  void join();
  void look_at_sums(const PassRecord& pass);
  GpuReport& report();
  void expect_report(const statistics::Position& position, ReportReader* reader);

  Model& model_;
  const std::unique_ptr<Place> place_;
  Arrays arrays_;
  statistics::Exchange exchange_;
  void *stream_ = nullptr, *next_stream_ = nullptr, *pass_stream_ = nullptr;
  PassRecord evaluation_;
  int doubts_ = 1;  // on a GPU: passes to come whose sums the host looks at before their end
};

}  // namespace rondo::layer
