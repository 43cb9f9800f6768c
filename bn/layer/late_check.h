// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <rondo/communicator.h>

#include "bn/layer/device/objects.h"
#include "bn/layer/kernels/arguments.h"
#include "bn/statistics/position.h"

namespace rondo::layer {

// The part that the host needs of what a collective on a GPU gave: whether K was too far, and the
// head of the section. A copy of them is enqueued behind the collective.
class GpuReport {
 public:
  explicit GpuReport(std::shared_ptr<const GpuKernels> kernels);
  ~GpuReport();

  const GpuKernels& kernels() const noexcept { return *kernels_; }
  // far_word: the section comes behind it. The context is current. Throws Error(system).
  void enqueue(const double* far_word, void* stream);
  // Waits for the copy. Throws Error: deadline, system.
  void wait(std::chrono::milliseconds time) const;
  bool far() const noexcept { return data()[0] != 0; }
  std::span<const double> head() const noexcept { return {data() + 1, SectionHead::elements}; }
  double count() const noexcept { return head()[0]; }  // of all ranks

 private:
  const double* data() const noexcept { return reinterpret_cast<const double*>(memory_->data()); }

  const std::shared_ptr<const GpuKernels> kernels_;
  std::unique_ptr<device::PinnedMemory> memory_;
  device::Event copied_;
  bool used_ = false;
};

struct Model;

// How long to wait for the GPU, where a layer has this deadline.
std::chrono::milliseconds wait_time(std::chrono::milliseconds deadline) noexcept;

// The collective on a GPU that has ended last. The host looks at its report when the next one has
// been joined: then it has come, because the next one came behind it on the GPU. So a pass waits
// for no report, and all ranks look at the same point of their order. Thread-bound.
class LateCheck {
 public:
  // Notes the collective that has just been joined, for the next check(). layer: the layer of a
  // forward pass, which gets the report; null for a backward pass. calls: those before it.
  void expect(GpuReport& report, const statistics::Position& position, Model* layer,
              const statistics::LocalCalls& calls);
  // Looks at the collective before this one. Throws Error(mismatch) on all ranks if they differed,
  // and as GpuReport::wait.
  void check(Communicator& communicator);
  void forget(const Model& layer) noexcept;
  // The report to use on a GPU.
  GpuReport& report_of(const std::shared_ptr<GpuKernels>& kernels);

 private:
  std::vector<std::unique_ptr<GpuReport>> reports_;  // one for each GPU
  GpuReport* report_ = nullptr;                      // null: nothing to look at
  statistics::Position position_;
  Model* layer_ = nullptr;
  statistics::LocalCalls local_calls_;
};

}  // namespace rondo::layer
