// SPDX-License-Identifier: Apache-2.0
#include "grad/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>

#include "grad/gradient_options.h"
#include "grad/tell_all.h"

namespace rondo {

namespace {

constexpr double largest_weight = 1e100;  // its square, summed over ranks, is still finite

void settle(Work& work) {
  try {
    work.wait();
  } catch (const std::exception&) {  // it has ended
  }
}

void settle(Work& work, std::chrono::nanoseconds patience) {
  try {
    (void)work.wait_for(patience);
  } catch (const std::exception&) {  // it has ended
  }
}

// All ranks need as much memory, but one alone may not get it.
grad::Storage allocated(Communicator& communicator, const grad::GradientLayout& layout,
                        const GradientOptions& options) {
  try {
    grad::Storage storage(communicator, layout, options.wire, options.error_feedback);
    if (options.find_unused) storage.make_room_to_save();
    return storage;
  } catch (const std::exception& error) {
    grad::tell_all(communicator,
                   fmt::format("rank {}: gradient buckets: {}", communicator.rank(), error.what()));
    throw;
  }
}

}  // namespace

GradientBuckets::State::State(Communicator& communicator, std::vector<Parameter> parameters,
                              GradientOptions options)
    : communicator_(communicator),
      parameters_(grad::checked(communicator, std::move(parameters), options)),
      options_(grad::checked(communicator, std::move(options))),
      layout_(grad::make_layout(parameters_, grad::reverse_order(parameters_.size()),
                                options_.first_bucket_bytes, options_.bucket_bytes)),
      storage_(allocated(communicator, layout_, options_)),
      number_(grad::agreed_number(communicator, options_)),
      title_(make_title()),
      order_wanted_(options_.rebuild && parameters_.size() > 1),
      marks_(parameters_.size()),
      accumulated_(parameters_.size()),
      usage_((parameters_.size() + 63) / 64),
      exponents_(options_.wire == DType::f16 ? parameters_.size() : 0),
      again_(exponents_.size()),
      largest_(exponents_.size()),
      squares_(options_.norms ? parameters_.size() : 0) {
  observed_.reserve(parameters_.size());
  header_.resize(grad::header_elements + exponents_.size());
  prepare_buckets();
}

// Buffers are borrowed until operations have ended, and so is the place where their end is written.
// When an exception leaves a step, the other ranks may wait for this one elsewhere, until their
// deadline. So this rank first tells them, in every phase.
GradientBuckets::State::~State() {
  const auto pends = [](const Bucket& bucket) { return !bucket.work.done(); };
  const bool all_told = failure_ && std::none_of(buckets_.begin(), buckets_.end(), pends);
  if (std::uncaught_exceptions() > exceptions_ && phase_ != Phase::idle && !all_told)
    abandon_step("use GradientBuckets::step(), which tells all ranks its what()");
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    settle(buckets_[bucket].work);
    if (bucket < next_) ended_[bucket].wait(0, std::memory_order_acquire);
  }
  settle(header_work_);
  settle(usage_work_);
  communicator_.release_bulk(this);
}

void GradientBuckets::State::abandon_step(std::string_view why) noexcept {
  try {
    std::unique_lock lock(mutex_);
    if (phase_ == Phase::idle) return;
    const std::string text = fmt::format(
        "rank {}: an exception has left step {} of gradient buckets before finish(): {}",
        communicator_.rank(), step_, why);
    if (!failure_) failure_ = Failure{Errc::aborted, text};
    communicator_.release_bulk(this);
    lock.unlock();
    grad::tell_all(communicator_, text);
  } catch (const std::exception&) {  // no memory for the text: the deadline remains
  }
}

std::string GradientBuckets::State::make_title() const {
  std::string text = fmt::format("gradient buckets {} ({} parameters", number_, parameters_.size());
  if (!parameters_.empty()) text += fmt::format(", first '{}'", parameters_[0].name);
  return text + ')';
}

void GradientBuckets::State::prepare_buckets() {
  buckets_ = std::vector<Bucket>(layout_.buckets.size());
  ended_ = std::make_unique<std::atomic<Clock::rep>[]>(layout_.buckets.size());
  statistics_.reserve(layout_.buckets.size());
  next_ = 0;
}

void GradientBuckets::State::refuse(const std::string& what) const {
  throw Error(Errc::invalid_argument,
              fmt::format("gradient buckets on rank {}: {}", communicator_.rank(), what));
}

void GradientBuckets::State::check_index(std::string_view call, std::size_t parameter) const {
  if (parameter >= parameters_.size())
    refuse(fmt::format("{}({}): there is no such parameter, the model has {}", call, parameter,
                       parameters_.size()));
}

void GradientBuckets::State::check_usable() const {
  if (failure_) throw Error(failure_->code, failure_->message);
}

Buffer GradientBuckets::State::gradient(std::size_t parameter) const {
  check_index("gradient", parameter);
  const grad::GradientPlace& place = layout_.places[parameter];
  const DType type = parameters_[parameter].type;
  return {storage_.gradients(place.arena) + place.offset, place.bytes / size_of(type), type};
}

void GradientBuckets::State::zero() {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::finishing || (phase_ == Phase::synchronized && (launching_ || next_ != 0)))
    refuse(fmt::format(
        "zero() in step {} after buckets have started: call it before the backward pass", step_));
  storage_.zero();
  std::fill(accumulated_.begin(), accumulated_.end(), false);
}

void GradientBuckets::State::check_step(const StepOptions& options) {
  if (phase_ != Phase::idle)
    refuse(fmt::format("begin_step(): step {} has not been finished; call finish() first", step_));
  if (!(options.weight >= 0 && options.weight <= largest_weight))
    refuse(fmt::format("begin_step(): the weight is {}, it must be from 0 to {}", options.weight,
                       largest_weight));
  if (accumulations_ > 0 && options_.averaging == Averaging::weighted && options.weight != 0 &&
      options.weight != 1)
    refuse(fmt::format(
        "begin_step(): the weight {} of a local step would not count: leave it out, and give "
        "the step that travels the weight of all steps that it adds up",
        options.weight));
  std::fill(marks_.begin(), marks_.end(), Mark::waiting);
  for (const std::size_t parameter : options.unused) {
    check_index("unused", parameter);
    if (marks_[parameter] == Mark::unused)
      refuse(fmt::format("begin_step(): parameter '{}' is twice in the list of unused ones",
                         parameters_[parameter].name));
    marks_[parameter] = Mark::unused;
  }
}

void GradientBuckets::State::begin_accumulation() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::idle)
    refuse(fmt::format(
        "an Accumulation was made in the middle of step {}: make it before begin_step()", step_));
  ++accumulations_;
}

void GradientBuckets::State::begin_step(const StepOptions& options) {
  std::unique_lock lock(mutex_);
  check_usable();
  check_step(options);
  if (accumulations_ == 0) communicator_.reserve_bulk(this, title_);
  try {
    open_step(options);
  } catch (...) {
    lock.unlock();
    keep_failure();
    throw;
  }
}

void GradientBuckets::State::open_step(const StepOptions& options) {
  if (!next_order_.empty()) rebuild();
  ++step_;
  check_ = options.check;
  weight_ = options.weight;
  begun_ = Clock::now();
  std::fill(marks_.begin(), marks_.end(), Mark::waiting);
  observed_.clear();
  next_ = 0;
  planned_ = false;
  measuring_ = false;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    buckets_[bucket].waiting = layout_.buckets[bucket].parameters.size();
    buckets_[bucket].again = false;
    ended_[bucket].store(0, std::memory_order_relaxed);
  }
  any_unused_ = !options.unused.empty();
  for (const std::size_t parameter : options.unused) mark(parameter, Mark::unused);
  if (accumulations_ > 0) {
    phase_ = Phase::local;
    return;
  }
  trace_.begin_step(step_, begun_);
  const grad::HeaderValues values = grad::make_header(number_, step_, options);
  std::copy(values.begin(), values.end(), header_.begin());
  put_sizes();
  start_header();
  phase_ = Phase::synchronized;
}

void GradientBuckets::State::mark(std::size_t parameter, Mark how) {
  marks_[parameter] = how;
  for (const std::size_t bucket : layout_.places[parameter].buckets)
    if (--buckets_[bucket].waiting == 0) buckets_[bucket].ready = Clock::now();
}

void GradientBuckets::State::ready(std::size_t parameter) {
  check_index("ready", parameter);
  std::unique_lock lock(mutex_);
  check_usable();
  if (phase_ == Phase::idle)
    refuse(fmt::format("parameter '{}' became ready outside of a step: call begin_step() first",
                       parameters_[parameter].name));
  if (marks_[parameter] != Mark::waiting) mistaken_ready(lock, parameter);
  mark(parameter, Mark::ready);
  observed_.push_back(parameter);
  if (phase_ == Phase::local && weight_ > 0) accumulated_[parameter] = true;
  if (phase_ == Phase::synchronized) launch_ready(lock);
}

void GradientBuckets::State::ready(std::size_t parameter, const void* gradient) {
  const Buffer view = this->gradient(parameter);
  const std::size_t bytes = view.count * size_of(view.type);
  if (gradient == nullptr && bytes != 0)
    refuse(fmt::format("ready(): the gradient of '{}' is null", parameters_[parameter].name));
  {
    // A view that may already be on its way must not be written to.
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::idle || marks_[parameter] != Mark::waiting) gradient = view.data;
  }
  if (bytes != 0 && gradient != view.data) std::memcpy(view.data, gradient, bytes);
  ready(parameter);
}

void GradientBuckets::State::mistaken_ready(std::unique_lock<std::mutex>& lock,
                                            std::size_t parameter) {
  const std::string& name = parameters_[parameter].name;
  if (marks_[parameter] == Mark::unused)
    mistake(lock, fmt::format(
                      "parameter '{}' became ready in step {} although it counts as unused there: "
                      "do not name it as unused, and call ready() before finish()",
                      name, step_));
  mistake(
      lock,
      fmt::format("parameter '{}' became ready twice in step {}: call ready() once, after the last "
                  "addition to its gradient",
                  name, step_));
}

// Of finish(): what has no gradient yet gets none, if that may be.
void GradientBuckets::State::mark_missing(std::unique_lock<std::mutex>& lock) {
  const auto missing =
      static_cast<std::size_t>(std::count(marks_.begin(), marks_.end(), Mark::waiting));
  if (missing == 0) return;
  if (!options_.find_unused && weight_ > 0) {
    const auto first = std::find(marks_.begin(), marks_.end(), Mark::waiting) - marks_.begin();
    const std::string others = missing == 1 ? "" : fmt::format(" (and {} more)", missing - 1);
    mistake(
        lock,
        fmt::format(
            "parameter '{}'{} never became ready in step {}: mark it unused, or set find_unused",
            parameters_[static_cast<std::size_t>(first)].name, others, step_));
  }
  any_unused_ = true;
  for (std::size_t parameter = 0; parameter < marks_.size(); ++parameter)
    if (marks_[parameter] == Mark::waiting) mark(parameter, Mark::unused);
}

void GradientBuckets::State::mistake(std::unique_lock<std::mutex>& lock, const std::string& what) {
  const std::string text = fmt::format("rank {}: {}", communicator_.rank(), what);
  failure_ = Failure{Errc::invalid_argument, text};
  communicator_.release_bulk(this);
  const bool travels = phase_ == Phase::synchronized;
  lock.unlock();
  // Once the header is there, all ranks have left the step before, and the error reaches them in
  // this one. Some ranks may never come, because they wait for this rank elsewhere.
  if (travels) settle(header_work_, std::chrono::seconds{2});
  grad::tell_all(communicator_, text);
  throw Error(Errc::invalid_argument, text);
}

void GradientBuckets::State::keep_failure(std::error_code code, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = Failure{code, message};
  communicator_.release_bulk(this);
}

// Of the exception that is being handled. What only this rank may know of ends the step on all;
// that they differ all know.
void GradientBuckets::State::keep_failure() {
  const auto tell = [this](const std::exception& error) {
    std::string text = fmt::format("rank {}: gradient buckets: step {}: {}", communicator_.rank(),
                                   step_, error.what());
    grad::tell_all(communicator_, text);
    return text;
  };
  try {
    throw;
  } catch (const Error& error) {
    keep_failure(error.code(), error.what());
    if (error.code() != Errc::mismatch) tell(error);
  } catch (const std::exception& error) {
    keep_failure(Errc::system, tell(error));
  }
}

}  // namespace rondo
