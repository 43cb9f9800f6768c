// SPDX-License-Identifier: Apache-2.0
//
// Where a rank is in the order of its passes, and how ranks that are at different places tell each
// other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <rondo/communicator.h>

#include "bn/statistics/identity.h"

namespace rondo::statistics {

// Names of layers, for a message. Allocates nothing for names that it has room for. Thread-bound.
class NotedLayers {
 public:
  void note(std::string_view layer);
  void clear() noexcept { count_ = 0; }
  bool empty() const noexcept { return count_ == 0; }
  std::string list() const;  // "bn1, bn2, bn3 and 3 more"

 private:
  std::size_t count_ = 0;
  std::array<std::string, 3> first_;
};

// Notes of what this rank did without the others since it last trained. Thread-bound.
struct LocalCalls {
  NotedLayers evaluations, local_backwards;

  void clear() noexcept;
  // "it evaluated bn1, bn2 and ran a local backward of bn3 since it last trained"; empty when it
  // did nothing of that.
  std::string text() const;
};

enum class Pass : std::uint8_t { forward, backward };

// A collective of a layer. It keeps the identity: a message may come after the layer has gone.
struct Position {
  std::shared_ptr<const Identity> layer;
  Pass pass = Pass::forward;
  std::uint64_t step = 0;  // the number of the forward pass, in backward too
  bool again = false;      // forward, about the mean that the sums before gave

  // The number that all ranks must give for it.
  std::uint64_t place() const noexcept {
    return 4 * step + (pass == Pass::backward ? 1 : again ? 2 : 0);
  }
  // "at layer bn3 forward step 7 (it evaluated bn1 since it last trained)"; more: said of the step.
  std::string text(const LocalCalls& calls, std::string_view more = {}) const;
};

// True for each number that all ranks gave alike.
struct Agreed {
  bool place, layer, history;
  bool all() const noexcept { return place && layer && history; }
};
// section: the sums over `size` ranks, see exchange.h.
Agreed agreed_in(std::span<const double> section, int size) noexcept;
// Returns the history that this rank's section gives.
std::uint64_t history_in(std::span<const double> section) noexcept;

// Throws Error(mismatch) on all ranks, with where each of them is, and what it did alone before.
// history: of this rank, where it is known. Collective.
[[noreturn]] void tell_apart(Communicator& communicator, const Position& mine, const Agreed& agreed,
                             std::optional<std::uint64_t> history, const LocalCalls& calls);

}  // namespace rondo::statistics
