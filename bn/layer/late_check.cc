// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/late_check.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <utility>

#include "bn/layer/model.h"
#include "device/keep.h"

namespace rondo::layer {

namespace {

constexpr std::size_t report_bytes = (1 + SectionHead::elements) * sizeof(double);
// For a deadline of 0, which is the communicator's: it is not known here, and its collectives end
// by then in any case.
constexpr std::chrono::milliseconds longest_wait{300'000};

}  // namespace

std::chrono::milliseconds wait_time(std::chrono::milliseconds deadline) noexcept {
  return deadline.count() > 0 ? deadline : longest_wait;
}

GpuReport::GpuReport(std::shared_ptr<const GpuKernels> kernels)
    : kernels_(std::move(kernels)),
      memory_(std::make_unique<device::PinnedMemory>(kernels_->gpu(), report_bytes)),
      copied_(kernels_->gpu()) {}

GpuReport::~GpuReport() {
  // Memory to which a copy may still come is never freed.
  if (used_ && !kernels_->settle(copied_)) device::keep_until_exit(std::move(memory_));
}

void GpuReport::enqueue(const double* far_word, void* on) {
  const device::Gpu& gpu = kernels_->gpu();
  const auto stream = static_cast<device::StreamHandle>(on);
  gpu.check(gpu.driver().copy_to_host(memory_->data(), reinterpret_cast<device::Address>(far_word),
                                      report_bytes, stream),
            "cuMemcpyDtoHAsync");
  gpu.check(copied_.record(stream), "cuEventRecord");
  used_ = true;
}

void GpuReport::wait(std::chrono::milliseconds time) const {
  const device::Gpu& gpu = kernels_->gpu();
  const device::Current current(gpu);
  const device::Status status = device::wait_for(copied_, time);
  if (status == device::not_ready)
    throw Error(Errc::deadline_exceeded,
                fmt::format("batch norm: GPU {} has not ended a pass in {} ms", gpu.ordinal(),
                            time.count()));
  gpu.check(status, "the kernels of batch norm");
}

void LateCheck::expect(GpuReport& report, const statistics::Position& position, Model* layer,
                       const statistics::LocalCalls& calls) {
  local_calls_ = calls;
  position_ = position;
  layer_ = layer;
  report_ = &report;
}

void LateCheck::check(Communicator& communicator) {
  if (report_ == nullptr) return;
  const GpuReport& report = *std::exchange(report_, nullptr);
  report.wait(wait_time(position_.layer->options.deadline));
  const statistics::Agreed agreed = statistics::agreed_in(report.head(), communicator.size());
  if (!agreed.all()) statistics::tell_apart(communicator, position_, agreed, {}, local_calls_);
  if (layer_ != nullptr) layer_->take_report(report.count(), report.far());
}

void LateCheck::forget(const Model& layer) noexcept {
  if (layer_ == &layer) layer_ = nullptr;
}

GpuReport& LateCheck::report_of(const std::shared_ptr<GpuKernels>& kernels) {
  for (const auto& report : reports_)
    if (&report->kernels() == kernels.get()) return *report;
  return *reports_.emplace_back(std::make_unique<GpuReport>(kernels));
}

}  // namespace rondo::layer
