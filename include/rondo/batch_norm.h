// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization whose statistics are those of the batches of all ranks together.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.h>
#include <rondo/parameters.h>

namespace rondo {

// How a batch lies in memory: element (n, c, s) at (n * channels + c) * spatial + s, or at (n *
// spatial + s) * channels + c.
enum class TensorLayout : std::uint8_t { nchw, nhwc };

// A batch of activations, borrowed: samples x channels x spatial elements (spatial: height * width,
// 1 for plain vectors), contiguous. data may be null when there are no samples.
struct Activations {
  void* data = nullptr;
  std::size_t samples = 0;
  std::size_t spatial = 1;
};

struct RONDO_API BatchNormOptions {
  // The layer's name, for messages; the same on all ranks. Layers of one name, or without a name,
  // are numbered in the order in which they are made: make them in the same order on all ranks.
  std::string name{};
  DType type = DType::f32;  // of activations and their gradients: f64, f32, f16, bf16
  TensorLayout layout = TensorLayout::nchw;
  double epsilon = 1e-5;  // added to the variance
  // running = (1 - momentum) * running + momentum * new. No value: the cumulative average of all
  // batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;  // y = x_hat * gamma + beta; else y = x_hat
  // Else evaluation uses the statistics of its own batch, this rank's alone.
  bool track_running = true;
  int threads = 0;  // of the kernels; 0: the cores of this host divided by the ranks on it
  std::chrono::milliseconds deadline{0};  // of each collective; 0: that of the communicator
};

// y = (x - mean) / sqrt(var + epsilon) * gamma + beta, for each channel over all samples and
// positions of all ranks of a communicator (split() makes groups). Variance is biased in y and
// unbiased in the running statistics.
//
// Forward is one collective. It sums counts, x and x^2 in f64 about a common point near the mean,
// so that the relative error of the variance stays below 1e-11 (1e-5 for f16 and bf16:
// docs/batch-norm.md). A second collective follows only where that point was far off, as in the
// first step, and a third where it was off by more than f64 has digits. Backward is one collective.
// Both are urgent: they pass buckets of gradients.
//
// A rank may have no samples; when no rank has any, nothing changes. Where all ranks together have
// one element, the output is beta, and the running variance stays as it is. NaN and infinity spoil
// their channel in that step and in the running statistics, not in the next step.
//
// When layer, step, direction, past or options differ between ranks, all get Error(mismatch).
// (threads and deadline may differ.) Its message says where each rank is, which options differ, and
// what a rank evaluated since it last trained. Layers with different numbers of channels are found
// by the sizes of their calls. The deadline names a rank that makes no further training call; give
// GradientBuckets a hash of which layers train (StepOptions::check) to be told earlier.
//
// Parameters and statistics are f64 for activations of f64, else f32. After the second step of a
// shape nothing is allocated.
//
// The communicator outlives the layer and stays where it is. Threads: thread-bound, and all layers
// of one communicator are called by one thread at a time, in the same order on all ranks.
class RONDO_API SyncBatchNorm {
 public:
  // Throws Error(invalid_argument): no channels, a type or an option that cannot be.
  SyncBatchNorm(Communicator& communicator, std::size_t channels, BatchNormOptions options = {});
  SyncBatchNorm(SyncBatchNorm&&) noexcept;  // takes a pass under way along
  ~SyncBatchNorm();  // waits for the collective of a pass under way, at most until its deadline

  std::size_t channels() const noexcept;
  const BatchNormOptions& options() const noexcept;

  // gamma (1), beta (0), and what backward left in their gradients, of this rank's samples alone;
  // [channels] elements, owned by the layer unless bound elsewhere. Empty (count 0) when not
  // affine.
  Buffer gamma() noexcept;
  Buffer beta() noexcept;
  Buffer gamma_gradient() noexcept;
  Buffer beta_gradient() noexcept;
  // Lets gradients be written elsewhere, as to GradientBuckets::gradient(). backward adds to what
  // is there.
  void bind_gradients(Buffer gamma_gradient, Buffer beta_gradient);
  // Statistics of evaluation, [channels]; batches() counts the training batches in them.
  Buffer running_mean() noexcept;      // 0
  Buffer running_variance() noexcept;  // 1
  std::uint64_t batches() const noexcept;
  void set_batches(std::uint64_t batches) noexcept;  // from a checkpoint
  // The point about which the next forward pass takes its sums, near the mean of the last batch:
  // [channels] of f64, 0 before the first pass, the same on all ranks. A run that is resumed with
  // it gives the same bits as one that was not interrupted.
  Buffer point() noexcept;
  // A checkpoint needs these and batches(): gamma, beta, running mean, running variance and
  // point(), named "name.weight", "name.bias", "name.running_mean", "name.running_var" and
  // "name.point".
  std::vector<Parameter> parameters();

  // Training. y may be x where no backward pass follows: that needs x as it was. Throws Error.
  void forward(const Activations& x, const Activations& y);
  // The same in two parts: between them the collective is under way and the caller computes; x
  // stays as it is.
  void begin_forward(const Activations& x);
  void end_forward(const Activations& y);
  // Writes dx, from dy and the x of the last forward; dx may be dy, or x. Adds to the gradients of
  // gamma and beta. At most once for each forward. Throws Error(invalid_argument) when x is another
  // batch than that forward had, or was written over; up to 4 KiB of x are compared.
  void backward(const Activations& x, const Activations& dy, const Activations& dx);
  void begin_backward(const Activations& x, const Activations& dy);
  void end_backward(const Activations& dx);
  // After backward: the gradients of gamma and beta summed over all ranks' samples, f64,
  // [channels]: known without another collective, so these parameters need no bucket.
  std::span<const double> gamma_gradient_sum() const noexcept;
  std::span<const double> beta_gradient_sum() const noexcept;

  // Evaluation: running statistics, no communication.
  void evaluate(const Activations& x, const Activations& y) const;

  // Layers of one communicator that can run side by side, as in parallel branches: one collective
  // for all of them. The same layers in the same order end it.
  static void begin_forward(std::span<SyncBatchNorm* const> layers,
                            std::span<const Activations> xs);
  static void end_forward(std::span<SyncBatchNorm* const> layers, std::span<const Activations> ys);
  static void begin_backward(std::span<SyncBatchNorm* const> layers,
                             std::span<const Activations> xs, std::span<const Activations> dys);
  static void end_backward(std::span<SyncBatchNorm* const> layers,
                           std::span<const Activations> dxs);

  // Of the last forward, over all ranks: [channels], and samples * spatial.
  std::span<const double> mean() const noexcept;
  std::span<const double> variance() const noexcept;  // biased
  std::uint64_t count() const noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
