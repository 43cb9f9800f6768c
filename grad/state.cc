// SPDX-License-Identifier: Apache-2.0
#include "grad/state.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

#include <rondo/error.h>

#include "base/default_floats.h"
#include "base/log.h"

namespace rondo {

using grad::Phase;

namespace {

constexpr double largest_weight = 1e100;  // its square, summed over ranks, is still finite

}  // namespace

GradientBuckets::State::State(Communicator& communicator, std::vector<Parameter> parameters,
                              GradientOptions options)
    : setup_(communicator, std::move(parameters), std::move(options)),
      failure_(setup_),
      collector_(setup_, failure_),
      launcher_(setup_, collector_, failure_),
      order_(setup_),
      finisher_(setup_, collector_, launcher_, order_) {}

// When an exception leaves a step, the other ranks may wait for this one elsewhere until their
// deadline. So this rank first tells them; then the launcher waits for what is under way.
GradientBuckets::State::~State() {
  const bool all_told = failure_.happened() && !launcher_.pending();
  if (std::uncaught_exceptions() > exceptions_ && !all_told)
    leave_step("use GradientBuckets::step(), which tells all ranks its what()");
}

Buffer GradientBuckets::State::gradient(std::size_t parameter) const {
  setup_.check_index("gradient", parameter);
  return setup_.gradient(parameter);
}

void GradientBuckets::State::check_options(const StepOptions& options) const {
  if (!(options.weight >= 0 && options.weight <= largest_weight))
    setup_.refuse(fmt::format("begin_step(): the weight is {}, but it must be from 0 to {}",
                              options.weight, largest_weight));
  if (accumulations_ > 0 && setup_.options.averaging == Averaging::weighted &&
      options.weight != 0 && options.weight != 1)
    setup_.refuse(
        fmt::format("begin_step(): a local step cannot have weight {}: leave the weight out, and "
                    "give the next step that travels the sum of the weights",
                    options.weight));
}

void GradientBuckets::State::begin_step(const StepOptions& options) {
  const base::DefaultFloats floats;
  failure_.check();
  if (collector_.phase() != Phase::idle)
    setup_.refuse(fmt::format("begin_step(): step {} has not been finished; call finish() first",
                              collector_.step()));
  check_options(options);
  setup_.passes->check_stream("begin_step()", options.stream);
  collector_.check_unused(options.unused);
  const bool travels = accumulations_ == 0;
  if (travels) setup_.communicator.reserve_bulk(&setup_, setup_.title);
  try {
    measured_ = false;
    order_.rebuild(setup_);
    collector_.begin_step(options);
    setup_.passes->begin_step(options.stream, travels && options.weight > 0);
    if (travels) {
      finisher_.begin_step();
      launcher_.begin_step(options);
    }
    collector_.open(travels ? Phase::synchronized : Phase::local);
  } catch (...) {
    failure_.keep_current(collector_.step());
    throw;
  }
}

void GradientBuckets::State::zero(void* stream) {
  failure_.check();
  setup_.passes->check_stream("zero()", stream);
  try {
    collector_.zero(stream);
  } catch (const Error& error) {
    // Some gradients may be zero by now, and others not.
    if (error.code() == Errc::system) failure_.keep_current(collector_.step());
    throw;
  }
}

void GradientBuckets::State::ready(std::size_t parameter, const void* gradient, void* stream) {
  const base::DefaultFloats floats;
  setup_.check_index("ready", parameter);
  if (setup_.passes->takes(gradient)) take(parameter, gradient, stream);
  const grad::Collector::Ready ready = collector_.ready(parameter, launcher_.header());
  if (ready.mistaken) mistake(collector_.mistake_of(parameter));
  if (ready.launch) launcher_.run(*ready.launch);
}

// Memory that may already be on its way must not be written to.
void GradientBuckets::State::take(std::size_t parameter, const void* gradient, void* stream) {
  failure_.check();
  setup_.passes->check_stream("ready()", stream);
  setup_.passes->check_gradient(parameter, gradient);
  if (!collector_.is_waiting(parameter)) return;
  bool taken = false;
  try {
    taken = setup_.passes->take(parameter, gradient, stream);
  } catch (...) {
    failure_.keep_current(collector_.step());
    throw;
  }
  // Another thread is about to say the same.
  if (!taken) mistake(collector_.mistake_of(parameter));
}

void GradientBuckets::State::check_not_null(std::size_t parameter, const void* gradient) const {
  if (gradient == nullptr && this->gradient(parameter).count != 0)
    setup_.refuse(
        fmt::format("ready(): the gradient of '{}' is null", setup_.parameters[parameter].name));
}

void GradientBuckets::State::finish(std::optional<void*> stream) {
  const base::DefaultFloats floats;
  if (stream) setup_.passes->check_stream("finish()", *stream);
  try {
    finish_step(stream);
  } catch (...) {
    settle_after_failure();
    throw;
  }
}

void GradientBuckets::State::finish_step(std::optional<void*> stream) {
  if (const std::string what = collector_.close(accumulations_ > 0); !what.empty()) mistake(what);
  std::exception_ptr thrown;
  try {
    if (collector_.phase() == Phase::local) {
      setup_.passes->complete(stream);
      has_norm_ = false;
    } else {
      if (collector_.any_unused()) setup_.passes->order_after(stream.value_or(nullptr));
      thrown = finisher_.finish(stream);
      has_norm_ = true;
    }
  } catch (...) {
    failure_.keep_current(collector_.step());
    throw;
  }
  collector_.end_step();
  setup_.communicator.release_bulk(&setup_);
  if (thrown) std::rethrow_exception(thrown);
}

// Kernels that wait for streams of the program may still be enqueued. They read gradients that the
// program may free when it gets the error.
void GradientBuckets::State::settle_after_failure() noexcept {
  constexpr std::chrono::milliseconds patience{500};
  if (!failure_.happened() || setup_.passes->settle(patience)) return;
  base::log_line(
      base::LogLevel::warning,
      fmt::format("rank {}: GPU {} has not done its work {} ms after a step of gradient "
                  "buckets has failed: do not free gradients before it is idle",
                  setup_.communicator.rank(), setup_.storage.device(), patience.count()));
}

void GradientBuckets::State::mistake(const std::string& what) {
  const std::string text = fmt::format("rank {}: {}", setup_.communicator.rank(), what);
  failure_.keep(Errc::invalid_argument, text);
  // The header arrives when all ranks have left the step before. Then the error reaches them in
  // this step. But some ranks may never begin it, because they wait for this rank elsewhere.
  if (collector_.phase() == Phase::synchronized) launcher_.settle_header(std::chrono::seconds{2});
  grad::tell_all(setup_.communicator, text);
  throw Error(Errc::invalid_argument, text);
}

void GradientBuckets::State::leave_step(std::string_view why) noexcept {
  try {
    if (collector_.phase() == Phase::idle) return;
    const std::string text =
        fmt::format("rank {}: an exception left step {} of gradient buckets before finish(): {}",
                    setup_.communicator.rank(), collector_.step(), why);
    failure_.keep(Errc::aborted, text);
    grad::tell_all(setup_.communicator, text);
  } catch (const std::exception&) {  // no memory for the text: the deadline remains
  }
}

void GradientBuckets::State::begin_accumulation() {
  if (collector_.phase() != Phase::idle)
    setup_.refuse(fmt::format(
        "an Accumulation was made in the middle of step {}: make it before begin_step()",
        collector_.step()));
  ++accumulations_;
}

// Adds up the squares once after a step: clip() changes the gradients and not the norm.
void GradientBuckets::State::measure(std::string_view call, void* stream) {
  failure_.check();
  if (collector_.phase() != Phase::idle)
    setup_.refuse(fmt::format("{} in step {}: call it after finish()", call, collector_.step()));
  if (!has_norm_)
    setup_.refuse(fmt::format(
        "{} after step {}, which was local: its gradients have no norm yet; call it after the step "
        "in which they travel",
        call, collector_.step()));
  setup_.passes->check_stream(call, stream);
  if (measured_) return;
  try {
    setup_.passes->measure(finisher_.given(), stream);
  } catch (...) {
    failure_.keep_current(collector_.step());
    throw;
  }
  measured_ = true;
}

double GradientBuckets::State::norm(std::string_view call, void* stream) {
  const base::DefaultFloats floats;
  measure(call, stream);
  return std::sqrt(setup_.passes->squares());
}

void GradientBuckets::State::clip(double max_norm, void* stream) {
  const base::DefaultFloats floats;
  if (!(max_norm >= 0))
    setup_.refuse(
        fmt::format("clip(): the largest norm is {}, but it cannot be negative or NaN", max_norm));
  measure("clip()", stream);
  try {
    setup_.passes->clip(max_norm, finisher_.given(), stream);
  } catch (...) {
    failure_.keep_current(collector_.step());
    throw;
  }
}

}  // namespace rondo
