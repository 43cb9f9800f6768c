// SPDX-License-Identifier: Apache-2.0
//
// The passes of a layer. On a GPU work is enqueued on the caller's stream, and the host waits for
// none of it. There it decides nothing that depends on numbers, except where it looks at the sums
// before the end of a forward pass.
#include "bn/layer/compute.h"

#include <algorithm>
#include <cmath>
#include <optional>
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

// Orders what comes in its life behind earlier work on the layer's memory and on a record, perhaps
// on another stream. end() orders later work behind it. A GPU's context is current.
class Enqueuing {
 public:
  // record: null if none is used.
  Enqueuing(Place& place, RecordMemory* record)
      : current_(place.current()), place_(place), record_(record) {
    place_.begin(record_);
  }
  // Ends by itself what an exception leaves: kernels may be under way, and the memory stays theirs.
  ~Enqueuing() {
    try {
      if (!ended_) end();
    } catch (const std::exception&) {  // the GPU refuses everything: nothing runs there any more
    }
  }
  Enqueuing(const Enqueuing&) = delete;
  Enqueuing& operator=(const Enqueuing&) = delete;
  void end() {
    ended_ = true;
    place_.end(record_);
  }

 private:
  const std::optional<device::Current> current_;
  Place& place_;
  RecordMemory* const record_;
  bool ended_ = false;
};

int threads_of(const Model& model) {
  const int threads = model.options.threads;
  return threads > 0 ? threads : model.shared->threads_per_rank();
}

std::unique_ptr<Place> place_of(const Model& model) {
  const BatchNormOptions& options = model.options;
  const std::size_t elements = array_count * model.channels;
  if (options.device < 0)
    return std::make_unique<HostPlace>(model.shared->pool(), threads_of(model), options.type,
                                       model.channels, elements);
  return std::make_unique<GpuPlace>(model.shared->kernels_on(options.device), options.type,
                                    model.channels, elements);
}

Values values_of(const Buffer& buffer) noexcept {
  return {buffer.count == 0 ? nullptr : static_cast<std::byte*>(buffer.data), buffer.type};
}

template <class Shape>  // Activations, PassRecord
double count_of(const Shape& shape) noexcept {
  return static_cast<double>(shape.samples * shape.spatial);
}

}  // namespace

Compute::Compute(Model& model)
    : model_(model),
      place_(place_of(model)),
      exchange_(*model.communicator, model.shared->local_calls(), model.channels,
                model.options.device) {
  model.buffers = own_buffers();
  Enqueuing enqueuing(*place_, nullptr);
  place_->run(arguments_with_buffers(ChannelTask::fill, nullptr));
  enqueuing.end();
  place_->await_start();
}

Compute::~Compute() {
  if (!place_->settle()) exchange_.lose_memory();
}

BatchNormBuffers Compute::own_buffers() const noexcept {
  const DType type = model_.options.type == DType::f64 ? DType::f64 : DType::f32;
  const auto own = [&](unsigned which, bool exists) {
    return exists ? Buffer{array(static_cast<Array>(own_at + which)), model_.channels, type,
                           model_.options.device}
                  : Buffer{nullptr, 0, type, model_.options.device};
  };
  return {own(0, model_.has_gamma()), own(1, model_.has_beta()), own(2, true), own(3, true),
          buffer(point_at)};
}

BatchNormStatistics Compute::statistics() const noexcept {
  return {buffer(mean_at), buffer(variance_at), static_cast<std::uint64_t>(model_.count)};
}

std::string Compute::take_stream(bool of_pass_under_way) {
  stream_ = of_pass_under_way ? pass_stream_ : next_stream_;
  return place_->use_stream(stream_);
}

void Compute::set_threads() noexcept {
  if (model_.shared != nullptr) place_->set_threads(threads_of(model_));
}

RecordMemory* Compute::record_of(PassRecord& pass) const {
  if (pass.memory == nullptr) pass.memory = place_->make_record(record_elements(model_.channels));
  return pass.memory.get();
}

ChannelArguments Compute::arguments_of(ChannelTask task,
                                       const RecordMemory* record) const noexcept {
  ChannelArguments arguments{};
  arguments.task = task;
  arguments.type = model_.options.type;
  arguments.channels = model_.channels;
  arguments.epsilon = model_.options.epsilon;
  arguments.arrays = place_->arrays();
  arguments.record = record == nullptr ? nullptr : record->data();
  return arguments;
}

ChannelArguments Compute::arguments_with_buffers(ChannelTask task,
                                                 const RecordMemory* record) const noexcept {
  ChannelArguments arguments = arguments_of(task, record);
  arguments.gamma = values_of(model_.buffers.gamma);
  arguments.beta = values_of(model_.buffers.beta);
  arguments.running_mean = values_of(model_.buffers.running_mean);
  arguments.running_variance = values_of(model_.buffers.running_variance);
  return arguments;
}

void Compute::begin_forward(PassRecord& pass, const Activations& x) {
  pass_stream_ = stream_;
  section();  // at first it allocates, outside of what is enqueued
  // A program may have written infinity or NaN into the points (BatchNormBuffers).
  if (!on_gpu())
    std::replace_if(
        array(point_at), array(point_at) + model_.channels,
        [](double point) { return !std::isfinite(point); }, 0);
  {
    Enqueuing enqueuing(*place_, record_of(pass));
    if (x.samples > 0) take_moments(x);
    enqueuing.end();
  }
  send_moments(pass, false);
}

void Compute::take_moments(const Activations& x) {
  const TensorLayout layout = model_.layout_of(x);
  place_->sum({x, layout, nullptr, array(point_at)});
  ChannelArguments arguments = arguments_of(ChannelTask::moments, nullptr);
  arguments.count = count_of(x);
  arguments.x = static_cast<const std::byte*>(x.data);
  arguments.stride = layout == TensorLayout::nchw ? x.spatial : 1;
  // Sums about a better point, in the channels that need it. send_moments() folds the last of them.
  for (int left = place_->repeats(); left > 0; --left) {
    place_->fold(arguments);
    place_->sum({x, layout, nullptr, array(center_at), &arguments.far(0)});
    arguments.task = ChannelTask::moments_again;
  }
}

void Compute::send_moments(const PassRecord& pass, bool again) {
  const bool sums = !again && pass.samples > 0;
  ChannelArguments arguments =
      arguments_of(sums ? ChannelTask::moments_again : ChannelTask::nothing, nullptr);
  arguments.last = true;
  arguments.count = count_of(pass);
  Enqueuing enqueuing(*place_, pass.memory.get());
  const Position position = model_.position(Pass::forward, pass.step, again);
  fold(arguments, position);
  enqueuing.end();
  exchange_.send(position, stream_);
}

void Compute::fold(ChannelArguments arguments, const Position& position) {
  arguments.section = section();
  arguments.head = {position.place(), position.layer->hash};
  place_->fold(arguments);
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

void Compute::expect_report(const Position& position, Model* layer) {
  model_.shared->late_check().expect(report(), position, layer, model_.shared->local_calls());
}

void Compute::end_forward(PassRecord& pass, const Activations& x, void* y) {
  join();
  // Only where K may well be too far does the host wait for the sums of a GPU: in a layer's first
  // pass, and after one in which it was. All ranks see the same sums, so all do the same.
  const bool looked = !on_gpu() || model_.doubts > 0;
  if (looked) look_at_sums(pass);
  Enqueuing enqueuing(*place_, pass.memory.get());
  // Counts the batch. Where no rank has samples, the look at the sums takes that back.
  ++model_.batches;
  model_.counted_unseen = !looked;
  end_moments(looked ? ChannelTask::forward : ChannelTask::merge_forward, pass, model_.momentum());
  if (looked && model_.count == 0) --model_.batches;
  if (!looked) {
    report().enqueue(section().far_word, stream_);
    expect_report(model_.position(Pass::forward, pass.step), &model_);
  }
  map(x, pass.layout, nullptr, y);
  enqueuing.end();
}

// Merges the sums of all ranks, and repeats them about the mean that they gave.
void Compute::look_at_sums(const PassRecord& pass) {
  for (int round = 1;; ++round) {
    {
      Enqueuing enqueuing(*place_, pass.memory.get());
      end_moments(ChannelTask::merge, pass, 0);
      if (on_gpu()) report().enqueue(section().far_word, stream_);
      enqueuing.end();
    }
    if (on_gpu()) report().wait(wait_time(model_.options.deadline));
    // Ranks that do not wait see a disagreement only in the next pass. So this one waits for it
    // too. On the processor join() has told it.
    if (on_gpu() && !statistics::agreed_in(report().head(), model_.communicator->size()).all())
      return expect_report(model_.position(Pass::forward, pass.step, round > 1), &model_);
    const bool far = on_gpu() ? report().far() : *section().far_word != 0;
    if (round == 1) {
      model_.count = on_gpu() ? report().count() : section().data[0];
      // Before the first pass there is no point.
      if (far && model_.steps > 1)
        model_.doubts = doubts_after_far;
      else if (on_gpu())
        --model_.doubts;
    }
    if (!far || round == most_rounds) return;
    send_moments(pass, true);
    join();
  }
}

void Compute::end_moments(ChannelTask task, const PassRecord& pass, double momentum) {
  ChannelArguments arguments = arguments_with_buffers(task, pass.memory.get());
  arguments.section = section();
  arguments.momentum = momentum;
  place_->run(arguments);
}

ChannelArguments Compute::gradient_sums(const PassRecord& pass, const Activations& x,
                                        const void* dy) {
  ChannelArguments arguments = arguments_of(ChannelTask::gradients, pass.memory.get());
  arguments.count = count_of(x);
  if (x.samples > 0) place_->sum({x, pass.layout, dy, &arguments.at(recorded_mean, 0)});
  return arguments;
}

void Compute::end_gradients(const PassRecord& pass, const BatchNormGradients& gradients,
                            const Section& section) {
  ChannelArguments arguments = arguments_of(ChannelTask::backward, pass.memory.get());
  arguments.section = section;
  arguments.gamma_gradient = values_of(gradients.gamma);
  arguments.beta_gradient = values_of(gradients.beta);
  arguments.add = gradients.add;
  place_->run(arguments);
}

void Compute::begin_backward(const PassRecord& pass, const Activations& x, const void* dy) {
  pass_stream_ = stream_;
  const Position position = model_.position(Pass::backward, pass.step);
  Enqueuing enqueuing(*place_, pass.memory.get());
  fold(gradient_sums(pass, x, dy), position);
  enqueuing.end();
  exchange_.send(position, stream_);
}

void Compute::end_backward(const PassRecord& pass, const Activations& x, const void* dy, void* dx,
                           const BatchNormGradients& gradients) {
  join();
  Enqueuing enqueuing(*place_, pass.memory.get());
  if (on_gpu()) {
    report().enqueue(section().far_word, stream_);
    expect_report(model_.position(Pass::backward, pass.step), nullptr);
  }
  end_gradients(pass, gradients, section());
  map(x, pass.layout, dy, dx);
  enqueuing.end();
}

void Compute::backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                                  const BatchNormGradients& gradients) {
  Enqueuing enqueuing(*place_, pass.memory.get());
  place_->fold(gradient_sums(pass, x, dy));
  end_gradients(pass, gradients, {});
  enqueuing.end();
}

void Compute::evaluate(const Activations& x, void* y) {
  Enqueuing enqueuing(*place_, record_of(evaluation_));
  place_->run(arguments_with_buffers(ChannelTask::running, evaluation_.memory.get()));
  map(x, model_.layout_of(x), nullptr, y);
  enqueuing.end();
}

void Compute::map(const Activations& x, TensorLayout layout, const void* dy, void* out) {
  if (x.samples > 0)
    place_->map({x, layout, dy, out, reinterpret_cast<const std::byte*>(array(lines_at))});
}

}  // namespace rondo::layer
