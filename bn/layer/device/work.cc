// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/device/work.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <utility>

#include "device/keep.h"

namespace rondo::layer {

namespace {

const std::byte* bytes_at(const void* data) noexcept {
  return static_cast<const std::byte*>(data);
}

DeviceValues values_of(const Buffer& buffer) noexcept {
  return {buffer.count == 0 ? nullptr : static_cast<std::byte*>(buffer.data), buffer.type};
}

double count_of(const Activations& x) noexcept {
  return static_cast<double>(x.samples * x.spatial);
}

}  // namespace

GpuWork::Enqueuing::Enqueuing(GpuWork& work, GpuRecord* record)
    : current_(work.gpu()), work_(work), record_(record) {
  work_.use_.begin(work_.stream_);
  if (record_ != nullptr) record_->use().begin(work_.stream_);
}

GpuWork::Enqueuing::~Enqueuing() {
  try {
    if (!ended_) end();
  } catch (const std::exception&) {  // the GPU refuses everything: nothing runs there any more
  }
}

void GpuWork::Enqueuing::end() {
  ended_ = true;
  work_.use_.end(work_.stream_);
  if (record_ != nullptr) record_->use().end(work_.stream_);
}

GpuWork::GpuWork(std::shared_ptr<GpuKernels> kernels, std::size_t channels,
                 const BatchNormOptions& options)
    : kernels_(std::move(kernels)),
      channels_(channels),
      type_(options.type),
      epsilon_(options.epsilon),
      use_(gpu()) {
  kernels_->load(type_);
  arrays_ = std::make_unique<GpuArrays>(gpu(), array_count * channels_);
}

GpuWork::~GpuWork() {
  if (use_.settle()) return;
  device::keep_until_exit(std::move(arrays_));
  device::keep_until_exit(std::move(partials_));
}

void GpuWork::fill(const statistics::LayerBuffers& buffers) {
  const device::Stream stream(gpu());
  const device::StreamHandle before = std::exchange(stream_, stream.get());
  Enqueuing work(*this, nullptr);
  const ChannelsArguments arguments = channels(ChannelsTask::fill, buffers);
  launch(DeviceKernel::channels, arguments, blocks_of(arguments));
  work.end();
  stream_ = before;
  if (!settle())
    throw Error(Errc::system, fmt::format("batch norm: GPU {} does not run kernels: nothing has "
                                          "ended in 10 s",
                                          gpu().ordinal()));
}

void GpuWork::add_up(DeviceKernel kernel, SumArguments& arguments) {
  cut(arguments, type_);
  const std::size_t elements = partial_elements(arguments);
  if (partials_ == nullptr || partials_->elements() < elements) {
    use_.end(stream_);
    if (!use_.settle()) device::keep_until_exit(std::move(partials_));
    partials_.reset();
    partials_ = std::make_unique<GpuArrays>(gpu(), elements);
  }
  parts_ = arguments.parts;
  arguments.partials = partials_->data();
  launch(kernel, arguments, blocks_of(arguments));
}

FoldArguments GpuWork::fold(FoldTask task, double count) const noexcept {
  FoldArguments arguments{};
  arguments.task = task;
  arguments.channels = channels_;
  arguments.count = count;
  arguments.in_f32 = size_of(type_) == 2;
  arguments.type = type_;
  if (count > 0 && task != FoldTask::nothing) {
    arguments.parts = parts_;
    arguments.partials = partials_->data();
  }
  return arguments;
}

void GpuWork::point_moments(FoldArguments& arguments) const noexcept {
  arguments.K = array(point_at);
  arguments.center = array(center_at);
  arguments.offset = array(offset_at);
  arguments.m2 = array(own_m2_at);
  arguments.far = reinterpret_cast<std::uint32_t*>(array(far_at));
}

void GpuWork::take_moments(const Activations& x, TensorLayout layout) {
  if (x.samples == 0) return;
  const double count = count_of(x);
  SumArguments sums{};
  sums.x = bytes_at(x.data);
  sums.shape = shape_of(x, layout, channels_);
  sums.center = array(point_at);
  add_up(DeviceKernel::moments, sums);
  FoldArguments first = fold(FoldTask::moments, count);
  point_moments(first);
  first.x = sums.x;
  first.stride = layout == TensorLayout::nchw ? x.spatial : 1;
  launch(DeviceKernel::fold, first, blocks_of(first));
  // About a better point, in the channels that need it. Where none does, these blocks end at once.
  sums.center = first.center;
  sums.wanted = first.far;
  launch(DeviceKernel::moments, sums, blocks_of(sums));
}

void GpuWork::put_moments(double* section, const SectionHead& head, double count, bool again) {
  FoldArguments arguments =
      fold(!again && count > 0 ? FoldTask::moments_again : FoldTask::nothing, count);
  point_moments(arguments);
  arguments.section = section;
  arguments.history = array(point_at);
  arguments.head = head;
  launch(DeviceKernel::fold, arguments, blocks_of(arguments));
}

ChannelsArguments GpuWork::channels(ChannelsTask task,
                                    const statistics::LayerBuffers& buffers) const noexcept {
  ChannelsArguments arguments{};
  arguments.task = task;
  arguments.channels = channels_;
  arguments.epsilon = epsilon_;
  arguments.lines_in_f64 = type_ == DType::f64;
  arguments.lines = reinterpret_cast<std::byte*>(array(lines_at));
  arguments.gamma = values_of(buffers.gamma);
  arguments.beta = values_of(buffers.beta);
  arguments.running_mean = values_of(buffers.running_mean);
  arguments.running_variance = values_of(buffers.running_variance);
  return arguments;
}

void GpuWork::end_moments(ChannelsTask task, double* section, const GpuRecord& record,
                          const statistics::LayerBuffers& buffers, double momentum) {
  ChannelsArguments arguments = channels(task, buffers);
  arguments.section = section;
  arguments.mean = array(mean_at);
  arguments.rest = array(rest_at);
  arguments.m2 = array(m2_at);
  arguments.point = array(point_at);
  arguments.variance = array(variance_at);
  arguments.record = record.arrays();
  arguments.momentum = momentum;
  launch(DeviceKernel::channels, arguments, blocks_of(arguments));
}

void GpuWork::evaluation(const GpuRecord& record, const statistics::LayerBuffers& buffers) {
  ChannelsArguments arguments = channels(ChannelsTask::running, buffers);
  arguments.record = record.arrays();
  launch(DeviceKernel::channels, arguments, blocks_of(arguments));
}

void GpuWork::take_gradient_sums(const Activations& x, TensorLayout layout, const void* dy,
                                 const GpuRecord& record, double* section,
                                 const SectionHead& head) {
  const DeviceRecord of = record.arrays();
  if (x.samples > 0) {
    SumArguments sums{};
    sums.x = bytes_at(x.data);
    sums.dy = bytes_at(dy);
    sums.shape = shape_of(x, layout, channels_);
    sums.center = of.mean;
    add_up(DeviceKernel::gradients, sums);
  }
  FoldArguments arguments = fold(FoldTask::gradients, count_of(x));
  arguments.mean = of.mean;
  arguments.sums = array(sums_at);
  arguments.section = section;
  arguments.history = of.point;
  arguments.head = head;
  launch(DeviceKernel::fold, arguments, blocks_of(arguments));
}

void GpuWork::end_gradient_sums(double* section, const GpuRecord& record,
                                const BatchNormGradients& gradients) {
  ChannelsArguments arguments = channels(ChannelsTask::backward, {});
  arguments.section = section;
  arguments.record = record.arrays();
  arguments.gamma_gradient = values_of(gradients.gamma);
  arguments.beta_gradient = values_of(gradients.beta);
  arguments.add = gradients.add;
  arguments.sums = array(sums_at);
  launch(DeviceKernel::channels, arguments, blocks_of(arguments));
}

void GpuWork::map(DeviceKernel kernel, const Activations& x, TensorLayout layout, const void* dy,
                  void* out) {
  if (x.samples == 0) return;
  MapArguments arguments{};
  arguments.x = bytes_at(x.data);
  arguments.dy = bytes_at(dy);
  arguments.out = static_cast<std::byte*>(out);
  arguments.lines = reinterpret_cast<const std::byte*>(array(lines_at));
  arguments.shape = shape_of(x, layout, channels_);
  arguments.access = access_of(arguments.shape, type_, {x.data, dy, out});
  launch(kernel, arguments, blocks_of(arguments, type_));
}

}  // namespace rondo::layer
