// SPDX-License-Identifier: Apache-2.0
//
// The order of a step: gradients are collected, buckets are launched, the step is finished.
// Each phase is a class with a contract of its own.
#include <rondo/gradients.h>

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

#include <rondo/error.h>

#include "base/default_floats.h"
#include "grad/collecting.h"
#include "grad/device/arithmetic.h"
#include "grad/failure.h"
#include "grad/finishing.h"
#include "grad/launching.h"
#include "grad/setup.h"

namespace rondo {

using grad::Phase;

// Threads: ready() from any; everything else on the step thread (see grad::Setup).
// Locks: none of its own. Failure: the first one is kept, and later calls throw it again.
class GradientBuckets::State {
 public:
  State(Communicator& communicator, std::vector<Parameter> parameters, GradientOptions options)
      : setup(communicator, std::move(parameters), std::move(options)),
        failure(setup),
        collector(setup, failure),
        launcher(setup, collector, failure),
        finisher(setup, collector, launcher) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  // When this rank does not finish a step, the other ranks may wait for it elsewhere until their
  // deadline. So this rank first tells them; then the launcher waits for what is under way.
  ~State() {
    if (failure.happened() && !launcher.pending()) return;  // all have been told
    if (std::uncaught_exceptions() > exceptions)
      leave_step("an exception left",
                 "use GradientBuckets::step(), which tells all ranks its what()");
    else
      leave_step("nobody finished", "the buckets were destroyed");
  }

  // Ends the step under way, also a local one, on all ranks at once: "an exception left step 3 of
  // gradient buckets before finish(): WHY".
  void leave_step(std::string_view what, std::string_view why) noexcept;
  // Ends the step on all ranks for a mistake that only this one has made.
  [[noreturn]] void tell(const grad::Mistake& mistake);
  // Runs the function. An exception of it becomes the failure of the step.
  template <class Function>
  auto keeping_failure(const Function& function) {
    try {
      return function();
    } catch (...) {
      failure.keep_current(collector.step());
      throw;
    }
  }

  void check_options(const StepOptions& options) const;
  void ready(std::size_t parameter, const void* gradient, void* stream);
  void measure(std::string_view call, void* stream);
  double norm(std::string_view call, void* stream);

  // Each uses those above it, and is destroyed before them.
  grad::Setup setup;
  grad::Failure failure;
  grad::Collector collector;
  grad::Launcher launcher;
  grad::Finisher finisher;
  // In the last step.
  const grad::Passes::LeftOut untouched = [this](std::size_t parameter) {
    return launcher.untouched(parameter);
  };
  bool has_norm = true;                               // false: the last step was local
  bool measured = false;                              // the norm of the last step is known
  int accumulations = 0;                              // Accumulations that are alive
  const int exceptions = std::uncaught_exceptions();  // when this was made
};

void GradientBuckets::State::leave_step(std::string_view what, std::string_view why) noexcept {
  try {
    if (collector.phase() == Phase::idle) return;
    const std::string text =
        fmt::format("rank {}: {} step {} of gradient buckets before finish(): {}",
                    setup.communicator.rank(), what, collector.step(), why);
    failure.keep(Errc::aborted, text);
    setup.communicator.abort(Errc::aborted, text);
  } catch (const std::exception&) {  // no memory for the text: the deadline remains
  }
}

void GradientBuckets::State::tell(const grad::Mistake& mistake) {
  const std::string text = fmt::format("rank {}: {}", setup.communicator.rank(), mistake.text);
  failure.keep(Errc::invalid_argument, text);
  // The header arrives when all ranks have left the step before. Then the error reaches them in
  // this step. But some ranks may never begin it, because they wait for this rank elsewhere.
  if (collector.phase() == Phase::synchronized) launcher.settle_header(std::chrono::seconds{2});
  setup.communicator.abort(Errc::aborted, text);
  throw Error(Errc::invalid_argument, text);
}

GradientBuckets::GradientBuckets(Communicator& communicator, std::vector<Parameter> parameters,
                                 GradientOptions options)
    : state_(std::make_unique<State>(communicator, std::move(parameters), std::move(options))) {}
GradientBuckets::GradientBuckets(GradientBuckets&&) noexcept = default;
GradientBuckets::~GradientBuckets() = default;

std::size_t GradientBuckets::parameter_count() const noexcept {
  return state_->setup.parameters.size();
}

Buffer GradientBuckets::gradient(std::size_t parameter) const {
  state_->setup.check_index("gradient", parameter);
  return state_->setup.gradient(parameter);
}

std::uint64_t GradientBuckets::layout() const noexcept {
  return state_->finisher.layout_number();
}

// ---- begin ----

void GradientBuckets::State::check_options(const StepOptions& options) const {
  constexpr double largest_weight = 1e100;  // its square, summed over ranks, is still finite
  if (!(options.weight >= 0 && options.weight <= largest_weight))
    setup.refuse(fmt::format("begin_step(): the weight is {}, but it must be from 0 to {}",
                             options.weight, largest_weight));
  if (accumulations > 0 && setup.options.averaging == Averaging::weighted && options.weight != 0 &&
      options.weight != 1)
    setup.refuse(
        fmt::format("begin_step(): a local step cannot have weight {}: leave the weight out, and "
                    "give the next step that travels the sum of the weights",
                    options.weight));
}

void GradientBuckets::begin_step(const StepOptions& options) {
  const base::DefaultFloats floats;
  State& s = *state_;
  s.failure.check();
  if (s.collector.phase() != Phase::idle)
    s.setup.refuse(fmt::format("begin_step(): step {} has not been finished; call finish() first",
                               s.collector.step()));
  s.check_options(options);
  s.setup.passes->check_stream("begin_step()", options.stream);
  s.collector.check_unused(options.unused);
  const bool travels = s.accumulations == 0;
  if (travels) lib::reserve_bulk(s.setup.communicator, &s.setup, s.setup.title);
  s.keeping_failure([&] {
    s.measured = false;
    s.finisher.rebuild_layout();
    s.collector.begin_step(options);
    s.setup.passes->begin_step(options.stream);
    if (travels) s.launcher.begin_step(options);
    s.collector.open(travels ? Phase::synchronized : Phase::local);
  });
}

void GradientBuckets::zero(OnStream on) {
  state_->failure.check();
  state_->setup.passes->check_stream("zero()", on.stream);
  try {
    state_->collector.zero(on.stream);
  } catch (const Error& error) {
    // Some gradients may be zero by now, and others not.
    if (error.code() == Errc::system) state_->failure.keep_current(state_->collector.step());
    throw;
  }
}

GradientBuckets::Accumulation::Accumulation(GradientBuckets& buckets)
    : state_(buckets.state_.get()) {
  if (state_->collector.phase() != Phase::idle)
    state_->setup.refuse(fmt::format(
        "an Accumulation was made in the middle of step {}: make it before begin_step()",
        state_->collector.step()));
  ++state_->accumulations;
}

GradientBuckets::Accumulation::~Accumulation() {
  --state_->accumulations;
}

// ---- ready ----

void GradientBuckets::ready(std::size_t parameter, OnStream on) {
  state_->ready(parameter, nullptr, on.stream);
}

void GradientBuckets::ready(std::size_t parameter, const void* gradient, OnStream on) {
  if (gradient == nullptr && this->gradient(parameter).count != 0)
    state_->setup.refuse(fmt::format("ready(): the gradient of '{}' is null",
                                     state_->setup.parameters[parameter].name));
  state_->ready(parameter, gradient, on.stream);
}

// gradient: null: it lies in its view. Memory that may already be on its way must not be written
// to, so a gradient is claimed before Passes takes it.
void GradientBuckets::State::ready(std::size_t parameter, const void* gradient, void* stream) {
  const base::DefaultFloats floats;
  setup.check_index("ready", parameter);
  const bool taken = gradient != nullptr || setup.device >= 0;
  std::optional<std::size_t> bucket;
  try {
    if (taken) {
      failure.check();
      setup.passes->check_stream("ready()", stream);
      setup.passes->check_gradient(parameter, gradient);
      collector.claim(parameter);
      keeping_failure([&] { setup.passes->take(parameter, gradient, stream); });
    }
    bucket = collector.ready(parameter, taken, launcher.header());
  } catch (const grad::Mistake& mistake) {
    tell(mistake);
  }
  if (bucket) launcher.run(*bucket);
}

// ---- finish ----

// No stream: waits for the gradients.
void GradientBuckets::finish(std::optional<OnStream> on) {
  const base::DefaultFloats floats;
  State& s = *state_;
  const std::optional<void*> stream = on ? std::optional(on->stream) : std::nullopt;
  if (stream) s.setup.passes->check_stream("finish()", *stream);
  try {
    s.collector.close(s.accumulations > 0);
  } catch (const grad::Mistake& mistake) {
    s.tell(mistake);
  }
  s.has_norm = s.collector.phase() != Phase::local;
  const std::exception_ptr thrown = s.keeping_failure([&]() -> std::exception_ptr {
    if (s.has_norm && s.collector.any_unused())
      s.setup.passes->order_after(stream.value_or(nullptr));
    if (s.has_norm) return s.finisher.finish(stream);
    s.setup.passes->complete(stream);
    return {};
  });
  s.collector.end_step();
  lib::release_bulk(s.setup.communicator, &s.setup);
  if (thrown) std::rethrow_exception(thrown);
}

void GradientBuckets::step_without_data() {
  begin_step({.weight = 0});
  finish();
}

void GradientBuckets::leave_step(std::string_view why) noexcept {
  state_->leave_step("an exception left", why);
}

// ---- after a step ----

// Adds up the squares once after a step: clip() changes the gradients and not the norm.
void GradientBuckets::State::measure(std::string_view call, void* stream) {
  failure.check();
  if (collector.phase() != Phase::idle)
    setup.refuse(fmt::format("{} in step {}: call it after finish()", call, collector.step()));
  if (!has_norm)
    setup.refuse(fmt::format(
        "{} after step {}, which was local: its gradients have no norm yet; call it after the step "
        "in which they travel",
        call, collector.step()));
  setup.passes->check_stream(call, stream);
  if (measured) return;
  keeping_failure([&] { setup.passes->measure(untouched, stream); });
  measured = true;
}

double GradientBuckets::State::norm(std::string_view call, void* stream) {
  const base::DefaultFloats floats;
  measure(call, stream);
  return std::sqrt(setup.passes->squares());
}

double GradientBuckets::norm(OnStream on) {
  return state_->norm("norm()", on.stream);
}
bool GradientBuckets::finite(OnStream on) {
  return std::isfinite(state_->norm("finite()", on.stream));
}
double GradientBuckets::clip_factor(double max_norm, OnStream on) {
  return grad::clip_factor_of(state_->norm("clip_factor()", on.stream), max_norm);
}

void GradientBuckets::clip(double max_norm, OnStream on) {
  const base::DefaultFloats floats;
  State& s = *state_;
  if (!(max_norm >= 0))
    s.setup.refuse(
        fmt::format("clip(): the largest norm is {}, but it cannot be negative or NaN", max_norm));
  s.measure("clip()", on.stream);
  s.keeping_failure([&] { s.setup.passes->clip(max_norm, s.untouched, on.stream); });
}

std::span<const BucketStatistics> GradientBuckets::statistics() const noexcept {
  return state_->finisher.buckets();
}
StepStatistics GradientBuckets::step_statistics() const noexcept {
  return state_->finisher.step();
}

}  // namespace rondo
