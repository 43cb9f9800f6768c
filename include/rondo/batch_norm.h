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

// What a layer on a GPU does in the pass that normalizes: y = relu(normalized x + z). The same on
// all ranks, and in forward and backward of one pass. Backward throws Error(invalid_argument) if
// `relu` is not that of its forward pass.
struct BatchNormFusion {
  bool relu = false;  // NaN stays NaN
  // forward: z. backward: where dz goes, which is dy behind the ReLU. No data: none.
  Activations add{};
  Activations y{};  // backward of a ReLU: what forward has written
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
  // If false, evaluation uses the statistics of its own batch, of this rank alone.
  bool track_running = true;
  int threads = 0;  // of the kernels, up to 1024; 0: cores of this host / ranks on it
  // The GPU on which the layer computes; all memory that it is given is there. -1: the processor.
  // Either all ranks have a GPU or none.
  int device = -1;
  std::chrono::milliseconds deadline{0};  // of each collective; 0: that of the communicator
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

  // Buffers of [channels] elements, which the layer owns unless they are bound elsewhere. gamma
  // begins as 1 and beta as 0. backward adds to the gradients, which are those of this rank's
  // samples alone. Empty (count 0) if the layer has no such parameter: see affine and bias.
  Buffer gamma() noexcept;
  Buffer beta() noexcept;
  Buffer gamma_gradient() noexcept;
  Buffer beta_gradient() noexcept;
  // Makes the layer use memory of the caller, [channels] elements of f64, f32, f16 or bf16 where
  // the layer computes. It reads gamma and beta there, and reads and writes the running statistics.
  // The caller sets the values, and keeps the memory while the layer uses it. Binding again is
  // cheap and allocates nothing. A parameter that the layer does not have is bound to an empty
  // buffer. Throws Error(invalid_argument) for another count, type or device; then nothing is
  // bound.
  void bind_parameters(Buffer gamma, Buffer beta);
  void bind_statistics(Buffer running_mean, Buffer running_variance);
  // Likewise for gradients, for example GradientBuckets::gradient(). backward adds to what is
  // there.
  void bind_gradients(Buffer gamma_gradient, Buffer beta_gradient);
  // Running statistics, [channels] elements. batches() counts the training batches in them.
  Buffer running_mean() noexcept;      // begins as 0
  Buffer running_variance() noexcept;  // begins as 1
  std::uint64_t batches() const noexcept;
  void set_batches(std::uint64_t batches) noexcept;  // from a checkpoint
  // Changes BatchNormOptions::momentum, at the same step on all ranks. Throws
  // Error(invalid_argument).
  void set_momentum(std::optional<double> momentum);
  // Change BatchNormOptions::threads and BatchNormOptions::deadline from the next pass on, on this
  // rank alone. Throw Error(invalid_argument).
  void set_threads(int threads);
  void set_deadline(std::chrono::milliseconds deadline);
  // The CUDA stream of evaluations and passes from the next one on; null: the default stream. A
  // pass that has begun ends on its own stream. Only the caller's own memory needs care when the
  // stream changes. A layer on the processor ignores it.
  void set_stream(void* stream) noexcept;
  // The point about which the next forward pass takes its sums, near the mean of the last batch.
  // [channels] elements of f64, 0 before the first pass, the same on all ranks. A run that resumes
  // with it gives the same bits as one that was not interrupted.
  Buffer point() noexcept;
  // What a checkpoint needs besides batches(): gamma, beta, running mean, running variance and
  // point(), named "name.weight", "name.bias", "name.running_mean", "name.running_var" and
  // "name.point".
  std::vector<Parameter> parameters();

  // Training. y may be x if no backward pass follows, because that needs x. Throws Error.
  void forward(const Activations& x, const Activations& y, const BatchNormFusion& fusion = {});
  // The same in two parts. Between them the collective is under way and the caller may compute. x
  // must stay as it is.
  void begin_forward(const Activations& x);
  void end_forward(const Activations& y, const BatchNormFusion& fusion = {});
  // Writes dx, from dy and the x of the last forward; dx may be dy or x. Adds to the gradients of
  // gamma and beta. At most once for each forward. Throws Error(invalid_argument) if x is another
  // batch than that forward had, or was changed since. It compares all bytes of x up to 4 KiB, else
  // 4 KiB spread over x.
  void backward(const Activations& x, const Activations& dy, const Activations& dx,
                const BatchNormFusion& fusion = {});
  void begin_backward(const Activations& x, const Activations& dy,
                      const BatchNormFusion& fusion = {});
  void end_backward(const Activations& dx);
  // After backward: the gradients of gamma and beta summed over the samples of all ranks, f64,
  // [channels]. They need no further collective, so these parameters need no bucket.
  std::span<const double> gamma_gradient_sum() const noexcept;
  std::span<const double> beta_gradient_sum() const noexcept;

  // Evaluation, with the running statistics (see track_running). No communication.
  void evaluate(const Activations& x, const Activations& y,
                const BatchNormFusion& fusion = {}) const;

  // Several forward passes that wait for their backward passes. take_pass() takes the last forward
  // pass, which has ended, out of the layer; the backward calls above no longer know of it. The
  // passes may run backward in any order, also between forward passes, if the order is the same on
  // all ranks. Throws Error(invalid_argument) if no forward pass waits for backward.
  //
  //   norm.forward(x1, y1);
  //   BatchNormPass first = norm.take_pass();
  //   norm.forward(x2, y2);
  //   BatchNormPass second = norm.take_pass();
  //   norm.backward(second, x2, dy2, dx2, {gamma_gradient, beta_gradient});
  //   norm.backward(first, x1, dy1, dx1, {gamma_gradient, beta_gradient, true});
  [[nodiscard]] BatchNormPass take_pass();
  // Evaluation that backward may follow, for layers whose statistics are frozen.
  [[nodiscard]] BatchNormPass evaluate_pass(const Activations& x, const Activations& y,
                                            const BatchNormFusion& fusion = {});
  // Writes dx and the gradients that are wanted, with the gamma of the forward pass. The collective
  // is that of the other backward. After evaluate_pass() there is none. Then dx = gamma inv dy, or,
  // without track_running, dx takes into account that the statistics are those of x. A pass may run
  // backward more than once. Throws Error; with invalid_argument for a pass of another layer.
  void backward(const BatchNormPass& pass, const Activations& x, const Activations& dy,
                const Activations& dx, const BatchNormGradients& gradients,
                const BatchNormFusion& fusion = {});
  // The same without dx, where nothing before the layer needs a gradient. No communication, so all
  // ranks must leave dx out. The collective that a rank misses is noticed in its next training
  // call, with Error(mismatch) on all ranks, or else at the deadline. gamma_gradient_sum() and
  // beta_gradient_sum() stay as they are.
  void backward_parameters(const BatchNormPass& pass, const Activations& x, const Activations& dy,
                           const BatchNormGradients& gradients, const BatchNormFusion& fusion = {});

  // One collective for several layers of one communicator that can run side by side, as in parallel
  // branches. The end call takes the same layers in the same order.
  static void begin_forward(std::span<SyncBatchNorm* const> layers,
                            std::span<const Activations> xs);
  static void end_forward(std::span<SyncBatchNorm* const> layers, std::span<const Activations> ys);
  static void begin_backward(std::span<SyncBatchNorm* const> layers,
                             std::span<const Activations> xs, std::span<const Activations> dys);
  static void end_backward(std::span<SyncBatchNorm* const> layers,
                           std::span<const Activations> dxs);

  // Statistics of the last forward over all ranks, [channels]; count() is samples * spatial.
  std::span<const double> mean() const noexcept;
  std::span<const double> variance() const noexcept;  // biased
  std::uint64_t count() const noexcept;
  // The same arrays and those of gamma_gradient_sum() as buffers. For a layer on a GPU they are
  // there, the spans above are empty, and count() is that of the last pass that has been checked.
  Buffer mean_buffer() noexcept;
  Buffer variance_buffer() noexcept;
  Buffer gamma_gradient_sum_buffer() noexcept;
  Buffer beta_gradient_sum_buffer() noexcept;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo
