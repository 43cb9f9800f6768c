// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include <rondo/batch_norm.h>

#include "bn/layer/kernels/arguments.h"
#include "device/gpu.h"

namespace rondo::layer {

// Memory for the arrays of a pass (RecordArray), zero at first, where its layer computes. The layer
// may have gone. The destructor waits for work on a GPU that uses it.
class RecordMemory {
 public:
  virtual ~RecordMemory() = default;
  virtual double* data() const noexcept = 0;
};

// Sums over the elements of each channel: of (x - center) and its square, or, where there is a dy,
// of dy and dy * (x - center).
struct SumTask {
  const Activations& x;
  TensorLayout layout;
  const void* dy = nullptr;
  const double* center = nullptr;         // [channels]
  const std::uint32_t* wanted = nullptr;  // channels with 0 may be left out; null: all are wanted
};

// An elementwise pass with the coefficients of kernels/coefficients.h: y, or where there is a dy,
// dx.
struct MapTask {
  const Activations& x;
  TensorLayout layout;
  const void* dy = nullptr;
  void* out = nullptr;  // may be one of the inputs
  const std::byte* lines = nullptr;
};

// Where a layer computes: the processor, or a GPU, on which all work is enqueued on a stream and
// nothing waits for it. It holds the layer's arrays. Thread-bound. Throws Error(system).
class Place {
 public:
  virtual ~Place() = default;

  // Memory of f64, zero at first.
  virtual double* arrays() const noexcept = 0;  // of the layer
  virtual std::unique_ptr<RecordMemory> make_record(std::size_t elements) const = 0;
  // Returns what is wrong with memory that the layer is to use; empty if nothing is.
  virtual std::string problem_of(const void* data, std::size_t bytes) = 0;

  // The stream for what follows. Returns what is wrong with it; empty if nothing is.
  virtual std::string use_stream(void*) { return {}; }
  // Orders what follows behind earlier work on the layer's memory and on a record, and later work
  // behind it. record: null if none is used.
  virtual void begin(RecordMemory*) {}
  virtual void end(RecordMemory*) {}
  // Keeps the context current that begin ... end need, while the object lives.
  virtual std::optional<device::Current> current() const { return std::nullopt; }
  // Waits for the first work, which sets values of the arrays on a stream of the place's own.
  // Throws Error(system) if it does not end.
  virtual void await_start() {}
  // Waits for work under way, at most 10 s. Returns whether it has ended.
  virtual bool settle() const noexcept { return true; }

  // Requires samples.
  virtual void sum(const SumTask& task) = 0;
  // Folds the sums that were taken last: sets what the arguments say of them.
  virtual void fold(const ChannelArguments& arguments) = 0;
  // The tasks of channels.h.
  virtual void run(const ChannelArguments& arguments) = 0;
  virtual void map(const MapTask& task) = 0;
  // How often a rank's sums are taken about a better point, at most. On a GPU each time costs
  // launches, also where no channel needs it.
  virtual int repeats() const noexcept = 0;
  virtual void set_threads(int) noexcept {}
};

}  // namespace rondo::layer
