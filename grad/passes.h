// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

#include <rondo/work.h>

#include "grad/layout.h"

namespace rondo::grad {

// The part of a gradient in a bucket, before it travels.
struct LoadedPart {
  std::size_t parameter = 0;
  GradientPiece piece;
  bool zero = false;  // this rank gives zeros
};

// The same when it has arrived.
struct StoredPart {
  std::size_t parameter = 0;
  GradientPiece piece;
  bool untouched = false;  // no rank has given it: it stays as it was
};

// Elements whose squares are added up, block by block (square_order.h). They begin where a block of
// their gradient does.
struct SquareRange {
  std::size_t arena = 0;
  GradientPiece piece;
  std::size_t block = 0;  // the first of them, among those of all gradients
};

// Whole gradients that are multiplied.
struct ClipRange {
  std::size_t arena = 0;
  GradientPiece piece;
};

// Where the sums of a gradient's blocks are. count 0: it counts 0.
struct BlockSums {
  std::size_t first = 0, count = 0;
};

// What the processor, or a GPU, does with the memory of gradient buckets (Storage): zeroing,
// copying, converting, and the order of all this with the streams of the program. HostPasses
// ignores streams: what it does has been done when a call returns. GpuPasses (device/gpu_passes.h)
// enqueues.
//
// Threads: takes(), check() and take() from any. load() on the thread that holds the launcher's
// role (see Collector). Everything else on the step thread (see Setup). Failure: each function
// throws Error(system) where the GPU refuses, and check functions refuse a call on this rank before
// anything has changed.
class Passes {
 public:
  virtual ~Passes() = default;

  // A stream that can order a call. `call` is the function that was given it.
  virtual void check_stream(std::string_view call, void* stream) const = 0;

  // Whether ready() must call check_gradient() and take(). `gradient`: what it was given; null: the
  // gradient lies in its view.
  virtual bool takes(const void* gradient) const noexcept = 0;
  virtual void check_gradient(std::size_t parameter, const void* gradient) const = 0;
  // The gradient is complete in `stream`. Returns false if it has been taken in this step already.
  virtual bool take(std::size_t parameter, const void* gradient, void* stream) = 0;

  virtual void zero(void* stream) = 0;  // all gradients
  // What is in the stream comes before the step, and in finish() before the rest of it. `gives`:
  // gradients of this rank travel in this step.
  virtual void begin_step(void* stream, bool gives) = 0;
  virtual void order_after(void* stream) = 0;

  // Makes the bytes of a bucket that travel. factor: of a wire type. `save`: former contents of
  // gradients that become zeros are saved, because they may have to be restored; not with a wire
  // type, which overwrites none. There is room for them after make_room_to_save(). That allocates
  // once, as much as the gradients have without a wire type.
  // With f16 on the wire a finite element that is too large is refused (Setup::refuse_overflow()):
  // in host memory by load(), on a GPU by complete() or begin_step() once the host knows of it.
  virtual void make_room_to_save() = 0;
  virtual void load(std::size_t bucket, std::span<const LoadedPart> parts, double factor,
                    bool save) = 0;
  // The stream that a bucket's collective comes after.
  virtual void* stream() const noexcept = 0;
  // Whether the collectives of a step have ended when finish() returns. Otherwise they may end
  // while later steps run.
  virtual bool ends_in_finish() const noexcept = 0;
  // What comes after this finds the bucket that the work carries. `on_host`: returns only then.
  virtual void await(const Work& work, bool on_host) = 0;
  // Makes gradients of what has arrived. scale: of a wire type.
  virtual void store(std::size_t bucket, std::span<const StoredPart> parts, double scale) = 0;

  // With GradientOptions::norms. The ranges of add_squares() are of one arena. add_up_squares() has
  // an element for each parameter.
  virtual void add_squares(std::span<const SquareRange> ranges) = 0;
  virtual void add_up_squares(std::span<const BlockSums> gradients) = 0;
  // The sum of squares of each gradient, and behind them that of all, as add_up_squares() has made
  // them; at first 0. Waits for the GPU once after each complete(), and throws
  // Error(deadline_exceeded) if the GPU does not get there.
  virtual std::span<const double> squares() = 0;
  // Between steps, in the stream, without a wait for the GPU: multiplies gradients as
  // clip_factor_of_squares() says.
  virtual void clip(double max_norm, std::span<const ClipRange> ranges, void* stream) = 0;

  // What is enqueued on the stream from here on comes after all that the step does with gradients
  // so far. No stream: this waits for it.
  virtual void complete(std::optional<void*> stream) = 0;

  // Waits until nothing of a step is under way any more, at most this long. False: something is.
  virtual bool settle(std::chrono::milliseconds time) noexcept = 0;
};

}  // namespace rondo::grad
