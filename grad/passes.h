// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/communicator.h>

#include "grad/device/bucket_stream.h"
#include "grad/layout.h"

namespace rondo::grad {

struct Setup;

// All that reads and writes the memory of gradient buckets: zeroing, copying, converting, norms,
// and the order of all this with the streams of the program. A pass is a list of pieces and one
// kernel. In host memory streams are ignored, and a pass has been made when the call returns. On a
// GPU it is enqueued, as BucketStream says; the host waits for it only in complete() without a
// stream, and in squares().
//
// Threads: the check functions and take() from any. load() on the thread that holds the launcher's
// role (see Collector). Everything else on the step thread (see Setup).
// Locks: those of BucketStream.
// Failure: each function throws Error(system) where the GPU refuses, and check functions refuse a
// call on this rank before anything has changed.
class Passes {
 public:
  // Throws as BucketKernels does for gradients on a GPU.
  explicit Passes(const Setup& setup);
  Passes(const Passes&) = delete;
  Passes& operator=(const Passes&) = delete;

  // Refuses a stream that cannot order a call. `call` is the function that was given it.
  void check_stream(std::string_view call, void* stream) const;

  void check_gradient(std::size_t parameter, const void* gradient) const;
  // The gradient is complete in `stream`. If it is not in its view (null: it is), it is copied
  // there.
  void take(std::size_t parameter, const void* gradient, void* stream);

  void zero(void* stream);  // all gradients
  // The step, and in finish() the rest of it, comes after the work in the stream.
  void begin_step(void* stream);
  void order_after(void* stream);

  using LeftOut = std::function<bool(std::size_t parameter)>;
  // load() makes the bytes of a bucket that travel. left_out: parameters for which this rank gives
  // zeros. factor: that of a wire type. save: without a wire type, keeps what zeros overwrite, to
  // restore it where no rank gives a gradient. make_room_to_save() allocates the memory for that,
  // once, as much as the gradients have.
  // With f16 on the wire a finite element that is too large is refused: in host memory by load(),
  // on a GPU by complete() or begin_step() once the host knows of it.
  void make_room_to_save();
  void load(std::size_t bucket, const LeftOut& left_out, double factor, bool save);
  // The stream that a bucket's collective comes after.
  void* stream() const noexcept { return gpu_ ? gpu_->get() : nullptr; }
  // Whether the collectives of a step have ended when finish() returns. Otherwise they may end
  // while later steps run.
  bool ends_in_finish() const noexcept { return !gpu_; }
  // Later passes find the bucket that the work carries. `on_host`: returns only then.
  void await(const Work& work, bool on_host);
  // Makes gradients of what has arrived. left_out: parameters that no rank has given; they stay as
  // they were. scale: that of a wire type.
  void store(std::size_t bucket, const LeftOut& left_out, double scale);
  // Work that is enqueued on the stream from here on comes after all that the step does with
  // gradients so far. No stream: this waits for it.
  void complete(std::optional<void*> stream);

  // Between steps, ordered by the stream: adds up the squares of gradients without those left out,
  // which no rank has given. squares() returns the sum. It waits for the GPU once after each
  // measure(), and throws Error(deadline_exceeded) if that takes too long.
  void measure(const LeftOut& left_out, void* stream);
  double squares();
  // Multiplies them as clip_factor_of_squares() says, without a wait for the GPU.
  void clip(double max_norm, const LeftOut& left_out, void* stream);

  // Waits until nothing of a step is under way any more, at most this long. False: something is.
  bool settle(std::chrono::milliseconds time) noexcept { return !gpu_ || gpu_->settle(time); }

 private:
  // Results that passes leave for the host.
  struct Found {
    double squares;
    std::uint32_t overflow;  // with f16 on the wire 1 + the number of a parameter, or 0
  };
  // A copy of it for the host, after which the event comes.
  struct Fetched {
    explicit Fetched(const device::Gpu& gpu) : memory(gpu, sizeof(Found)), ended(gpu) {}
    device::PinnedMemory memory;
    device::Event ended;
    bool pending = false;  // nobody has seen the end of it
  };

  std::byte* allocate(std::size_t bytes);
  void run(const Pass& pass, void* stream);  // of pieces_
  template <class Body>
  void in_order(void* stream, const Body& body);
  // Makes pieces_ of whole gradients. Those that lie back to back are one.
  void collect(std::size_t arena, const LeftOut& left_out);
  void fetch(device::StreamHandle stream);
  const Found& found() const noexcept {  // by the host
    return *reinterpret_cast<const Found*>(fetched_ ? fetched_->memory.data() : found_);
  }
  void check_overflow() const;
  // On a GPU. Throws Error(deadline_exceeded), because the program's own work may keep it busy.
  void wait_for(const device::Event& event) const;

  const Setup& setup_;
  const bool f16_;                   // on the wire
  std::optional<BucketStream> gpu_;  // none: gradients are in host memory
  std::vector<Memory> host_memory_;  // instead of the GPU's
  std::vector<std::byte*> saved_;    // by arena
  std::byte* found_ = nullptr;       // a Found that passes write
  std::optional<Fetched> fetched_;   // on a GPU
  std::byte* block_sums_ = nullptr;  // of squares; made by the first measure()
  std::vector<Piece> pieces_;        // of the pass that is being made
};

}  // namespace rondo::grad
