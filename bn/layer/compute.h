// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <rondo/batch_norm.h>

#include "bn/layer/device/work.h"
#include "bn/layer/model.h"
#include "bn/layer/pass.h"

namespace rondo::layer {

// Where a layer computes: on the processor or on a GPU. The arguments have been checked, and the
// communicator is there. The calls for one pass are a begin and an end with the same arguments; an
// evaluation may come in between. Throws Error; then the pass has ended. Thread-bound.
class Compute {
 public:
  virtual ~Compute() = default;

  // Takes the stream for the next calls: that of the pass under way or, for a new pass and for an
  // evaluation, the one that was set last. Returns what is wrong with it, or nothing.
  virtual std::string take_stream(bool of_pass_under_way) = 0;
  virtual void set_stream(void* stream) noexcept = 0;
  virtual void set_threads(int threads) noexcept = 0;

  // Takes the sums of x and sends them to the other ranks.
  virtual void begin_forward(PassRecord& pass, const Activations& x) = 0;
  // Merges the sums of all ranks, writes the record, the running statistics and y.
  virtual void end_forward(PassRecord& pass, const Activations& x, void* y) = 0;
  // Begin and end do the same with the sums of dy and dy * (x - mean).
  virtual void begin_backward(const PassRecord& pass, const Activations& x, const void* dy) = 0;
  virtual void end_backward(const PassRecord& pass, const Activations& x, const void* dy, void* dx,
                            const BatchNormGradients& gradients) = 0;
  // Without a collective.
  virtual void backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                                   const BatchNormGradients& gradients) = 0;
  virtual void evaluate(const Activations& x, void* y) = 0;
  // Waits for the collective of a pass under way and forgets it.
  virtual void dissolve() noexcept = 0;

  // Returns what is wrong with memory that the layer is to use; empty if nothing is.
  virtual std::string problem_of(const void* data, std::size_t bytes) const = 0;
  virtual Buffer point() noexcept = 0;
  virtual Buffer mean() noexcept = 0;
  virtual Buffer variance() noexcept = 0;
};

// Binds the layer's own arrays to the model: gamma, beta and the running statistics. Throws Error.
std::unique_ptr<Compute> compute_on_host(Model& model);
std::unique_ptr<Compute> compute_on_gpu(Model& model);

// Rounds of collectives of one forward pass, at most. Each brings the point nearer by 50 binary
// digits, and two numbers of f64 are at most 2100 digits apart: see moments.h.
inline constexpr int most_rounds = 48;

// The layer's own arrays, one behind the other.
inline constexpr std::size_t own_arrays = GpuWork::own_array_count;
inline void bind_own_arrays(Model& model, std::byte* first, int device) noexcept {
  const DType type = model.parameter_type();
  const auto array = [&](std::size_t which, bool exists) {
    return exists ? Buffer{first + which * model.channels * size_of(type), model.channels, type,
                           device}
                  : Buffer{nullptr, 0, type, device};
  };
  model.buffers = {array(0, model.has_gamma()), array(1, model.has_beta()), array(2, true),
                   array(3, true)};
}

}  // namespace rondo::layer
