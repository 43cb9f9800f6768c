// SPDX-License-Identifier: Apache-2.0
//
// The passes of a layer on a GPU: work is enqueued on the caller's stream, and the host waits for
// none of it. It decides nothing that depends on numbers, except where it looks at the sums before
// the end of a forward pass.
#include <array>
#include <cstdint>
#include <utility>

#include "bn/layer/compute.h"
#include "bn/layer/device/work.h"
#include "bn/statistics/exchange.h"
#include "device/pointer.h"

namespace rondo::layer {

namespace {

using statistics::Pass;
using statistics::Position;

// Where batches of different kinds alternate, the point is far again and again.
constexpr int doubts_after_far = 16;

class GpuCompute final : public Compute, public ReportReader {
 public:
  explicit GpuCompute(Model& model);
  ~GpuCompute() override;

  std::string take_stream(bool of_pass_under_way) override;
  void set_stream(void* stream) noexcept override {
    next_stream_ = static_cast<device::StreamHandle>(stream);
  }
  void set_threads(int) noexcept override {}
  void begin_forward(PassRecord& pass, const Activations& x) override;
  void end_forward(PassRecord& pass, const Activations& x, void* y) override;
  void begin_backward(const PassRecord& pass, const Activations& x, const void* dy) override;
  void end_backward(const PassRecord& pass, const Activations& x, const void* dy, void* dx,
                    const BatchNormGradients& gradients) override;
  void backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                           const BatchNormGradients& gradients) override;
  void evaluate(const Activations& x, void* y) override;
  void dissolve() noexcept override { exchange_.dissolve(); }
  std::string problem_of(const void* data, std::size_t bytes) const override;
  Buffer point() noexcept override { return work_.point(); }
  Buffer mean() noexcept override { return work_.mean(); }
  Buffer variance() noexcept override { return work_.variance(); }
  void take_report(double count, bool far) noexcept override;

 private:
  using Enqueuing = GpuWork::Enqueuing;

  double* section() { return reinterpret_cast<double*>(exchange_.address()); }
  SectionHead head_of(const Position& position) const noexcept {
    return {position.place(), position.layer->hash};
  }
  GpuRecord& record_of(PassRecord& pass) const;
  void send_moments(const PassRecord& pass, bool again);
  void look_at_sums(const PassRecord& pass, GpuReport& report);
  GpuReport& join();
  void expect_report(GpuReport& report, const Position& position, ReportReader* reader);

  Model& model_;
  GpuWork work_;
  statistics::Exchange exchange_;
  device::StreamHandle next_stream_ = nullptr, pass_stream_ = nullptr;
  PassRecord evaluation_{0};
  int doubts_ = 1;  // passes to come whose sums the host looks at before their end
  struct Known {
    const void* data;
    std::size_t bytes;
  };
  mutable std::array<Known, 8> known_{};  // memory that was checked; the oldest is replaced
  mutable std::size_t next_known_ = 0;
};

GpuCompute::GpuCompute(Model& model)
    : model_(model),
      work_(model.shared->kernels_on(model.options.device), model.channels, model.options),
      exchange_(*model.communicator, model.shared->local_calls(), model.channels,
                model.options.device) {
  bind_own_arrays(model, work_.own_arrays(), model.options.device);
  work_.fill(model.buffers);
}

GpuCompute::~GpuCompute() {
  if (model_.shared != nullptr) model_.shared->late_check().forget(*this);
  if (!work_.settle()) exchange_.lose_memory();
}

std::string GpuCompute::take_stream(bool of_pass_under_way) {
  work_.set_stream(of_pass_under_way ? pass_stream_ : next_stream_);
  return device::problem_of_stream(work_.gpu(), work_.stream());
}

std::string GpuCompute::problem_of(const void* data, std::size_t bytes) const {
  if (bytes == 0) return {};
  for (const Known& known : known_)
    if (known.data == data && known.bytes == bytes) return {};
  const device::Current current(work_.gpu());
  std::string problem = device::problem_of_memory(work_.gpu(), data, bytes, "the layer is");
  if (!problem.empty()) return problem;
  known_[next_known_] = {data, bytes};
  next_known_ = (next_known_ + 1) % known_.size();
  return {};
}

GpuRecord& GpuCompute::record_of(PassRecord& pass) const {
  if (pass.gpu == nullptr) pass.gpu = std::make_unique<GpuRecord>(work_.kernels(), model_.channels);
  return *pass.gpu;
}

void GpuCompute::begin_forward(PassRecord& pass, const Activations& x) {
  pass_stream_ = work_.stream();
  exchange_.address();  // at first it allocates, outside of what is enqueued
  {
    Enqueuing enqueuing(work_, &record_of(pass));
    work_.take_moments(x, model_.layout_of(x));
    enqueuing.end();
  }
  send_moments(pass, false);
}

// again: the moments of before, about another point.
void GpuCompute::send_moments(const PassRecord& pass, bool again) {
  const Position position = model_.position(Pass::forward, pass.step, again);
  Enqueuing enqueuing(work_, pass.gpu.get());
  work_.put_moments(section(), head_of(position), static_cast<double>(pass.samples * pass.spatial),
                    again);
  enqueuing.end();
  exchange_.send_on(position, work_.stream());
}

// Waits until the sums of all ranks are on their way to the GPU. Returns the report to use.
GpuReport& GpuCompute::join() {
  exchange_.join(work_.stream());
  LateCheck& late = model_.shared->late_check();
  late.check(*model_.communicator);
  return late.report_of(work_.kernels());
}

void GpuCompute::expect_report(GpuReport& report, const Position& position, ReportReader* reader) {
  model_.shared->late_check().expect(report, position, reader, model_.shared->local_calls());
}

void GpuCompute::end_forward(PassRecord& pass, const Activations& x, void* y) {
  GpuReport& report = join();
  // Only where K may well be too far does the host wait for the sums: in a layer's first pass, and
  // after one in which it was. All ranks see the same sums, so all do the same.
  const bool looked = doubts_ > 0;
  if (looked) look_at_sums(pass, report);
  Enqueuing enqueuing(work_, pass.gpu.get());
  // Counts the batch. Where no rank has samples, the next look at the sums takes that back.
  ++model_.batches;
  model_.counted_unseen = !looked;
  work_.end_moments(looked ? ChannelsTask::forward : ChannelsTask::merge_forward, section(),
                    *pass.gpu, model_.buffers, model_.momentum());
  if (looked && model_.count == 0) --model_.batches;
  if (!looked) {
    report.enqueue(exchange_.address(), work_.stream());
    expect_report(report, model_.position(Pass::forward, pass.step), this);
  }
  work_.map(DeviceKernel::forward, x, pass.layout, nullptr, y);
  enqueuing.end();
}

// Waits for the sums, as on the processor, and repeats them about the mean that they gave.
void GpuCompute::look_at_sums(const PassRecord& pass, GpuReport& report) {
  for (int round = 1;; ++round) {
    {
      Enqueuing enqueuing(work_, pass.gpu.get());
      work_.end_moments(ChannelsTask::merge, section(), *pass.gpu, model_.buffers, 0);
      report.enqueue(exchange_.address(), work_.stream());
      enqueuing.end();
    }
    report.wait(wait_time(model_.options.deadline));
    // Ranks that do not wait see a disagreement only in the next pass. So this one waits for it
    // too.
    if (!statistics::agreed_in(report.head(), model_.communicator->size()).all())
      return expect_report(report, model_.position(Pass::forward, pass.step, round > 1), this);
    if (round == 1) {
      model_.count = report.count();
      // Before the first pass there is no point.
      if (report.far() && model_.steps > 1)
        doubts_ = doubts_after_far;
      else
        --doubts_;
    }
    if (!report.far() || round == most_rounds) return;
    send_moments(pass, true);
    exchange_.join(work_.stream());
  }
}

void GpuCompute::take_report(double count, bool far) noexcept {
  model_.count = count;
  if (far) doubts_ = doubts_after_far;
  // The caller may have set the number since.
  if (std::exchange(model_.counted_unseen, false) && count == 0) --model_.batches;
}

void GpuCompute::begin_backward(const PassRecord& pass, const Activations& x, const void* dy) {
  pass_stream_ = work_.stream();
  const Position position = model_.position(Pass::backward, pass.step);
  Enqueuing enqueuing(work_, pass.gpu.get());
  work_.take_gradient_sums(x, pass.layout, dy, *pass.gpu, section(), head_of(position));
  enqueuing.end();
  exchange_.send_on(position, work_.stream());
}

void GpuCompute::end_backward(const PassRecord& pass, const Activations& x, const void* dy,
                              void* dx, const BatchNormGradients& gradients) {
  GpuReport& report = join();
  Enqueuing enqueuing(work_, pass.gpu.get());
  report.enqueue(exchange_.address(), work_.stream());
  expect_report(report, model_.position(Pass::backward, pass.step), nullptr);
  work_.end_gradient_sums(section(), *pass.gpu, gradients);
  work_.map(DeviceKernel::backward, x, pass.layout, dy, dx);
  enqueuing.end();
}

void GpuCompute::backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                                     const BatchNormGradients& gradients) {
  Enqueuing enqueuing(work_, pass.gpu.get());
  work_.take_gradient_sums(x, pass.layout, dy, *pass.gpu, nullptr, {});
  work_.end_gradient_sums(nullptr, *pass.gpu, gradients);
  enqueuing.end();
}

void GpuCompute::evaluate(const Activations& x, void* y) {
  GpuRecord& record = record_of(evaluation_);
  Enqueuing enqueuing(work_, &record);
  work_.evaluation(record, model_.buffers);
  work_.map(DeviceKernel::forward, x, model_.layout_of(x), nullptr, y);
  enqueuing.end();
}

}  // namespace

std::unique_ptr<Compute> compute_on_gpu(Model& model) {
  return std::make_unique<GpuCompute>(model);
}

}  // namespace rondo::layer
