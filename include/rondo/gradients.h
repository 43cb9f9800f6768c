// SPDX-License-Identifier: Apache-2.0
//
// Gradient buckets: what a data-parallel training step needs between its backward pass and its
// optimizer.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/communicator.h>
#include <rondo/parameters.h>

namespace rondo {

// How finish() averages a gradient over the ranks that take part in the step (weight > 0).
enum class Averaging : std::uint8_t {
  mean,  // sum / number of ranks
  sum,   // sum
  // sum of weight * gradient / sum of weights: the mean over samples if weights are numbers of
  // samples and each rank's loss is a mean over its own samples. Wrong for synchronized batch norm
  // with batches of different sizes: there use sum, and let every rank divide its loss by the
  // samples of all ranks (docs/training.md).
  weighted
};

// One bucket in one step. Times in microseconds on this rank's steady clock.
struct BucketStatistics {
  std::size_t bucket = 0;
  DType type = DType::f32;     // as it travels
  std::size_t parameters = 0;  // that have bytes in it
  std::size_t bytes = 0;       // as they travel
  double ready_us = 0;         // from begin_step() until its last gradient was ready
  double queued_us = 0;        // from then until its collective was started
  double wire_us = 0;          // from its start until its end
  double exposed_us = 0;       // the part of wire_us during which finish() waited
  double bus_bandwidth = 0;    // bytes * 2(n-1)/n / wire time, in bytes/s
};

// One step, in microseconds on this rank's steady clock.
struct StepStatistics {
  std::uint64_t step = 0;  // its number in messages; 0: none has travelled yet
  double step_us = 0;      // from begin_step() until the end of finish()
  // The part of step_us that finish() took, without on_bucket: the time that communication added.
  double exposed_us = 0;
};

// Handed to GradientOptions::on_bucket: the gradients of these parameters are final.
struct CompletedBucket {
  std::size_t bucket = 0;
  std::span<const std::size_t> parameters;  // whose last part has arrived with this bucket
};

struct RONDO_API GradientOptions {
  // Exact caps on bytes of gradients: a tensor may span buckets. Rounded down to a multiple of 64,
  // at least 64.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;  // small, so that the link starts early
  // The last bucket cannot overlap with the backward pass: see docs/gradients.md.
  std::size_t bucket_bytes = std::size_t{4} << 20;
  Averaging averaging = Averaging::mean;
  // f16 or bf16: f32 gradients travel in that type, already divided, and are summed in f32 wherever
  // they meet. None: gradients travel in their own type. f16 loses digits below 6e-5. A finite
  // element above 65504, which it cannot hold, is an Error(invalid_argument) that names rank and
  // parameter, and ends the step on all ranks; on a GPU in finish() or a later begin_step(). What
  // is infinite or NaN itself is no error: see finite().
  std::optional<DType> wire{};
  // A gradient that is not ready at finish() counts as unused, not as a mistake.
  bool find_unused = false;
  // After the first synchronized step buckets start in rank 0's order of readiness.
  bool rebuild = true;
  // For each collective, and for each wait for the GPU; 0: that of the communicator.
  std::chrono::milliseconds deadline{0};
  // finish() calls it on its own thread, in the order of buckets, while later buckets are under way
  // (with find_unused: once all have arrived). finish() throws its exception again after the step.
  // If finish() has a stream, the gradients are final for what is enqueued there.
  std::function<void(const CompletedBucket&)> on_bucket{};
  std::function<void(const std::string&)> warn{};  // on rank 0; default: standard error
};

struct StepOptions {
  // From 0 to 1e100. 0: this rank gives nothing in this step, whatever its gradients hold. If all
  // ranks give 0, gradients become 0. With Averaging::weighted a local step (see Accumulation)
  // accepts only 0 and 1: the step that travels has the weight of all of them.
  double weight = 1;
  // Parameters that get no gradient on this rank in this step. It must not call ready() for them.
  // It gives zeros, or what earlier local steps have added up (see Accumulation). Gradients that no
  // rank gives stay as they are on every rank.
  std::span<const std::size_t> unused{};
  // Any number that must be the same on all ranks, as a hash of which layers train.
  std::uint64_t check = 0;
  // For gradients on a GPU: a CUDA stream. What has been enqueued there comes before the copies of
  // gradients that ready() is given, and before everything that the step does with gradients for
  // which nobody calls ready(). Null: the legacy default stream.
  void* stream = nullptr;
};

// A CUDA stream that orders a call on gradients of a GPU; null: the legacy default stream. Host
// memory ignores it. A type of its own, because ready() also takes the address of a gradient.
//   Wrong: buckets.ready(i, stream)             // takes the stream for a gradient
//   Right: buckets.ready(i, OnStream{stream})
struct OnStream {
  void* stream = nullptr;
};

// Cuts the gradients of a model into buckets, starts their all-reduce while the backward pass still
// runs, and waits for the rest.
//
//   GradientBuckets buckets(communicator, parameters, {.averaging = Averaging::weighted});
//   for each step:
//     // Before the forward pass: buckets start once all ranks have come here.
//     buckets.begin_step({.weight = samples});
//     buckets.zero();
//     backward: add to buckets.gradient(i), then buckets.ready(i), in any order, from any thread
//     buckets.finish();  // gradients are averaged: run the optimizer
//
// Gradients are views of the buckets' memory (from Communicator::allocate), grouped by type;
// nothing is copied. Every rank must make the same calls. After a mistake (a gradient never ready
// or ready twice, models or steps that differ) every rank throws an Error that names rank and
// parameter.
//
// On a GPU: with Parameter::device the memory of the buckets is on that GPU, which all parameters
// name; ranks may use different ones. Each call takes a CUDA stream that orders it; without one
// that is the legacy default stream:
//
//   const OnStream on{stream};
//   buckets.begin_step({.stream = stream});
//   buckets.zero(on);
//   kernels of the backward pass add to buckets.gradient(i); then buckets.ready(i, OnStream{any})
//   buckets.finish(on);  // kernels on `stream` find averages from here on: the optimizer
//
// The host waits for the GPU only in finish() without a stream, and where a norm is asked for.
// finish() with a stream returns when the last copy is enqueued. Other streams that use gradients
// must come after that one. A stream that is being captured is refused with Error(unsupported).
//
//   Wrong: buckets.finish(OnStream{a}); optimizer on stream b
//   Right: the same with an event of stream a for which b waits, or buckets.finish(OnStream{b})
//
// Operations run in the bulk lane and start when gradients are ready. So between begin_step() and
// finish() every other bulk operation on the communicator throws Error(invalid_argument), and so
// does a step of other buckets. Use Priority::urgent, or a communicator of split().
//
//   Wrong: buckets.begin_step(); communicator.all_reduce(loss, loss, ReduceOp::mean).wait();
//   Right: the same with OpOptions{.priority = Priority::urgent}, or after buckets.finish().
//
// The communicator must outlive the buckets and must not be moved meanwhile. After the first Error
// of a step every later call throws it again. See docs/gradients.md.
//
// Threads: ready() from any, several at once; everything else from one thread at a time.
class RONDO_API GradientBuckets {
  class State;

 public:
  // Collective: compares parameters and options of all ranks, and whether gradients are on GPUs.
  // Throws Error(mismatch, invalid_argument), on every rank even if only one of them is wrong;
  // for a GPU Error(unsupported) without a CUDA driver, and in a build without kernels for GPUs.
  GradientBuckets(Communicator& communicator, std::vector<Parameter> parameters,
                  GradientOptions options = {});
  GradientBuckets(GradientBuckets&&) noexcept;
  // Waits for buckets under way, at most until their deadlines, and for their GPU at most 10 s
  // more: memory that it may still use after that is never freed. In a step, as when an exception
  // leaves it, the step ends on all ranks at once. A destructor cannot know the
  // exception's what(): use step() for that.
  ~GradientBuckets();

  std::size_t parameter_count() const noexcept;
  // The memory for the gradient of this parameter. Its address never changes, so a program may
  // take the view once, for SyncBatchNorm::backward() too.
  Buffer gradient(std::size_t parameter) const;
  // How often the order in which buckets start has changed; begin_step() may change it once.
  // Bucket numbers change with the order, addresses do not.
  std::uint64_t layout() const noexcept;
  // Sets all gradients to 0; refused once buckets have started. On a GPU it comes after everything
  // that Rondo has enqueued for them before.
  void zero(OnStream on = {});

  void begin_step(const StepOptions& options = {});
  // Says that the gradient of this parameter is complete on this rank. Do not touch it until
  // finish() has returned. Takes at most 2 microseconds, unless it starts collectives; if weights
  // differ or a wire type is set, it then also makes a pass over their buckets. Throws
  // Error(invalid_argument) for an index that does not exist, and for a gradient that is ready
  // twice in a step; the latter ends the step on all ranks.
  //
  // On a GPU the gradient is complete once the stream has done what has been enqueued there: any
  // stream, another one for each parameter if the program likes. ready() never waits for the GPU. A
  // gradient that is given lies in memory of that GPU, at an address that is a multiple of the size
  // of its elements. It is copied on that stream: what is enqueued there afterwards may change it.
  void ready(std::size_t parameter, OnStream on = {});
  // Copies the gradient into the view first.
  void ready(std::size_t parameter, const void* gradient, OnStream on = {});
  // Waits for all buckets. Throws Error: what a collective throws; or, on every rank, that a
  // gradient was not ready, with its rank and parameter. On a GPU, with a stream: makes that stream
  // wait for all gradients, instead of the host. A later call throws what fails after that.
  void finish(std::optional<OnStream> on = {});
  // Makes a whole step of a rank that has no data left: begin_step with weight 0, then finish. On a
  // GPU it is ordered by the legacy default stream.
  void step_without_data();
  // Calls begin_step, body() and finish. An exception of body ends the step on all ranks at once,
  // with its what() as the cause, and is thrown again here. Every later call throws that cause.
  template <class Body>
  void step(const StepOptions& options, Body&& body);

  // For gradient accumulation. While it lives, steps stay local: begin_step, ready and finish check
  // and count, but nothing travels. All ranks must do this alike. The next step that travels sends
  // what local steps have added up. Make it before begin_step() and destroy it after finish();
  // otherwise the constructor or finish() throws Error(invalid_argument). It must not outlive the
  // buckets.
  class RONDO_API Accumulation {
   public:
    explicit Accumulation(GradientBuckets& buckets);
    Accumulation(const Accumulation&) = delete;
    Accumulation& operator=(const Accumulation&) = delete;
    ~Accumulation();

   private:
    State* state_;
  };

  // After finish() of a step that travelled, before anything else changes the gradients: the
  // Euclidean norm of those that some rank has given, the same bits on all ranks. The first of
  // these four functions after a step passes over the gradients, on a GPU ordered by its stream;
  // then the norm is kept, also after clip(). On a GPU the host waits for it, except in clip(), and
  // throws Error(deadline_exceeded) if the GPU does not get there within GradientOptions::deadline.
  // Throw Error(invalid_argument) in a step and after a local one, and the failure of a step that
  // failed.
  double norm(OnStream on = {});
  // False, on all ranks alike, if a gradient has an element that is infinite or NaN, or if the sum
  // of squares exceeds f64. Skip the optimizer's step then: no factor repairs infinity or NaN.
  //   if (buckets.finite()) optimizer.step(buckets.clip_factor(1.0));
  bool finite(OnStream on = {});
  // The factor that makes the norm at most max_norm: min(1, max_norm / (norm() + 1e-6)), as in
  // PyTorch. Valid only if finite(): 0 x infinity is NaN.
  double clip_factor(double max_norm, OnStream on = {});
  // Multiplies by that factor the gradients that some rank has given; leaves them as they are if
  // not finite(). Once after a step. A program that multiplies as its optimizer reads saves this
  // pass. On a GPU the factor is computed there, and the host waits for nothing. Throws
  // Error(invalid_argument) for a norm that is negative or NaN too.
  void clip(double max_norm, OnStream on = {});

  // The last synchronized step, by bucket and as a whole.
  std::span<const BucketStatistics> statistics() const noexcept;
  StepStatistics step_statistics() const noexcept;

 private:
  // Ends the step under way, also a local one, on all ranks at once with `why` as the cause.
  void leave_step(std::string_view why) noexcept;

  std::unique_ptr<State> state_;
};

template <class Body>
void GradientBuckets::step(const StepOptions& options, Body&& body) {
  begin_step(options);
  try {
    std::forward<Body>(body)();
  } catch (const std::exception& error) {
    leave_step(error.what());
    throw;
  } catch (...) {
    leave_step("an exception that is no std::exception");
    throw;
  }
  finish();
}

}  // namespace rondo
