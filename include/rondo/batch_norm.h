// SPDX-License-Identifier: Apache-2.0
//
// Batch normalization whose statistics are those of the batches of all ranks together.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <rondo/batch_norm_pass.h>
#include <rondo/communicator.h>
#include <rondo/parameters.h>

namespace rondo {

// How a batch lies in memory: element (n, c, s) at (n * channels + c) * spatial + s, or at (n *
// spatial + s) * channels + c.
enum class TensorLayout : std::uint8_t { nchw, nhwc };

// A batch of activations, borrowed: samples x channels x spatial contiguous elements. spatial is
// height * width, or 1 for plain vectors. data may be null if there are no samples.
struct Activations {
  void* data = nullptr;
  std::size_t samples = 0;
  std::size_t spatial = 1;
  // No value: BatchNormOptions::layout. Ranks may have different ones, but on one rank all
  // activations of a pass, forward and backward, have the same.
  std::optional<TensorLayout> layout{};
};

struct RONDO_API BatchNormOptions {
  // The layer's name, for messages; the same on all ranks. Layers with the same name, or without
  // one, are numbered in the order in which they are made: make them in the same order on all
  // ranks.
  std::string name{};
  DType type = DType::f32;  // of activations and their gradients: f64, f32, f16, bf16
  TensorLayout layout = TensorLayout::nchw;  // of activations that have none of their own
  double epsilon = 1e-5;                     // added to the variance
  // running = (1 - momentum) * running + momentum * new. No value: the average of all batches so
  // far.
  std::optional<double> momentum = 0.1;
  bool affine = true;  // y = x_hat * gamma + beta; else y = x_hat
  bool bias = true;    // if false, there is no beta: y = x_hat * gamma
  // If false, nothing is evaluated: evaluate() throws Error(invalid_argument).
  bool track_running = true;
  int threads = 0;  // of the kernels, up to 1024; 0: cores of this host / ranks on it
  // The GPU on which the layer computes; all memory that it is given is there. -1: the processor.
  // Either all ranks have a GPU or none.
  int device = -1;
  std::chrono::milliseconds deadline{0};  // of each collective; 0: that of the communicator

  friend bool operator==(const BatchNormOptions&, const BatchNormOptions&) = default;
};

// Parameters and running statistics of a layer, [channels] elements each, where it computes. gamma
// and beta are empty (count 0) if the layer has none: see affine and bias.
struct BatchNormBuffers {
  Buffer gamma, beta, running_mean, running_variance;
  // The point about which the next forward pass takes its sums, near the mean of the last batch. It
  // is f64, 0 before the first pass, and the same on all ranks. A run that resumes with it gives
  // the same bits as one that was not interrupted.
  Buffer point;
};

// Statistics of the last forward pass over all ranks, where the layer computes.
struct BatchNormStatistics {
  Buffer mean, variance;    // [channels] elements of f64; the variance is biased
  std::uint64_t count = 0;  // samples * spatial; on a GPU of the last pass that was checked
};

// Computes y = (x - mean) / sqrt(var + epsilon) * gamma + beta. For each channel, mean and var are
// those over all samples and positions of all ranks of a communicator. split() makes groups of
// ranks. The variance is biased in y and unbiased in the running statistics (Ioffe and Szegedy
// 2015).
//
// Forward is one collective. It sums counts, x and x^2 in f64 about a common point near the mean.
// So the relative error of the variance stays below 1e-11 (1e-5 for f16 and bf16:
// docs/batch-norm.md). If that point was far from the mean, as in the first step, a second
// collective follows. A third follows if it was off by more than f64 has digits. Backward is one
// collective. All of these are urgent: they pass buckets of gradients.
//
// A rank may have no samples. If no rank has any, nothing changes. If all ranks together have one
// element, the output is beta, and the running variance stays as it is. NaN and infinity spoil
// their channel in that step and in the running statistics, but not in the next step.
//
// If layer, step, direction, earlier steps or options differ between ranks, every rank gets
// Error(mismatch); threads, deadline and the layout of activations may differ. The message says
// where each rank is, which options differ, and what a rank did alone since it last trained:
// evaluation, and backward without a collective. If layers have different numbers of channels,
// their calls have different sizes, and the mismatch names these. The deadline names a rank that
// makes no further training call. To find it earlier, give GradientBuckets a hash of the layers
// that train (StepOptions::check).
//
// Parameters and statistics that the layer owns are f64 for activations of f64, else f32; those of
// the caller may have any of the four types. What is computed for each channel is f64. After the
// second step of a shape nothing is allocated.
//
// On a GPU (BatchNormOptions::device) passes are enqueued on the stream of set_stream(). The host
// waits for no kernel, only, as Work::join() does, until the collective has gone to the GPU. So
// some things come later: see docs/batch-norm.md. A mismatch is found in the next pass of any layer
// of the communicator. x is not compared in backward.
//
// The communicator must not be moved while the layer lives. If it is destroyed first, the layer's
// passes throw Error(invalid_argument). Threads: thread-bound. One thread at a time calls all
// layers of one communicator, in the same order on all ranks.
class RONDO_API SyncBatchNorm {
 public:
  // Throws Error(invalid_argument) for no channels, or for a type or an option that cannot be.
  SyncBatchNorm(Communicator& communicator, std::size_t channels, BatchNormOptions options = {});
  SyncBatchNorm(SyncBatchNorm&&) noexcept;  // takes a pass under way along
  ~SyncBatchNorm();  // waits for the collective of a pass under way, at most until its deadline

  std::size_t channels() const noexcept;
  const BatchNormOptions& options() const noexcept;
  // Changes momentum, at the same step on all ranks, and threads and deadline, from the next pass
  // on. Throws Error(invalid_argument) if another option differs or one cannot be, and between
  // begin and end of a pass; then nothing changes.
  void set_options(const BatchNormOptions& options);

  // gamma and the running variance begin as 1, beta and the running mean as 0.
  BatchNormBuffers buffers() const noexcept;
  // Makes the layer use memory of the caller, [channels] elements of f64, f32, f16 or bf16 where
  // the layer computes. It reads gamma and beta there, and reads and writes the running statistics.
  // The caller sets the values, and keeps the memory while the layer uses it. Binding again is
  // cheap and allocates nothing. A parameter that the layer does not have is bound to an empty
  // buffer. Throws Error(invalid_argument) for another count, type or device; then nothing is
  // bound.
  void bind_parameters(Buffer gamma, Buffer beta);
  void bind_statistics(Buffer running_mean, Buffer running_variance);
  // The training batches in the running statistics.
  std::uint64_t batches() const noexcept;
  void set_batches(std::uint64_t batches) noexcept;  // from a checkpoint
  // The CUDA stream of evaluations and passes from the next one on; null: the default stream. A
  // pass that has begun ends on its own stream. Only the caller's own memory needs care when the
  // stream changes. A layer on the processor ignores it.
  void set_stream(void* stream) noexcept;
  // Lists what a checkpoint needs besides batches(): gamma, beta, running mean, running variance
  // and point, named "name.weight", "name.bias", "name.running_mean", "name.running_var" and
  // "name.point".
  std::vector<Parameter> parameters() const;

  // Training. Returns what backward needs besides x; a caller that needs no backward pass drops it.
  // y may be x if no backward pass follows. Throws Error.
  //
  //   BatchNormPass pass = norm.forward(x, y);
  //   norm.backward(pass, x, dy, dx, {gamma_gradient, beta_gradient});
  BatchNormPass forward(const Activations& x, const Activations& y);
  // A forward pass in two parts. Between them the collective is under way and the caller may
  // compute. x must stay as it is.
  void begin_forward(const Activations& x);
  BatchNormPass end_forward(const Activations& y);
  // Writes dx, which may be dy or x, and the gradients that are wanted, with the gamma of the
  // forward pass. Passes may run backward in any order, also between forward passes, more than
  // once, or never, if all ranks do the same. Throws Error; with invalid_argument for a pass of
  // another layer, or if x is another batch than the forward pass had, or was changed since. It
  // compares all bytes of x up to 4 KiB, else 4 KiB spread over x.
  void backward(const BatchNormPass& pass, const Activations& x, const Activations& dy,
                const Activations& dx, const BatchNormGradients& gradients);
  // A backward pass in two parts. pass, x and dy must stay as they are.
  void begin_backward(const BatchNormPass& pass, const Activations& x, const Activations& dy);
  void end_backward(const Activations& dx, const BatchNormGradients& gradients);
  // Backward without dx, where nothing before the layer needs a gradient. No communication, so all
  // ranks must leave dx out. The collective that a rank misses is noticed in its next training
  // call, with Error(mismatch) on all ranks, or else at the deadline.
  void backward_parameters(const BatchNormPass& pass, const Activations& x, const Activations& dy,
                           const BatchNormGradients& gradients);

  // Evaluation, with the running statistics (see track_running). No communication. Throws Error.
  void evaluate(const Activations& x, const Activations& y) const;

  BatchNormStatistics statistics() const noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
