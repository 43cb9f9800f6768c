// SPDX-License-Identifier: Apache-2.0
//
// A layer's calls: arguments are checked before anything changes, then Compute does the work.
#include <rondo/batch_norm.h>

#include <fmt/format.h>
#include <rondo/error.h>

#include <utility>

#include "base/default_floats.h"
#include "bn/layer/guard.h"
#include "bn/statistics/fingerprint.h"

namespace rondo {

using layer::Compute;
using layer::PassRecord;

class SyncBatchNorm::State {
 public:
  enum class UnderWay { nothing, forward, backward };

  State(Communicator& communicator, std::size_t channels, BatchNormOptions options)
      : model(communicator, channels, std::move(options)),
        compute(model),
        guard(model, compute),
        records(std::make_shared<layer::PassPool>(model.identity->title)) {}
  ~State() {
    if (under_way != UnderWay::nothing) compute.dissolve();
    records->close();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  bool on_gpu() const noexcept { return model.options.device >= 0; }
  void take_stream(bool of_pass_under_way) {
    guard.communicator();
    if (const std::string problem = compute.take_stream(of_pass_under_way); !problem.empty())
      throw Error(Errc::unsupported, fmt::format("{}: {}", model.who(), problem));
  }
  // Before a begin_forward or a backward pass.
  void check_free(const char* pass) const {
    if (under_way != UnderWay::nothing)
      guard.refuse(
          fmt::format("begin_{0} before end_{1}: its {1} pass has begun and must end first", pass,
                      under_way == UnderWay::forward ? "forward" : "backward"));
  }
  void check_begun(UnderWay wanted, const char* pass) const {
    if (under_way != wanted) guard.refuse(fmt::format("end_{0} without begin_{0}", pass));
  }
  // Checks what a backward pass is given at its begin.
  const PassRecord& begin_backward(const BatchNormPass& pass, const Activations& x,
                                   const Activations& dy);
  // Runs an end with its collective. Afterwards no pass is under way, also after an error.
  template <class Function>
  void finish(Function function) {
    struct Release {
      UnderWay& under_way;
      ~Release() { under_way = UnderWay::nothing; }
    };
    const Release release{under_way};
    function();
    model.shared->local_calls().clear();
  }

  layer::Model model;
  Compute compute;
  layer::Guard guard;
  std::shared_ptr<layer::PassPool> records;
  UnderWay under_way = UnderWay::nothing;
  // The pass under way has these.
  std::unique_ptr<PassRecord> forward;
  const PassRecord* backward = nullptr;
  Activations x, dy;
};

const PassRecord& SyncBatchNorm::State::begin_backward(const BatchNormPass& pass,
                                                       const Activations& in,
                                                       const Activations& gradient) {
  take_stream(false);
  check_free("backward");
  if (!pass)
    guard.refuse(
        "the pass is empty; take it from a forward pass, once, and do not use it after it was "
        "moved");
  if (pass.pool() != records.get())
    guard.refuse(fmt::format("the pass belongs to another layer, {}{}", pass.pool()->title(),
                             pass.pool()->closed() ? ", which has been destroyed" : ""));
  guard.backward(*pass.record(), in, gradient);
  return *pass.record();
}

SyncBatchNorm::SyncBatchNorm(Communicator& communicator, std::size_t channels,
                             BatchNormOptions options)
    : state_(std::make_unique<State>(communicator, channels, std::move(options))) {}
SyncBatchNorm::SyncBatchNorm(SyncBatchNorm&&) noexcept = default;
SyncBatchNorm::~SyncBatchNorm() = default;

std::size_t SyncBatchNorm::channels() const noexcept {
  return state_->model.channels;
}
const BatchNormOptions& SyncBatchNorm::options() const noexcept {
  return state_->model.options;
}
void SyncBatchNorm::set_options(const BatchNormOptions& options) {
  if (state_->under_way != State::UnderWay::nothing)
    state_->guard.refuse("set_options() while a pass is under way: call it between passes");
  state_->model.set_options(options);
  state_->compute.set_threads();
}
BatchNormBuffers SyncBatchNorm::buffers() const noexcept {
  return state_->model.buffers;
}
BatchNormStatistics SyncBatchNorm::statistics() const noexcept {
  return state_->compute.statistics();
}
std::uint64_t SyncBatchNorm::batches() const noexcept {
  return state_->model.batches;
}
void SyncBatchNorm::set_batches(std::uint64_t batches) noexcept {
  state_->model.batches = batches;
  state_->model.counted_unseen = false;
}
void SyncBatchNorm::set_stream(void* stream) noexcept {
  state_->compute.set_stream(stream);
}

void SyncBatchNorm::bind_parameters(Buffer gamma, Buffer beta) {
  layer::Model& model = state_->model;
  state_->guard.bound("gamma", gamma, model.has_gamma());
  state_->guard.bound("beta", beta, model.has_beta());
  model.buffers.gamma = gamma;
  model.buffers.beta = beta;
}

void SyncBatchNorm::bind_statistics(Buffer running_mean, Buffer running_variance) {
  state_->guard.bound("the running mean", running_mean, true);
  state_->guard.bound("the running variance", running_variance, true);
  state_->model.buffers.running_mean = running_mean;
  state_->model.buffers.running_variance = running_variance;
}

std::vector<Parameter> SyncBatchNorm::parameters() const {
  std::vector<Parameter> result;
  const auto add = [&](const char* suffix, const Buffer& buffer) {
    if (buffer.count > 0)
      result.push_back({fmt::format("{}.{}", options().name, suffix),
                        {buffer.count},
                        buffer.type,
                        buffer.device,
                        buffer.data});
  };
  const BatchNormBuffers all = buffers();
  add("weight", all.gamma);
  add("bias", all.beta);
  add("running_mean", all.running_mean);
  add("running_var", all.running_variance);
  add("point", all.point);
  return result;
}

BatchNormPass SyncBatchNorm::forward(const Activations& x, const Activations& y) {
  state_->guard.output(x, y, "y");
  begin_forward(x);
  return end_forward(y);
}

void SyncBatchNorm::begin_forward(const Activations& x) {
  const base::DefaultFloats floats;
  State& state = *state_;
  state.take_stream(false);
  state.check_free("forward");
  state.guard.input(x, "x");
  if (state.forward == nullptr) state.forward = state.records->take();
  PassRecord& pass = *state.forward;
  pass.samples = x.samples;
  pass.spatial = x.spatial;
  pass.layout = state.model.layout_of(x);
  if (!state.on_gpu())
    pass.x_fingerprint = statistics::fingerprint(x.data, state.model.bytes_of(x));
  pass.step = ++state.model.steps;
  state.x = x;
  state.compute.begin_forward(pass, x);
  state.under_way = State::UnderWay::forward;
}

BatchNormPass SyncBatchNorm::end_forward(const Activations& y) {
  const base::DefaultFloats floats;
  State& state = *state_;
  state.check_begun(State::UnderWay::forward, "forward");
  state.take_stream(true);
  state.guard.output(state.x, y, "y");
  state.forward->in_place = state.x.samples > 0 && y.data == state.x.data;
  state.finish([&] { state.compute.end_forward(*state.forward, state.x, y.data); });
  return BatchNormPass(state.records, std::move(state.forward));
}

void SyncBatchNorm::backward(const BatchNormPass& pass, const Activations& x, const Activations& dy,
                             const Activations& dx, const BatchNormGradients& gradients) {
  state_->guard.output(x, dx, "dx");
  state_->guard.output(dy, dx, "dx");
  state_->guard.gradients(gradients);
  begin_backward(pass, x, dy);
  end_backward(dx, gradients);
}

void SyncBatchNorm::begin_backward(const BatchNormPass& pass, const Activations& x,
                                   const Activations& dy) {
  const base::DefaultFloats floats;
  State& state = *state_;
  const PassRecord& record = state.begin_backward(pass, x, dy);
  state.backward = &record;
  state.x = x;
  state.dy = dy;
  state.compute.begin_backward(record, x, dy.data);
  state.under_way = State::UnderWay::backward;
}

void SyncBatchNorm::end_backward(const Activations& dx, const BatchNormGradients& gradients) {
  const base::DefaultFloats floats;
  State& state = *state_;
  state.check_begun(State::UnderWay::backward, "backward");
  state.take_stream(true);
  state.guard.output(state.x, dx, "dx");
  state.guard.output(state.dy, dx, "dx");
  state.guard.gradients(gradients);
  state.finish([&] {
    state.compute.end_backward(*state.backward, state.x, state.dy.data, dx.data, gradients);
  });
}

void SyncBatchNorm::backward_parameters(const BatchNormPass& pass, const Activations& x,
                                        const Activations& dy,
                                        const BatchNormGradients& gradients) {
  const base::DefaultFloats floats;
  State& state = *state_;
  const PassRecord& record = state.begin_backward(pass, x, dy);
  state.guard.gradients(gradients);
  state.model.shared->local_calls().local_backwards.note(options().name);
  state.compute.backward_parameters(record, x, dy.data, gradients);
}

void SyncBatchNorm::evaluate(const Activations& x, const Activations& y) const {
  const base::DefaultFloats floats;
  State& state = *state_;
  state.guard.communicator();
  if (!options().track_running)
    state.guard.refuse(
        "evaluation needs running statistics, and the layer has none (track_running is false)");
  state.guard.input(x, "x");
  state.guard.output(x, y, "y");
  state.take_stream(false);
  state.model.shared->local_calls().evaluations.note(options().name);
  state.compute.evaluate(x, y.data);
}

}  // namespace rondo
