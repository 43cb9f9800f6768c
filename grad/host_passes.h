// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <rondo/communicator.h>

#include "grad/passes.h"
#include "grad/setup.h"

namespace rondo::grad {

// Passes on the processor. Locks: none. Failure: make_room_to_save() throws when there is no
// memory.
class HostPasses final : public Passes {
 public:
  explicit HostPasses(const Setup& setup);

  void check_stream(std::string_view, void*) const override {}
  bool takes(const void* gradient) const noexcept override { return gradient != nullptr; }
  void check_gradient(std::size_t, const void*) const override {}
  bool take(std::size_t parameter, const void* gradient, void*) override;
  void zero(void*) override;
  void begin_step(void*, bool) override {}
  void order_after(void*) override {}
  void make_room_to_save() override;
  void load(std::size_t bucket, std::span<const LoadedPart> parts, double factor,
            bool save) override;
  void* stream() const noexcept override { return nullptr; }
  bool ends_in_finish() const noexcept override { return true; }
  void await(const Work& work, bool) override { work.wait(); }
  void store(std::size_t bucket, std::span<const StoredPart> parts, double scale) override;
  void add_squares(std::span<const SquareRange> ranges) override;
  void add_up_squares(std::span<const BlockSums> gradients) override;
  std::span<const double> squares() override { return squares_; }
  void clip(double max_norm, std::span<const ClipRange> ranges, void*) override;
  void complete(std::optional<void*>) override {}
  bool settle(std::chrono::milliseconds) noexcept override { return true; }

 private:
  std::byte* saved_at(std::size_t arena, std::size_t offset) const noexcept {
    return static_cast<std::byte*>(saved_[arena].data()) + offset;
  }

  const Setup& setup_;
  std::vector<Memory> saved_;       // by arena
  std::vector<double> block_sums_;  // of squares, of all gradients
  std::vector<double> squares_;     // by parameter, then of all
};

}  // namespace rondo::grad
