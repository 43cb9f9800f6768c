// SPDX-License-Identifier: Apache-2.0
//
// The passes of a layer on a GPU: what layer_passes.cc and layer_alone.cc do on the processor. The
// host decides nothing that depends on numbers, except where Exchange waits for them.
#include <utility>

#include "bn/layer.h"

namespace rondo::bn {

namespace {

// For a deadline of 0, which is the communicator's: it is not known here, and its collectives end
// by then in any case.
constexpr std::chrono::milliseconds longest_wait{300'000};
// Where batches of different kinds alternate, the point is far again and again.
constexpr int doubts_after_far = 16;

}  // namespace

GpuRecord& Layer::gpu_record(PassRecord& pass) const {
  if (pass.gpu == nullptr) pass.gpu = std::make_unique<GpuRecord>(gpu_->kernels(), channels_);
  return *pass.gpu;
}

std::chrono::milliseconds Layer::wait_time() const noexcept {
  return options_.deadline.count() > 0 ? options_.deadline : longest_wait;
}

void Layer::begin_forward_on_gpu() {
  GpuRecord& record = gpu_record(*last_);
  const device::Current current(gpu_->gpu());
  gpu_->begin(&record);
  gpu_->moments(x_, layout_of(x_), false);
  gpu_->end(&record);
  last_->step = ++steps_;
  finished_ = false;
}

void Layer::put_forward_on_gpu(std::uintptr_t section, const SectionHead& head, bool again) {
  const device::Current current(gpu_->gpu());
  gpu_->put_forward(section, head, local_count(), again);
  gpu_->end(last_->gpu.get());
}

// Since the begin of the pass there may have been an evaluation, perhaps on another stream.
void Layer::merge_on_gpu(std::uintptr_t section, bool finish) {
  section_ = section;
  gpu_->begin(last_->gpu.get());
  if (finish)
    finish_forward_on_gpu(true, section);
  else
    gpu_->forward(true, false, section, *last_->gpu, buffers(), 0);
}

// Counts the batch. Where no rank has samples, the next look at the sums takes that back.
void Layer::finish_forward_on_gpu(bool merge, std::uintptr_t section) {
  ++batches;
  counted_ = merge;
  gpu_->forward(merge, true, section, *last_->gpu, buffers(), momentum());
  finished_ = true;
}

void Layer::take_report(double count, bool far) noexcept {
  global_.count = count;
  if (far) doubts_ = doubts_after_far;
  // The caller may have set the number since.
  if (std::exchange(counted_, false) && count == 0) --batches;
}

void Layer::know_sums(double count, bool far) noexcept {
  global_.count = count;
  // Before the first pass there is no point.
  if (far && steps_ > 1)
    doubts_ = doubts_after_far;
  else if (doubts_ > 0)
    --doubts_;
}

void Layer::end_forward_on_gpu(const Activations& y, const BatchNormFusion& fusion) {
  const device::Current current(gpu_->gpu());
  if (!finished_) {
    // Exchange has looked at the sums.
    const bool none = global_.count == 0;
    finish_forward_on_gpu(false, section_);
    if (none) --batches;
  }
  gpu_->map_forward(x_, layout_of(x_), y.data, fusion);
  gpu_->end(last_->gpu.get());
}

void Layer::put_backward_on_gpu(std::uintptr_t section, const SectionHead& head) {
  GpuRecord& record = gpu_record(*current_);
  section_ = section;
  const device::Current current(gpu_->gpu());
  gpu_->begin(&record);
  gpu_->gradient_sums(x_, current_->layout, dy_.data, fusion_.relu ? fusion_.y.data : nullptr,
                      record);
  gpu_->put_backward(section, head, local_count(), record);
  gpu_->end(&record);
}

void Layer::end_backward_on_gpu(const Activations& dx, const BatchNormGradients& gradients) {
  GpuRecord& record = gpu_record(*current_);
  const device::Current current(gpu_->gpu());
  gpu_->begin(&record);
  gpu_->backward(BackwardKind::all, section_, record, gradients);
  gpu_->map_backward(x_, current_->layout, dy_.data, dx.data, false,
                     fusion_.relu ? fusion_.y.data : nullptr, fusion_.add.data);
  gpu_->end(&record);
}

void Layer::evaluate_on_gpu(PassRecord& pass, const Activations& x, const Activations& y,
                            const BatchNormFusion& fusion) {
  GpuRecord& record = gpu_record(pass);
  const device::Current current(gpu_->gpu());
  gpu_->begin(&record);
  const bool running = options_.track_running;
  pass.count = running ? 1 : static_cast<double>(x.samples * x.spatial);
  if (!running) gpu_->moments(x, layout_of(x), true);
  gpu_->evaluation(running, pass.count, record, buffers());
  gpu_->map_forward(x, layout_of(x), y.data, fusion);
  gpu_->end(&record);
}

void Layer::backward_alone_on_gpu(const PassRecord& pass, const Activations& x,
                                  const Activations& dy, const Activations* dx,
                                  const BatchNormGradients& gradients,
                                  const BatchNormFusion& fusion) {
  GpuRecord& record = gpu_record(pass);
  const device::Current current(gpu_->gpu());
  const void* const y = fusion.relu ? fusion.y.data : nullptr;
  const bool fixed = pass.source == Source::running;
  const auto count = static_cast<double>(x.samples * x.spatial);
  gpu_->begin(&record);
  if (x.samples > 0) gpu_->gradient_sums(x, pass.layout, dy.data, y, record);
  gpu_->put_backward(0, {}, count, record);
  const BackwardKind kind = dx == nullptr ? BackwardKind::none
                            : fixed       ? BackwardKind::fixed
                                          : BackwardKind::own;
  gpu_->backward(kind, 0, record, gradients);
  if (dx != nullptr)
    gpu_->map_backward(x, pass.layout, dy.data, dx->data, fixed, y, fusion.add.data);
  gpu_->end(&record);
}

}  // namespace rondo::bn
