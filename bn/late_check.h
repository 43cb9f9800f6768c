// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/batch_norm.h>

#include "bn/device/gpu_kernels.h"
#include "bn/local_calls.h"

namespace rondo::bn {

class Layer;

enum class Pass : std::uint8_t { forward, backward };

// Where this rank is in a collective, for messages. Remembers what it needs of a layer that goes.
struct Position {
  Layer* layer = nullptr;  // null: it has gone, and the next three say what it was
  std::string title;
  BatchNormOptions options;
  std::uint64_t name_hash = 0;

  std::size_t number = 1, layers = 1, channels = 0;  // in one call
  Pass pass = Pass::forward;
  bool again = false;
  std::uint64_t step = 0;
  std::optional<std::uint64_t> history;  // if only this differs
  bool other_history = false;            // the same, where the hash is not known
  const LocalCalls* local_calls = nullptr;

  void forget_layer();
  std::string text() const;
};

// Throws Error(mismatch) with the positions of all ranks. Collective.
[[noreturn]] void tell_apart(Communicator& communicator, const Position& position, bool same_layer);
// Whether all ranks are at the same place, layer and history.
struct Agreed {
  bool place, layer, history;
  bool all() const noexcept { return place && layer && history; }
};
Agreed agreed_in(std::span<const double> section, int size) noexcept;

// What a collective on a GPU gave, as far as the host needs it: for each layer whether K was too
// far, and the head of its section. Copies of them are enqueued behind the collective.
class GpuReport {
 public:
  static constexpr std::size_t elements = 1 + SectionHead::elements;

  explicit GpuReport(std::shared_ptr<const GpuKernels> kernels);
  ~GpuReport();

  const GpuKernels& kernels() const noexcept { return *kernels_; }
  // sections: their addresses. The context is current. Throws Error(system).
  void enqueue(std::span<const std::uintptr_t> sections, device::StreamHandle stream);
  // Waits for the copies. Throws Error: deadline, system.
  void wait(std::chrono::milliseconds time) const;
  bool far(std::size_t layer) const noexcept { return data(layer)[0] != 0; }
  std::span<const double> head(std::size_t layer) const noexcept {
    return {data(layer) + 1, SectionHead::elements};
  }

 private:
  const double* data(std::size_t layer) const noexcept {
    return reinterpret_cast<const double*>(memory_->data()) + layer * elements;
  }
  const std::shared_ptr<const GpuKernels> kernels_;
  std::unique_ptr<device::PinnedMemory> memory_;
  device::Event copied_;
  bool used_ = false;
};

// The collective on a GPU that has ended last. The host looks at its report when the next one has
// been joined: then it has come, because the next one came behind it on the GPU. So a pass waits
// for no report, and all ranks look at the same point of their order. Thread-bound.
class LateCheck {
 public:
  // Takes notes of the layers of a collective whose report is enqueued.
  void expect(GpuReport& report, std::vector<Position>&& positions, const LocalCalls& calls);
  // Looks at the collective before this one. Throws Error(mismatch) on all ranks if they differed,
  // and as GpuReport::wait.
  void check(Communicator& communicator);
  void forget(const Layer& layer);
  // The report to use on a GPU.
  GpuReport& report_of(const std::shared_ptr<GpuKernels>& kernels);
  // Empty, with the memory of earlier ones.
  std::vector<Position> take_list() noexcept;

 private:
  std::vector<std::unique_ptr<GpuReport>> reports_;  // one for each GPU
  GpuReport* report_ = nullptr;                      // null: nothing to look at
  std::vector<Position> positions_;
  LocalCalls local_calls_;  // before that collective
};

}  // namespace rondo::bn
