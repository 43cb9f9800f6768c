// SPDX-License-Identifier: Apache-2.0
#include "bn/late_check.h"

#include <fmt/format.h>

#include <rondo/agreement.h>
#include <rondo/error.h>
#include <algorithm>
#include <utility>

#include "bn/layer.h"
#include "bn/settings.h"
#include "device/keep.h"

namespace rondo::bn {

void Position::forget_layer() {
  title = layer->title();
  options = layer->options();
  name_hash = layer->name_hash();
  layer = nullptr;
}

std::string Position::text() const {
  std::string result = fmt::format("at {}", layer != nullptr ? layer->title() : title);
  if (layers > 1)
    result += fmt::format(" ({} of {} in one call, {} channels)", number, layers, channels);
  result += pass == Pass::forward ? " forward" : " backward";
  result += fmt::format(" step {}", step);
  if (again) result += " (sums again)";
  if (history)
    result += fmt::format(" with statistics {:08x} of the steps before", *history & 0xffffffffu);
  if (other_history) result += " with other statistics of the steps before";
  if (local_calls == nullptr) return result;
  const std::string calls = local_calls->text();
  return calls.empty() ? result : fmt::format("{} ({})", result, calls);
}

void tell_apart(Communicator& communicator, const Position& position, bool same_layer) {
  std::string mine = position.text();
  const Layer* const layer = position.layer;
  if (!same_layer)
    mine += layer != nullptr
                ? differing_settings(communicator, layer->name_hash(), layer->options())
                : differing_settings(communicator, position.name_hash, position.options);
  throw_disagreement(communicator, "batch norm", mine);
}

Agreed agreed_in(std::span<const double> section, int size) noexcept {
  const auto agree = [&](std::size_t which) {
    return agreed(section.subspan(1 + which * agreement_elements).first<agreement_elements>(),
                  size);
  };
  return {agree(0), agree(1), agree(2)};
}

GpuReport::GpuReport(std::shared_ptr<const GpuKernels> kernels)
    : kernels_(std::move(kernels)), copied_(kernels_->gpu()) {}

GpuReport::~GpuReport() {
  const device::Gpu& gpu = kernels_->gpu();
  if (!used_ || !gpu.here()) return;
  try {
    const device::Current current(gpu);
    // Memory to which a copy may still come is never freed.
    if (device::wait_for(copied_, settle_time) == device::not_ready)
      device::keep_until_exit(std::move(memory_));
  } catch (const Error&) {
    // The GPU has failed, and runs nothing any more.
  }
}

void GpuReport::enqueue(std::span<const std::uintptr_t> sections, device::StreamHandle stream) {
  const device::Gpu& gpu = kernels_->gpu();
  constexpr std::size_t bytes = elements * sizeof(double);
  if (memory_ == nullptr || memory_->bytes() < sections.size() * bytes)
    memory_ = std::make_unique<device::PinnedMemory>(gpu, sections.size() * bytes);
  for (std::size_t i = 0; i < sections.size(); ++i)
    gpu.check(gpu.driver().copy_to_host(memory_->data() + i * bytes, sections[i] - sizeof(double),
                                        bytes, stream),
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

void LateCheck::expect(GpuReport& report, std::vector<Position>&& positions,
                       const LocalCalls& calls) {
  local_calls_ = calls;
  positions_ = std::move(positions);
  for (Position& position : positions_) position.local_calls = &local_calls_;
  report_ = &report;
}

void LateCheck::check(Communicator& communicator) {
  if (report_ == nullptr) return;
  const GpuReport& report = *std::exchange(report_, nullptr);
  std::chrono::milliseconds time{0};
  for (const Position& position : positions_)
    time = std::max(
        time, position.layer != nullptr ? position.layer->wait_time() : position.options.deadline);
  report.wait(time);
  for (std::size_t i = 0; i < positions_.size(); ++i) {
    const Agreed agreed = agreed_in(report.head(i), communicator.size());
    positions_[i].other_history = agreed.place && agreed.layer;
    if (!agreed.all()) tell_apart(communicator, positions_[i], agreed.layer);
  }
  for (std::size_t i = 0; i < positions_.size(); ++i)
    if (positions_[i].layer != nullptr && positions_[i].pass == Pass::forward)
      positions_[i].layer->take_report(report.head(i)[0], report.far(i));
}

void LateCheck::forget(const Layer& layer) {
  for (Position& position : positions_)
    if (position.layer == &layer) position.forget_layer();
}

GpuReport& LateCheck::report_of(const std::shared_ptr<GpuKernels>& kernels) {
  for (const auto& report : reports_)
    if (&report->kernels() == kernels.get()) return *report;
  return *reports_.emplace_back(std::make_unique<GpuReport>(kernels));
}

std::vector<Position> LateCheck::take_list() noexcept {
  positions_.clear();
  return std::move(positions_);
}

}  // namespace rondo::bn
