// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/guard.h"

#include <fmt/format.h>
#include <rondo/error.h>

#include <cstdint>
#include <utility>

#include "bn/statistics/fingerprint.h"

namespace rondo::layer {

namespace {

bool overlap_in_part(const void* a, const void* b, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a),
             second = reinterpret_cast<std::uintptr_t>(b);
  return first != second && (first < second ? second - first : first - second) < bytes;
}

}  // namespace

void Guard::refuse(const std::string& why) const {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", model_.who(), why));
}

void Guard::communicator() const {
  if (model_.communicator == nullptr)
    refuse("its communicator has been destroyed; make a layer on another one");
}

void Guard::memory(const void* data, std::size_t bytes, const char* what) const {
  if (const std::string problem = compute_.problem_of(data, bytes); !problem.empty())
    refuse(fmt::format("{} {}", what, problem));
}

void Guard::input(const Activations& x, const char* what) const {
  if (x.samples > 0 && (x.data == nullptr || x.spatial == 0))
    refuse(
        fmt::format("{} has {} samples of {} positions, with data {}: neither the positions nor "
                    "data may be 0",
                    what, x.samples, x.spatial, x.data));
  constexpr std::size_t most = std::size_t{1} << 53;  // counts are summed in f64
  if (x.samples > 0 &&
      (x.samples > most / x.spatial || x.samples * x.spatial > most / model_.channels))
    refuse(fmt::format("{} has more than 2^53 elements", what));
  if (x.layout && *x.layout != TensorLayout::nchw && *x.layout != TensorLayout::nhwc)
    refuse(fmt::format("the layout of {} is neither nchw nor nhwc", what));
  memory(x.data, model_.bytes_of(x), what);
}

void Guard::alike(const Activations& given, const char* what, const Shape& wanted) const {
  const auto name = [](TensorLayout layout) {
    return layout == TensorLayout::nchw ? "nchw" : "nhwc";
  };
  if (given.samples != wanted.samples || (given.samples > 0 && given.spatial != wanted.spatial))
    refuse(fmt::format("{} has {} samples of {} positions, {} {} of {}", what, given.samples,
                       given.spatial, wanted.whose, wanted.samples, wanted.spatial));
  if (given.samples > 0 && model_.layout_of(given) != wanted.layout)
    refuse(fmt::format("{} is {}, x was {}: activations of one pass have one layout", what,
                       name(model_.layout_of(given)), name(wanted.layout)));
}

void Guard::output(const Activations& in, const Activations& out, const char* what) const {
  input(out, what);
  alike(out, what, {in.samples, in.spatial, model_.layout_of(in), "the input has"});
  if (overlap_in_part(in.data, out.data, model_.bytes_of(in)))
    refuse(fmt::format(
        "{} overlaps the input in part: give it the same memory or memory of its own", what));
}

void Guard::backward(const PassRecord& pass, const Activations& x, const Activations& dy) const {
  const Shape shape{pass.samples, pass.spatial, pass.layout, "the forward pass had"};
  for (const auto& [what, given] : {std::pair("x", &x), std::pair("dy", &dy)}) {
    input(*given, what);
    alike(*given, what, shape);
  }
  // On a GPU nothing is known of x without waiting.
  if (model_.options.device < 0 &&
      statistics::fingerprint(x.data, model_.bytes_of(x)) != pass.x_fingerprint)
    refuse(fmt::format("x is not what the forward pass of step {} was given{}", pass.step,
                       pass.in_place ? ": that pass wrote its output over it; give forward another "
                                       "y where backward follows"
                                     : "; keep x unchanged until backward"));
}

void Guard::bound(const char* what, const Buffer& buffer, bool exists) const {
  if (!exists && buffer.count > 0)
    refuse(fmt::format("{} must be empty, because the layer has {}", what,
                       model_.options.affine ? "no bias" : "no gamma and beta (affine is false)"));
  if (!exists) return;
  const int device = model_.options.device;
  const bool elsewhere = device < 0 ? buffer.device >= 0 : buffer.device != device;
  if (buffer.count != model_.channels || !is_float_of_layer(buffer.type) ||
      buffer.data == nullptr || elsewhere)
    refuse(fmt::format("{} must be {} f64, f32, f16 or bf16 in {}, not {} {}{}", what,
                       model_.channels,
                       device < 0 ? "host memory" : fmt::format("memory of GPU {}", device),
                       buffer.count, name_of(buffer.type),
                       buffer.data == nullptr ? " at null"
                       : !elsewhere           ? ""
                       : device < 0           ? " of a GPU"
                       : buffer.device >= 0   ? " of another GPU"
                                              : " in host memory"));
  memory(buffer.data, buffer.count * size_of(buffer.type), what);
}

void Guard::gradients(const BatchNormGradients& gradients) const {
  if (gradients.gamma.count > 0)
    bound("the gradient of gamma", gradients.gamma, model_.has_gamma());
  if (gradients.beta.count > 0) bound("the gradient of beta", gradients.beta, model_.has_beta());
}

}  // namespace rondo::layer
