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

namespace {

constexpr double largest_weight = 1e100;  // its square, summed over ranks, is still finite

}  // namespace

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
  ~State();

  void check_options(const StepOptions& options) const;
  void ready(std::size_t parameter, const void* gradient, void* stream);
  void take(std::size_t parameter, const void* gradient, void* stream);
  void finish(std::optional<void*> stream);
  void measure(std::string_view call, void* stream);
  double norm(std::string_view call, void* stream);
  // Ends the step under way, also a local one, on all ranks at once: "an exception left step 3 of
  // gradient buckets before finish(): WHY".
  void leave_step(std::string_view what, std::string_view why) noexcept;
  // Ends the step on all ranks for a mistake that only this one has made.
  [[noreturn]] void mistake(const std::string& what);
  // Runs the function. An exception of it becomes the failure of the step.
  template <class Function>
  auto keeping_failure(const Function& function);

  // Each uses those above it, and is destroyed before them.
  grad::Setup setup;
  grad::Failure failure;
  grad::Collector collector;
  grad::Launcher launcher;
  grad::Finisher finisher;
  bool has_norm = true;                               // false: the last step was local
  bool measured = false;                              // the norm of the last step is known
  int accumulations = 0;                              // Accumulations that are alive
  const int exceptions = std::uncaught_exceptions();  // when this was made
};

// When this rank does not finish a step, the other ranks may wait for it elsewhere until their
// deadline. So this rank first tells them; then the launcher waits for what is under way.
GradientBuckets::State::~State() {
  if (failure.happened() && !launcher.pending()) return;  // all have been told
  if (std::uncaught_exceptions() > exceptions)
    leave_step("an exception left",
               "use GradientBuckets::step(), which tells all ranks its what()");
  else
    leave_step("nobody finished", "the buckets were destroyed");
}

template <class Function>
auto GradientBuckets::State::keeping_failure(const Function& function) {
  try {
    return function();
  } catch (...) {
    failure.keep_current(collector.step());
    throw;
  }
}

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

void GradientBuckets::State::mistake(const std::string& what) {
  const std::string text = fmt::format("rank {}: {}", setup.communicator.rank(), what);
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

// gradient: null: it lies in its view.
void GradientBuckets::State::ready(std::size_t parameter, const void* gradient, void* stream) {
  const base::DefaultFloats floats;
  setup.check_index("ready", parameter);
  const bool taken = gradient != nullptr || setup.device >= 0;
  if (taken) take(parameter, gradient, stream);
  const grad::Collector::Ready ready = collector.ready(parameter, taken, launcher.header());
  if (ready.mistaken) mistake(collector.mistake_of(parameter));
  if (ready.launch) launcher.run(*ready.launch);
}

// Memory that may already be on its way must not be written to, so it is claimed first.
void GradientBuckets::State::take(std::size_t parameter, const void* gradient, void* stream) {
  failure.check();
  setup.passes->check_stream("ready()", stream);
  setup.passes->check_gradient(parameter, gradient);
  if (!collector.claim(parameter)) mistake(collector.mistake_of(parameter));
  keeping_failure([&] { setup.passes->take(parameter, gradient, stream); });
}

// ---- finish ----

void GradientBuckets::finish(std::optional<OnStream> on) {
  const base::DefaultFloats floats;
  const std::optional<void*> stream = on ? std::optional(on->stream) : std::nullopt;
  if (stream) state_->setup.passes->check_stream("finish()", *stream);
  state_->finish(stream);
}

// No stream: waits for the gradients.
void GradientBuckets::State::finish(std::optional<void*> stream) {
  if (const std::string what = collector.close(accumulations > 0); !what.empty()) mistake(what);
  has_norm = collector.phase() != Phase::local;
  const std::exception_ptr thrown = keeping_failure([&]() -> std::exception_ptr {
    if (has_norm && collector.any_unused()) setup.passes->order_after(stream.value_or(nullptr));
    if (has_norm) return finisher.finish(stream);
    setup.passes->complete(stream);
    return {};
  });
  collector.end_step();
  lib::release_bulk(setup.communicator, &setup);
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
  keeping_failure([&] { setup.passes->measure(finisher.given(), stream); });
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
  s.keeping_failure([&] { s.setup.passes->clip(max_norm, s.finisher.given(), on.stream); });
}

std::span<const BucketStatistics> GradientBuckets::statistics() const noexcept {
  return state_->finisher.buckets();
}
StepStatistics GradientBuckets::step_statistics() const noexcept {
  return state_->finisher.step();
}

}  // namespace rondo
