// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/gradients.h>

#include "grad/collecting.h"
#include "grad/failure.h"
#include "grad/finishing.h"
#include "grad/launching.h"
#include "grad/order.h"
#include "grad/setup.h"

namespace rondo {

// The parts of a GradientBuckets, by phase of a step: gradients are collected, buckets are
// launched, the step is finished, and the order of readiness is learned for later steps. Each phase
// is a class with a contract of its own; this one says what follows what.
//
// Threads: ready() from any; everything else on the step thread (see grad::Setup).
// Locks: none of its own. Failure: the first one is kept, and later calls throw it again.
class GradientBuckets::State {
 public:
  State(Communicator& communicator, std::vector<Parameter> parameters, GradientOptions options);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  std::size_t parameter_count() const noexcept { return setup_.parameters.size(); }
  Buffer gradient(std::size_t parameter) const;
  std::uint64_t layout_number() const noexcept { return order_.layout_number(); }
  void zero(void* stream);

  void begin_step(const StepOptions& options);
  // gradient: null: it lies in its view.
  void ready(std::size_t parameter, const void* gradient, void* stream);
  void check_not_null(std::size_t parameter, const void* gradient) const;
  // No stream: waits for the gradients.
  void finish(std::optional<void*> stream);
  void leave_step(std::string_view why) noexcept;
  void begin_accumulation();
  void end_accumulation() noexcept { --accumulations_; }

  double norm(std::string_view call, void* stream);
  void clip(double max_norm, void* stream);
  const grad::Statistics& statistics() const noexcept { return finisher_.statistics(); }

 private:
  void check_options(const StepOptions& options) const;
  void take(std::size_t parameter, const void* gradient, void* stream);
  void finish_step(std::optional<void*> stream);
  void measure(std::string_view call, void* stream);
  void settle_after_failure() noexcept;
  // Ends the step on all ranks.
  [[noreturn]] void mistake(const std::string& what);

  // Each uses those above it, and is destroyed before them.
  grad::Setup setup_;
  grad::Failure failure_;
  grad::Collector collector_;
  grad::Launcher launcher_;
  grad::OrderLearner order_;
  grad::Finisher finisher_;
  bool has_norm_ = true;                               // false: the last step was local
  bool measured_ = false;                              // the norm of the last step is known
  int accumulations_ = 0;                              // Accumulations that are alive
  const int exceptions_ = std::uncaught_exceptions();  // when this was made
};

}  // namespace rondo
