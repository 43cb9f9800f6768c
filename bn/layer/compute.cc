// SPDX-License-Identifier: Apache-2.0
//
// The passes of a layer. On a GPU work is enqueued on the caller's stream, and the host waits for
// none of it. There it decides nothing that depends on numbers, except where it looks at the sums
// before the end of a forward pass.
#include "bn/layer/compute.h"

#include <utility>

#include "bn/layer/gpu_place.h"
#include "bn/layer/host_place.h"

namespace rondo::layer {

using statistics::Pass;
using statistics::Position;

namespace {

// Rounds of collectives of one forward pass, at most. Each brings the point nearer by 50 binary
// digits, and two numbers of f64 are at most 2100 digits apart: see moments.h.
constexpr int most_rounds = 48;
// Where batches of different kinds alternate, the point is far again and again.
constexpr int doubts_after_far = 16;

int threads_of(const Model& model) {
  const int threads = model.options.threads;
  return threads > 0 ? threads : model.shared->threads_per_rank();
}

std::unique_ptr<Place> place_of(const Model& model) {
  const BatchNormOptions& options = model.options;
  const std::size_t elements = Arrays::elements(model.channels);
  if (options.device < 0)
    return std::make_unique<HostPlace>(model.shared->pool(), threads_of(model), options.type,
                                       model.channels, elements);
  return std::make_unique<GpuPlace>(model.shared->kernels_on(options.device), options.type,
                                    model.channels, elements);
}

SectionHead head_of(const Position& position) noexcept {
  return {position.place(), position.layer->hash};
}

double count_of(const PassRecord& pass) noexcept {
  return static_cast<double>(pass.samples * pass.spatial);
}

}  // namespace

Compute::Compute(Model& model)
    : model_(model),
      place_(place_of(model)),
      arrays_(*place_, model.channels, model.options.type, model.options.epsilon,
              model.options.device),
      exchange_(*model.communicator, model.shared->local_calls(), model.channels,
                model.options.device) {
  model.buffers = arrays_.own(model.has_gamma(), model.has_beta());
  Arrays::Enqueuing enqueuing(*place_, nullptr);
  arrays_.fill(model.buffers);
  enqueuing.end();
  place_->await_start();
}

Compute::~Compute() {
  if (model_.shared != nullptr) model_.shared->late_check().forget(*this);
  if (!place_->settle()) exchange_.lose_memory();
}

std::string Compute::take_stream(bool of_pass_under_way) {
  stream_ = of_pass_under_way ? pass_stream_ : next_stream_;
  return place_->use_stream(stream_);
}

void Compute::set_threads() noexcept {
  if (model_.shared != nullptr) place_->set_threads(threads_of(model_));
}

RecordMemory& Compute::record_of(PassRecord& pass) const {
  if (pass.memory == nullptr) pass.memory = place_->make_record(record_elements(model_.channels));
  return *pass.memory;
}

void Compute::begin_forward(PassRecord& pass, const Activations& x) {
  pass_stream_ = stream_;
  section();  // at first it allocates, outside of what is enqueued
  if (!on_gpu()) arrays_.mend_point();
  {
    Arrays::Enqueuing enqueuing(*place_, &record_of(pass));
    arrays_.take_moments(x, model_.layout_of(x));
    enqueuing.end();
  }
  send_moments(pass, false);
}

// again: the moments of before, about another point.
void Compute::send_moments(const PassRecord& pass, bool again) {
  const Position position = model_.position(Pass::forward, pass.step, again);
  Arrays::Enqueuing enqueuing(*place_, pass.memory.get());
  arrays_.put_moments(section(), head_of(position), count_of(pass), again);
  enqueuing.end();
  exchange_.send(position, stream_);
}

// On the processor the sums of all ranks are there now, on a GPU they are on their way. All ranks
// look at a pass on a GPU at the same point of their order: when the next one has been joined.
void Compute::join() {
  exchange_.join(stream_);
  model_.shared->late_check().check(*model_.communicator);
  if (!on_gpu()) exchange_.check();
}

GpuReport& Compute::report() {
  return model_.shared->late_check().report_of(model_.shared->kernels_on(model_.options.device));
}

void Compute::expect_report(const Position& position, ReportReader* reader) {
  model_.shared->late_check().expect(report(), position, reader, model_.shared->local_calls());
}

void Compute::end_forward(PassRecord& pass, const Activations& x, void* y) {
  join();
  // Only where K may well be too far does the host wait for the sums of a GPU: in a layer's first
  // pass, and after one in which it was. All ranks see the same sums, so all do the same.
  const bool looked = !on_gpu() || doubts_ > 0;
  if (looked) look_at_sums(pass);
  Arrays::Enqueuing enqueuing(*place_, pass.memory.get());
  // Counts the batch. Where no rank has samples, the look at the sums takes that back.
  ++model_.batches;
  model_.counted_unseen = !looked;
  arrays_.end_moments(looked ? ChannelTask::forward : ChannelTask::merge_forward, section(),
                      *pass.memory, model_.buffers, model_.momentum());
  if (looked && model_.count == 0) --model_.batches;
  if (!looked) {
    report().enqueue(section().far_word, stream_);
    expect_report(model_.position(Pass::forward, pass.step), this);
  }
  arrays_.map(x, pass.layout, nullptr, y);
  enqueuing.end();
}

// Merges the sums of all ranks, and repeats them about the mean that they gave.
void Compute::look_at_sums(const PassRecord& pass) {
  for (int round = 1;; ++round) {
    {
      Arrays::Enqueuing enqueuing(*place_, pass.memory.get());
      arrays_.end_moments(ChannelTask::merge, section(), *pass.memory, model_.buffers, 0);
      if (on_gpu()) report().enqueue(section().far_word, stream_);
      enqueuing.end();
    }
    if (on_gpu()) report().wait(wait_time(model_.options.deadline));
    // Ranks that do not wait see a disagreement only in the next pass. So this one waits for it
    // too. On the processor join() has told it.
    if (on_gpu() && !statistics::agreed_in(report().head(), model_.communicator->size()).all())
      return expect_report(model_.position(Pass::forward, pass.step, round > 1), this);
    const bool far = on_gpu() ? report().far() : *section().far_word != 0;
    if (round == 1) {
      model_.count = on_gpu() ? report().count() : section().data[0];
      // Before the first pass there is no point.
      if (far && model_.steps > 1)
        doubts_ = doubts_after_far;
      else if (on_gpu())
        --doubts_;
    }
    if (!far || round == most_rounds) return;
    send_moments(pass, true);
    join();
  }
}

void Compute::take_report(double count, bool far) noexcept {
  model_.count = count;
  if (far) doubts_ = doubts_after_far;
  // The caller may have set the number since.
  if (std::exchange(model_.counted_unseen, false) && count == 0) --model_.batches;
}

void Compute::begin_backward(const PassRecord& pass, const Activations& x, const void* dy) {
  pass_stream_ = stream_;
  const Position position = model_.position(Pass::backward, pass.step);
  Arrays::Enqueuing enqueuing(*place_, pass.memory.get());
  arrays_.take_gradient_sums(x, pass.layout, dy, *pass.memory, section(), head_of(position));
  enqueuing.end();
  exchange_.send(position, stream_);
}

void Compute::end_backward(const PassRecord& pass, const Activations& x, const void* dy, void* dx,
                           const BatchNormGradients& gradients) {
  join();
  Arrays::Enqueuing enqueuing(*place_, pass.memory.get());
  if (on_gpu()) {
    report().enqueue(section().far_word, stream_);
    expect_report(model_.position(Pass::backward, pass.step), nullptr);
  }
  arrays_.end_gradient_sums(section(), *pass.memory, gradients);
  arrays_.map(x, pass.layout, dy, dx);
  enqueuing.end();
}

void Compute::backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                                  const BatchNormGradients& gradients) {
  Arrays::Enqueuing enqueuing(*place_, pass.memory.get());
  arrays_.take_gradient_sums(x, pass.layout, dy, *pass.memory, {}, {});
  arrays_.end_gradient_sums({}, *pass.memory, gradients);
  enqueuing.end();
}

void Compute::evaluate(const Activations& x, void* y) {
  RecordMemory& record = record_of(evaluation_);
  Arrays::Enqueuing enqueuing(*place_, &record);
  arrays_.evaluation(record, model_.buffers);
  arrays_.map(x, model_.layout_of(x), nullptr, y);
  enqueuing.end();
}

}  // namespace rondo::layer
