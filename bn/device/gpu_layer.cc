// SPDX-License-Identifier: Apache-2.0
#include "bn/device/gpu_layer.h"

#include <fmt/format.h>

#include <rondo/error.h>
#include <utility>

#include "device/keep.h"
#include "device/pointer.h"

namespace rondo::bn {

namespace {

template <class T>
T* pointer_of(std::uintptr_t address) noexcept {
  return reinterpret_cast<T*>(address);
}

const std::byte* bytes_at(const void* data) noexcept {
  return static_cast<const std::byte*>(data);
}

DeviceValues values_of(const Buffer& buffer) noexcept {
  return {buffer.count == 0 ? nullptr : static_cast<std::byte*>(buffer.data), buffer.type};
}

void set_buffers(ChannelsArguments& arguments, const LayerBuffers& buffers) noexcept {
  arguments.gamma = values_of(buffers.gamma);
  arguments.beta = values_of(buffers.beta);
  arguments.running_mean = values_of(buffers.running_mean);
  arguments.running_variance = values_of(buffers.running_variance);
}

}  // namespace

GpuLayer::GpuLayer(std::shared_ptr<GpuKernels> kernels, std::size_t channels,
                   const BatchNormOptions& options)
    : kernels_(std::move(kernels)),
      channels_(channels),
      type_(options.type),
      epsilon_(options.epsilon),
      use_(kernels_->gpu()) {
  kernels_->load(type_);
  arrays_ = std::make_unique<GpuArrays>(gpu(), array_count * channels);
}

GpuLayer::~GpuLayer() {
  if (use_.settle()) return;
  device::keep_until_exit(std::move(arrays_));
  device::keep_until_exit(std::move(partials_));
}

std::byte* GpuLayer::own_arrays() const noexcept {
  return reinterpret_cast<std::byte*>(array(own_at));
}

void GpuLayer::fill(const LayerBuffers& buffers) {
  const device::Stream stream(gpu());
  {
    const device::Current current(gpu());
    const device::StreamHandle before = std::exchange(stream_, stream.get());
    ChannelsArguments arguments = channels(ChannelsTask::fill);
    set_buffers(arguments, buffers);
    launch(DeviceKernel::channels, arguments, blocks_of(arguments));
    use_.end(stream_);
    stream_ = before;
  }
  if (!use_.settle())
    throw Error(Errc::system, fmt::format("batch norm: GPU {} does not run kernels: nothing has "
                                          "ended in 10 s",
                                          gpu().ordinal()));
}

std::string GpuLayer::problem_of(const void* data, std::size_t bytes) const {
  const device::Current current(gpu());
  return device::problem_of_memory(gpu(), data, bytes, "the layer is");
}

void GpuLayer::begin(GpuRecord* record) {
  use_.begin(stream_);
  if (record != nullptr) record->use().begin(stream_);
}

void GpuLayer::end(GpuRecord* record) {
  use_.end(stream_);
  if (record != nullptr) record->use().end(stream_);
}

void GpuLayer::add_up(DeviceKernel kernel, SumArguments& arguments) {
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

FoldArguments GpuLayer::fold(FoldTask task, double count) const noexcept {
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

void GpuLayer::point_moments(FoldArguments& arguments, bool own) const noexcept {
  const std::size_t first = own ? evaluated_at : center_at;
  arguments.K = array(point_at);
  arguments.center = array(first);
  arguments.offset = array(first + 1);
  arguments.m2 = array(first + 2);
  arguments.far = reinterpret_cast<std::uint32_t*>(array(first + 3));
}

void GpuLayer::moments(const Activations& x, TensorLayout layout, bool own) {
  if (x.samples == 0) return;
  const auto count = static_cast<double>(x.samples * x.spatial);
  SumArguments sums{};
  sums.x = bytes_at(x.data);
  sums.shape = shape_of(x, layout, channels_);
  sums.center = array(point_at);
  add_up(DeviceKernel::moments, sums);
  FoldArguments first = fold(FoldTask::moments, count);
  point_moments(first, own);
  first.x = sums.x;
  first.stride = layout == TensorLayout::nchw ? x.spatial : 1;
  launch(DeviceKernel::fold, first, blocks_of(first));
  // About a better point, in the channels that need it. Where none does, these blocks end at once.
  sums.center = first.center;
  sums.wanted = first.far;
  launch(DeviceKernel::moments, sums, blocks_of(sums));
  if (!own) return;
  FoldArguments again = fold(FoldTask::moments_again, count);
  point_moments(again, own);
  launch(DeviceKernel::fold, again, blocks_of(again));
}

void GpuLayer::put_forward(std::uintptr_t section, const SectionHead& head, double count,
                           bool again) {
  const bool sums = !again && count > 0;
  FoldArguments arguments = fold(sums ? FoldTask::moments_again : FoldTask::nothing, count);
  point_moments(arguments, false);
  arguments.section = pointer_of<double>(section);
  arguments.history = array(point_at);
  arguments.head = head;
  launch(DeviceKernel::fold, arguments, blocks_of(arguments));
}

ChannelsArguments GpuLayer::channels(ChannelsTask task) const noexcept {
  ChannelsArguments arguments{};
  arguments.task = task;
  arguments.channels = channels_;
  arguments.epsilon = epsilon_;
  arguments.lines_in_f64 = type_ == DType::f64;
  arguments.lines = reinterpret_cast<std::byte*>(array(lines_at));
  return arguments;
}

void GpuLayer::forward(bool merge, bool finish, std::uintptr_t section, GpuRecord& record,
                       const LayerBuffers& buffers, double momentum) {
  ChannelsArguments arguments = channels(!finish ? ChannelsTask::merge
                                         : merge ? ChannelsTask::merge_forward
                                                 : ChannelsTask::forward);
  arguments.section = pointer_of<double>(section);
  arguments.mean = array(mean_at);
  arguments.rest = array(rest_at);
  arguments.m2 = array(m2_at);
  arguments.point = array(point_at);
  arguments.variance = array(variance_at);
  arguments.record = record.arrays();
  arguments.momentum = momentum;
  set_buffers(arguments, buffers);
  launch(DeviceKernel::channels, arguments, blocks_of(arguments));
}

void GpuLayer::evaluation(bool running, double count, GpuRecord& record,
                          const LayerBuffers& buffers) {
  ChannelsArguments arguments = channels(running ? ChannelsTask::running : ChannelsTask::own);
  arguments.count = count;
  arguments.center = array(evaluated_at);
  arguments.offset = array(evaluated_at + 1);
  arguments.own_m2 = array(evaluated_at + 2);
  arguments.record = record.arrays();
  set_buffers(arguments, buffers);
  launch(DeviceKernel::channels, arguments, blocks_of(arguments));
}

void GpuLayer::map_forward(const Activations& x, TensorLayout layout, void* y,
                           const BatchNormFusion& fusion) {
  if (x.samples == 0) return;
  MapArguments arguments{};
  arguments.x = bytes_at(x.data);
  arguments.second = bytes_at(fusion.add.data);
  arguments.out = static_cast<std::byte*>(y);
  arguments.relu = fusion.relu;
  arguments.lines = reinterpret_cast<const std::byte*>(array(lines_at));
  arguments.shape = shape_of(x, layout, channels_);
  arguments.access = access_of(arguments.shape, type_, {x.data, fusion.add.data, y});
  launch(DeviceKernel::forward, arguments, blocks_of(arguments, type_));
}

void GpuLayer::gradient_sums(const Activations& x, TensorLayout layout, const void* dy,
                             const void* y, GpuRecord& record) {
  if (x.samples == 0) return;
  SumArguments sums{};
  sums.x = bytes_at(x.data);
  sums.dy = bytes_at(dy);
  sums.y = bytes_at(y);
  sums.shape = shape_of(x, layout, channels_);
  sums.center = record.arrays().mean;
  add_up(DeviceKernel::gradients, sums);
}

void GpuLayer::put_backward(std::uintptr_t section, const SectionHead& head, double count,
                            GpuRecord& record) {
  FoldArguments arguments = fold(FoldTask::gradients, count);
  arguments.mean = record.arrays().mean;
  arguments.sums = array(sums_at);
  arguments.section = pointer_of<double>(section);
  arguments.history = record.arrays().point;
  arguments.head = head;
  launch(DeviceKernel::fold, arguments, blocks_of(arguments));
}

void GpuLayer::backward(BackwardKind kind, std::uintptr_t section, GpuRecord& record,
                        const BatchNormGradients& gradients) {
  ChannelsArguments arguments = channels(ChannelsTask::backward);
  arguments.kind = kind;
  arguments.section = pointer_of<double>(section);
  arguments.record = record.arrays();
  arguments.gamma_gradient = values_of(gradients.gamma);
  arguments.beta_gradient = values_of(gradients.beta);
  arguments.add = gradients.add;
  arguments.sums = array(sums_at);
  arguments.global_sums = array(global_sums_at);
  launch(DeviceKernel::channels, arguments, blocks_of(arguments));
}

void GpuLayer::map_backward(const Activations& x, TensorLayout layout, const void* dy, void* dx,
                            bool fixed, const void* y, void* dz) {
  if (x.samples == 0) return;
  MapArguments arguments{};
  arguments.x = bytes_at(x.data);
  arguments.second = bytes_at(dy);
  arguments.y = bytes_at(y);
  arguments.out = static_cast<std::byte*>(dx);
  arguments.second_out = static_cast<std::byte*>(dz);
  arguments.fixed = fixed;
  arguments.lines = reinterpret_cast<const std::byte*>(array(lines_at));
  arguments.shape = shape_of(x, layout, channels_);
  arguments.access = access_of(arguments.shape, type_, {x.data, dy, y, dx, dz});
  launch(DeviceKernel::backward, arguments, blocks_of(arguments, type_));
}

}  // namespace rondo::bn
