// SPDX-License-Identifier: Apache-2.0
#include "python/torch/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <rondo/batch_norm.h>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "python/torch/arguments.h"
#include "python/torch/backend.h"
#include "python/torch/call_stream.h"
#include "python/torch/element.h"
#include "python/torch/flat.h"
#include "python/torch/group_session.h"
#include "python/torch/norms.h"

namespace rondo::python {

// A batch as one block of memory: samples x channels x positions, or with the channels last. A
// tensor that is neither is copied.
class Batch {
 public:
  explicit Batch(const at::Tensor& tensor) : tensor_(tensor.resolve_neg()) {
    check_tensor(tensor_);
    if (!tensor_.is_contiguous() && !channels_last(tensor_))
      tensor_ = tensor_.contiguous(tensor_.suggest_memory_format());
    layout_ = tensor_.is_contiguous() ? TensorLayout::nchw : TensorLayout::nhwc;
  }
  // Memory for a result that lies as `like` does.
  static Batch empty_like(const Batch& like) {
    return Batch(at::empty_like(like.tensor_), like.layout_);
  }
  // Returns the same elements where they lie as those of `like`, else a copy that does.
  static Batch as(const at::Tensor& tensor, const Batch& like) {
    const bool same =
        like.layout_ == TensorLayout::nchw ? tensor.is_contiguous() : channels_last(tensor);
    if (same && tensor.scalar_type() == like.tensor_.scalar_type() && !tensor.is_neg())
      return Batch(tensor, like.layout_);
    Batch copy = empty_like(like);
    copy.tensor_.copy_(tensor);
    return copy;
  }

  const at::Tensor& tensor() const noexcept { return tensor_; }
  Activations view() const {
    if (tensor_.numel() == 0) return {nullptr, 0, 1, layout_};
    const auto samples = static_cast<std::size_t>(tensor_.size(0));
    const auto each = static_cast<std::size_t>(tensor_.size(1)) * samples;
    return {tensor_.data_ptr(), samples, static_cast<std::size_t>(tensor_.numel()) / each, layout_};
  }

 private:
  Batch(at::Tensor tensor, TensorLayout layout) : tensor_(std::move(tensor)), layout_(layout) {}

  // As torch's channels_last, for any number of dimensions.
  static bool channels_last(const at::Tensor& tensor) {
    std::int64_t stride = 1;
    const auto follows = [&](std::int64_t dim) {
      const bool good = tensor.size(dim) == 1 || tensor.stride(dim) == stride;
      stride *= tensor.size(dim);
      return good;
    };
    if (!follows(1)) return false;
    for (std::int64_t dim = tensor.dim() - 1; dim > 1; --dim)
      if (!follows(dim)) return false;
    return follows(0);
  }

  at::Tensor tensor_;
  TensorLayout layout_;
};

// A layer of Rondo for batches of one type. It goes when its last pass has gone.
class NormLayer {
 public:
  NormLayer(std::shared_ptr<GroupSession> session, std::unique_ptr<SyncBatchNorm> layer)
      : session_(std::move(session)), layer_(std::move(layer)) {}
  NormLayer(const NormLayer&) = delete;
  NormLayer& operator=(const NormLayer&) = delete;
  ~NormLayer() { session_->norms().retire(std::move(layer_)); }

  const std::shared_ptr<GroupSession>& session() const noexcept { return session_; }
  SyncBatchNorm& operator*() const noexcept { return *layer_; }
  SyncBatchNorm* operator->() const noexcept { return layer_.get(); }

 private:
  const std::shared_ptr<GroupSession> session_;
  std::unique_ptr<SyncBatchNorm> layer_;
};

// A forward pass that waits for backward. It is saved with the input as a tensor of one number, so
// that whoever replaces the saved tensors replaces both: a checkpoint without reentry computes the
// input anew, perhaps with other last digits, and with it another pass. Thread-safe.
class NormPass {
 public:
  static std::shared_ptr<NormPass> make(std::shared_ptr<NormLayer> layer, BatchNormPass pass) {
    auto made = std::make_shared<NormPass>(std::move(layer), std::move(pass));
    made->number_ = made->norms().add(made);
    return made;
  }
  NormPass(std::shared_ptr<NormLayer> layer, BatchNormPass pass)
      : layer_(std::move(layer)), pass_(std::move(pass)) {}
  NormPass(const NormPass&) = delete;
  NormPass& operator=(const NormPass&) = delete;
  ~NormPass() {
    norms().remove(number_);
    if (norms().in_child()) static_cast<void>(new BatchNormPass(std::move(pass_)));
  }

  // The tensor that stands for the pass, and keeps it alive.
  static at::Tensor token(const std::shared_ptr<NormPass>& pass) {
    return at::from_blob(
        &pass->number_, {1}, [pass](void*) {}, at::kLong);
  }

  // Gradients of the input, weight and bias, undefined where they are not wanted; weight, bias:
  // their types. Gradients of weight and bias are those of this rank's samples. The call is a
  // collective if the input wants a gradient.
  std::tuple<at::Tensor, at::Tensor, at::Tensor> backward(const at::Tensor& token,
                                                          const at::Tensor& x, const at::Tensor& dy,
                                                          std::optional<at::ScalarType> weight,
                                                          std::optional<at::ScalarType> bias,
                                                          bool wants_input) const {
    const std::int64_t number = token.item<std::int64_t>();
    if (number != number_) {
      const auto other = norms().find(number);
      TORCH_CHECK(other != nullptr, "rondo: layer ", name(),
                  ": the forward pass of the saved tensors has gone");
      return other->backward(token, x, dy, weight, bias, wants_input);
    }
    const Batch input(x), gradient = Batch::as(dy, input);
    at::Tensor dweight, dbias;
    BatchNormGradients gradients;
    const at::TensorOptions where(x.device());
    if (weight) gradients.gamma = whole(dweight = at::empty({x.size(1)}, where.dtype(*weight)));
    if (bias) gradients.beta = whole(dbias = at::empty({x.size(1)}, where.dtype(*bias)));
    std::optional<Batch> result;
    if (wants_input) result = Batch::empty_like(input);
    session().use_asleep([&](Communicator&) {
      const std::lock_guard one(norms().calls());
      (*layer_)->set_stream(CallStream({x}, {dy}).handle());
      if (result)
        (*layer_)->backward(pass_, input.view(), gradient.view(), result->view(), gradients);
      else
        (*layer_)->backward_parameters(pass_, input.view(), gradient.view(), gradients);
    });
    return {result ? result->tensor() : at::Tensor(), dweight, dbias};
  }

 private:
  GroupSession& session() const noexcept { return *layer_->session(); }
  Norms& norms() const noexcept { return session().norms(); }
  const std::string& name() const noexcept { return (*layer_)->options().name; }

  const std::shared_ptr<NormLayer> layer_;
  BatchNormPass pass_;
  std::int64_t number_ = 0;
};

// One module in one process group. Thread-safe: passes of a group wait for each other.
class Norm {
 public:
  // who: "rank 1: layer stem", for errors of this rank alone.
  Norm(const c10::intrusive_ptr<c10d::Backend>& backend, std::string name, std::string who)
      : name_(std::move(name)), who_(std::move(who)) {
    const auto* const own = dynamic_cast<Backend*>(backend.get());
    TORCH_CHECK_VALUE(own != nullptr, who_, " is in a process group of the backend ",
                      backend->getBackendName(),
                      ", and rondo.torch.SyncBatchNorm needs one of the backend rondo: "
                      "new_group(backend=\"rondo\") makes one");
    session_ = own->session();
    options_ = backend->getBackendOptions();
  }

  // Returns the output, the input as backward needs it, the pass and its token: none if no backward
  // pass follows. It is a collective.
  using Result =
      std::tuple<at::Tensor, at::Tensor, std::shared_ptr<NormPass>, std::optional<at::Tensor>>;
  Result forward(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                 const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& mean,
                 const std::optional<at::Tensor>& variance, std::optional<double> momentum,
                 std::uint64_t batches, double epsilon, bool keeps) {
    check_type(x, "the input");
    const Batch input(x), output = Batch::empty_like(input);
    const Flat gamma = parameter(weight, "weight", Flat::Use::reads),
               beta = parameter(bias, "bias", Flat::Use::reads);
    Statistics statistics{parameter(mean, "running_mean", Flat::Use::both),
                          parameter(variance, "running_var", Flat::Use::both),
                          {}};
    const Activations view = input.view();
    const CallStream stream({x}, {});
    // Only then all ranks together may have one value for each channel, which is refused below. On
    // a GPU this is not checked.
    if (mean && view.samples * view.spatial <= 1 && !stream) statistics.before = mean->clone();
    std::shared_ptr<NormPass> pass;
    session_->use_asleep([&](Communicator& communicator) {
      const std::lock_guard one(session_->norms().calls());
      session_->norms().clear();
      BatchNormOptions options;
      options.type = moved_type(x);
      options.epsilon = epsilon;
      options.momentum = momentum;
      options.affine = weight.has_value();
      options.bias = bias.has_value();
      options.track_running = mean.has_value();
      options.device = stream ? x.device().index() : -1;
      const auto layer = layer_for(communicator, static_cast<std::size_t>(x.size(1)), options);
      (*layer)->bind_parameters(gamma.buffer(), beta.buffer());
      if (mean) (*layer)->bind_statistics(statistics.mean.buffer(), statistics.variance.buffer());
      (*layer)->set_batches(batches);
      (*layer)->set_stream(stream.handle());
      BatchNormPass made = (*layer)->forward(view, output.view());
      // On a GPU the count of all ranks comes later.
      const std::uint64_t count = stream ? 2 : (*layer)->statistics().count;
      if (count > 0) statistics.finish(count == 1, mean, variance);
      TORCH_CHECK_VALUE(count != 1, "Expected more than 1 value per channel when training: ", who_,
                        " has an input of size ", x.sizes(),
                        ", and all ranks together have one value");
      if (keeps) pass = NormPass::make(layer, std::move(made));
    });
    if (!pass) return {output.tensor(), {}, nullptr, std::nullopt};
    return {output.tensor(), input.tensor(), pass, NormPass::token(pass)};
  }

 private:
  struct Statistics {
    Flat mean, variance;
    at::Tensor before;  // the mean, where it may have to be as before

    void finish(bool restores, const std::optional<at::Tensor>& of_mean,
                const std::optional<at::Tensor>& of_variance) {
      if (restores && of_mean) mean.memory().copy_(before);
      mean.copy_back();
      variance.copy_back();
      for (const auto* const tensor : {&of_mean, &of_variance})
        if (*tensor && !(*tensor)->is_inference()) (*tensor)->unsafeGetTensorImpl()->bump_version();
    }
  };

  void check_type(const at::Tensor& tensor, const char* what) const {
    const at::ScalarType type = tensor.scalar_type();
    TORCH_CHECK_VALUE(
        type == at::kDouble || type == at::kFloat || type == at::kHalf || type == at::kBFloat16,
        who_, ": ", what, " is ", c10::toString(type),
        "; it must be float64, float32, float16 or bfloat16");
  }
  Flat parameter(const std::optional<at::Tensor>& tensor, const char* what, Flat::Use use) const {
    if (!tensor) return {};
    check_type(*tensor, what);
    return Flat(*tensor, use);
  }

  // The layer for batches of this type on this device: the last one, unless other options have
  // changed. Threads and timeout are as torch has them now.
  std::shared_ptr<NormLayer> layer_for(Communicator& communicator, std::size_t channels,
                                       BatchNormOptions& options) {
    const auto found = std::ranges::find_if(layers_, [&](const auto& one) {
      return (*one)->options().type == options.type && (*one)->options().device == options.device;
    });
    options.threads = std::clamp(at::get_num_threads(), 1, 1024);
    options.deadline = limited(options_->timeout);
    if (found != layers_.end() && fits(**found, channels, options)) {
      NormLayer& layer = **found;
      const BatchNormOptions& has = layer->options();
      options.name = has.name;
      if (options != has) layer->set_options(options);
      return *found;
    }
    options.name = session_->norms().fresh_name(name_);
    auto layer = std::make_shared<NormLayer>(
        session_, std::make_unique<SyncBatchNorm>(communicator, channels, options));
    if (found != layers_.end())
      *found = layer;
    else
      layers_.push_back(layer);
    return layer;
  }
  static bool fits(const NormLayer& layer, std::size_t channels, const BatchNormOptions& options) {
    const BatchNormOptions& has = layer->options();
    return layer->channels() == channels && has.epsilon == options.epsilon &&
           has.affine == options.affine && has.bias == options.bias &&
           has.track_running == options.track_running;
  }

  const std::string name_, who_;
  std::shared_ptr<GroupSession> session_;
  c10::intrusive_ptr<c10d::Backend::Options> options_;
  // One for each type and device; under Norms::calls().
  std::vector<std::shared_ptr<NormLayer>> layers_;
};

void bind_batch_norm(py::module& module) {
  using torch::wrap_pybind_function_no_gil;
  py::class_<NormPass, std::shared_ptr<NormPass>>(module, "NormPass")
      .def("backward", wrap_pybind_function_no_gil(&NormPass::backward));
  py::class_<Norm, std::shared_ptr<Norm>>(module, "Norm")
      .def(py::init(wrap_pybind_function_no_gil(
          [](const c10::intrusive_ptr<c10d::Backend>& backend, std::string name, std::string who) {
            return std::make_shared<Norm>(backend, std::move(name), std::move(who));
          })))
      .def("forward", wrap_pybind_function_no_gil(&Norm::forward));
}

}  // namespace rondo::python
