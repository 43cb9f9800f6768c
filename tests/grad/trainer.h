// SPDX-License-Identifier: Apache-2.0
//
// Runs the steps of a rank whose gradients are in host memory or on a GPU. A test of both is one
// table over devices().
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "grad/gpu.h"
#include "grad/model.h"

namespace rondo::testing {

enum class Device { host, gpu };
// Host memory, and a GPU where there is one: of the fake driver, or a real one.
std::vector<Device> devices();
// Returns Parameter::device for this rank. Ranks get the GPUs in turn.
int device_of(Device device, int rank);

// The steps of a rank. On a GPU there are two streams: every second gradient is made on the other
// one, and the host waits for nothing but what a test reads.
class Trainer {
 public:
  // Collective. patience: how long settle() waits for the streams, so that a test of faults ends.
  Trainer(Communicator& c, Device device, const Model& model, const GradientOptions& options,
          std::chrono::milliseconds patience = std::chrono::minutes{1});

  void zero();
  // Writes into the view of a parameter, outside of a step.
  void write(std::size_t parameter, const Bytes& values);
  void begin(StepOptions options = {});
  // Makes a gradient in the view, or elsewhere if it is to be copied, and says that it is ready.
  void give(std::size_t parameter, const Bytes& gradient, bool copy = false);
  // on_stream: on a GPU the host does not wait.
  void finish(bool on_stream = true);
  // Does begin, gives the gradients of the model in reverse order, and does finish.
  void step(const Model& model, std::size_t step, const StepOptions& options = {});
  void clip(double most);
  Bytes read(std::size_t parameter);
  // Waits for the streams. Throws Error where they have not ended in time.
  void settle();

 private:
  OnStream first() const noexcept;

  struct Gpu;
  // The GPU's memory for one parameter.
  struct Memory;
  struct Destroy {
    void operator()(Gpu* gpu) const noexcept;
  };

  const int rank_;
  const std::chrono::milliseconds patience_;
  std::unique_ptr<Gpu, Destroy> gpu_;

 public:
  GradientBuckets buckets;
};

}  // namespace rondo::testing
