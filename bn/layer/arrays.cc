// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/arrays.h"

#include <algorithm>
#include <cmath>
#include <exception>

namespace rondo::layer {

namespace {

Values values_of(const Buffer& buffer) noexcept {
  return {buffer.count == 0 ? nullptr : static_cast<std::byte*>(buffer.data), buffer.type};
}

double count_of(const Activations& x) noexcept {
  return static_cast<double>(x.samples * x.spatial);
}

}  // namespace

Arrays::Enqueuing::Enqueuing(Place& place, RecordMemory* record)
    : current_(place.current()), place_(place), record_(record) {
  place_.begin(record_);
}

Arrays::Enqueuing::~Enqueuing() {
  try {
    if (!ended_) end();
  } catch (const std::exception&) {  // the GPU refuses everything: nothing runs there any more
  }
}

void Arrays::Enqueuing::end() {
  ended_ = true;
  place_.end(record_);
}

BatchNormBuffers Arrays::own(bool gamma, bool beta) const noexcept {
  const DType type = type_ == DType::f64 ? DType::f64 : DType::f32;
  const auto buffer_at = [&](unsigned which, bool exists) {
    return exists ? Buffer{array(static_cast<Array>(own_at + which)), channels_, type, device_}
                  : Buffer{nullptr, 0, type, device_};
  };
  return {buffer_at(0, gamma), buffer_at(1, beta), buffer_at(2, true), buffer_at(3, true), point()};
}

void Arrays::mend_point() noexcept {
  std::replace_if(
      array(point_at), array(point_at) + channels_, [](double at) { return !std::isfinite(at); },
      0);
}

ChannelArguments Arrays::arguments_of(ChannelTask task, const RecordMemory* record,
                                      const Section& section,
                                      const BatchNormBuffers& buffers) const noexcept {
  ChannelArguments arguments{};
  arguments.task = task;
  arguments.type = type_;
  arguments.channels = channels_;
  arguments.epsilon = epsilon_;
  arguments.arrays = place_.arrays();
  arguments.record = record == nullptr ? nullptr : record->data();
  arguments.section = section;
  arguments.gamma = values_of(buffers.gamma);
  arguments.beta = values_of(buffers.beta);
  arguments.running_mean = values_of(buffers.running_mean);
  arguments.running_variance = values_of(buffers.running_variance);
  return arguments;
}

void Arrays::fill(const BatchNormBuffers& buffers) {
  place_.run(arguments_of(ChannelTask::fill, nullptr, {}, buffers));
}

void Arrays::take_moments(const Activations& x, TensorLayout layout) {
  if (x.samples == 0) return;
  place_.sum({x, layout, nullptr, array(point_at)});
  ChannelArguments arguments = arguments_of(ChannelTask::moments);
  arguments.count = count_of(x);
  arguments.x = static_cast<const std::byte*>(x.data);
  arguments.stride = layout == TensorLayout::nchw ? x.spatial : 1;
  // Sums about a better point, in the channels that need it. put_moments() folds the last of them.
  for (int left = place_.repeats(); left > 0; --left) {
    place_.fold(arguments);
    place_.sum({x, layout, nullptr, array(center_at), &arguments.far(0)});
    arguments.task = ChannelTask::moments_again;
  }
}

void Arrays::put_moments(const Section& section, const SectionHead& head, double count,
                         bool again) {
  const bool sums = !again && count > 0;
  ChannelArguments arguments =
      arguments_of(sums ? ChannelTask::moments_again : ChannelTask::nothing, nullptr, section);
  arguments.count = count;
  arguments.last = true;
  arguments.head = head;
  place_.fold(arguments);
}

void Arrays::end_moments(ChannelTask task, const Section& section, const RecordMemory& record,
                         const BatchNormBuffers& buffers, double momentum) {
  ChannelArguments arguments = arguments_of(task, &record, section, buffers);
  arguments.momentum = momentum;
  place_.run(arguments);
}

void Arrays::evaluation(const RecordMemory& record, const BatchNormBuffers& buffers) {
  place_.run(arguments_of(ChannelTask::running, &record, {}, buffers));
}

void Arrays::take_gradient_sums(const Activations& x, TensorLayout layout, const void* dy,
                                const RecordMemory& record, const Section& section,
                                const SectionHead& head) {
  ChannelArguments arguments = arguments_of(ChannelTask::gradients, &record, section);
  if (x.samples > 0) place_.sum({x, layout, dy, &arguments.at(recorded_mean, 0)});
  arguments.count = count_of(x);
  arguments.head = head;
  place_.fold(arguments);
}

void Arrays::end_gradient_sums(const Section& section, const RecordMemory& record,
                               const BatchNormGradients& gradients) {
  ChannelArguments arguments = arguments_of(ChannelTask::backward, &record, section);
  arguments.gamma_gradient = values_of(gradients.gamma);
  arguments.beta_gradient = values_of(gradients.beta);
  arguments.add = gradients.add;
  place_.run(arguments);
}

void Arrays::map(const Activations& x, TensorLayout layout, const void* dy, void* out) {
  if (x.samples > 0)
    place_.map({x, layout, dy, out, reinterpret_cast<const std::byte*>(array(lines_at))});
}

}  // namespace rondo::layer
