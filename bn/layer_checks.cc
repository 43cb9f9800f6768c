// SPDX-License-Identifier: Apache-2.0
//
// What a layer refuses before anything has changed.
#include <fmt/format.h>

#include <rondo/error.h>
#include <cstdint>
#include <utility>

#include "bn/fingerprint.h"
#include "bn/layer.h"
#include "bn/values.h"

namespace rondo::bn {

namespace {

bool overlap_in_part(const void* a, const void* b, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a),
             second = reinterpret_cast<std::uintptr_t>(b);
  return first != second && (first < second ? second - first : first - second) < bytes;
}

}  // namespace

void Layer::check_alive() const {
  if (communicator_ == nullptr)
    throw Error(
        Errc::invalid_argument,
        fmt::format("{}: its communicator has been destroyed; make a layer on another one", who()));
}

void Layer::check_stream() const {
  const std::string problem = device::problem_of_stream(gpu_->gpu(), gpu_->stream());
  if (!problem.empty()) throw Error(Errc::unsupported, fmt::format("{}: {}", who(), problem));
}

void Layer::check_memory(const void* data, std::size_t bytes, const char* what) const {
  if (gpu_ == nullptr || bytes == 0) return;
  for (const Known& known : known_)
    if (known.data == data && known.bytes == bytes) return;
  if (const std::string problem = gpu_->problem_of(data, bytes); !problem.empty())
    throw Error(Errc::invalid_argument, fmt::format("{}: {} {}", who(), what, problem));
  known_[next_known_] = {data, bytes};
  next_known_ = (next_known_ + 1) % known_.size();
}

// z and dz are as large as x, and lie in memory in the same way.
void Layer::check_forward_fusion(const Activations& x, const BatchNormFusion& fusion) const {
  const bool adds = fusion.add.data != nullptr;
  if (!adds && !fusion.relu) return;
  if (gpu_ == nullptr)
    throw Error(Errc::unsupported,
                fmt::format("{}: it computes on the processor, where nothing is fused with "
                            "normalizing: add z and apply the ReLU to y",
                            who()));
  if (adds) check_output(x, fusion.add, "z");
}

void Layer::check_forward_fusion(const BatchNormFusion& fusion) const {
  check_forward_fusion(x_, fusion);
}

void Layer::check_fused_output(const Activations& out, const BatchNormFusion& fusion,
                               Pass pass) const {
  const bool forward = pass == Pass::forward;
  const void* const other = fusion.add.data;
  const std::size_t bytes = bytes_of(out);
  const bool same = !forward && other != nullptr && bytes > 0 && other == out.data;
  if (same || (other != nullptr && overlap_in_part(other, out.data, bytes)))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {}: give each memory of its own", who(),
                            forward ? "z and y overlap in part" : "dz and dx overlap"));
  if (!forward && fusion.relu && overlap_in_part(fusion.y.data, out.data, bytes))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: dx overlaps y in part: give it the same memory or memory of its "
                            "own",
                            who()));
}

void Layer::check_backward_fusion(const PassRecord& pass, const Activations& x,
                                  const Activations& dy, const BatchNormFusion& fusion) const {
  check_forward_fusion(x, fusion);
  if (fusion.relu != pass.relu)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: backward {} a ReLU, but {} was {} one: give both the same "
                            "BatchNormFusion::relu",
                            who(), fusion.relu ? "has" : "is without", origin_of(pass),
                            pass.relu ? "with" : "without"));
  if (fusion.add.data != nullptr) check_output(dy, fusion.add, "dz");
  if (!fusion.relu || x.samples == 0) return;
  if (fusion.y.data == nullptr)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: backward of a ReLU needs the y that forward has written: "
                            "BatchNormFusion::y",
                            who()));
  check_output(x, fusion.y, "y");
  if (fusion.add.data != nullptr) check_output(fusion.y, fusion.add, "dz");
}

void Layer::check_input(const Activations& x, const char* what) const {
  if (x.samples > 0 && (x.data == nullptr || x.spatial == 0))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} has {} samples of {} positions, with data {}: neither the "
                            "positions nor data may be 0",
                            who(), what, x.samples, x.spatial, x.data));
  constexpr std::size_t most = std::size_t{1} << 53;  // counts are summed in f64
  if (x.samples > 0 && (x.samples > most / x.spatial || x.samples * x.spatial > most / channels_))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} has more than 2^53 elements", who(), what));
  if (x.layout && *x.layout != TensorLayout::nchw && *x.layout != TensorLayout::nhwc)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: the layout of {} is neither nchw nor nhwc", who(), what));
  check_memory(x.data, bytes_of(x), what);
}

void Layer::check_layout(const Activations& given, TensorLayout wanted, const char* what) const {
  const auto name = [](TensorLayout layout) {
    return layout == TensorLayout::nchw ? "nchw" : "nhwc";
  };
  if (given.samples > 0 && layout_of(given) != wanted)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} is {}, x was {}: activations of one pass have one layout",
                            who(), what, name(layout_of(given)), name(wanted)));
}

// Says which forward pass a record is of, for messages.
std::string Layer::origin_of(const PassRecord& pass) const {
  if (&pass == last_.get()) return "the last forward pass";
  if (pass.source != Source::all_ranks) return "the evaluation";
  return fmt::format("the forward pass of step {}", pass.step);
}

void Layer::check_backward(const PassRecord& pass, const Activations& x,
                           const Activations& dy) const {
  for (const auto& [which, given] : {std::pair("x", &x), std::pair("dy", &dy)}) {
    check_input(*given, which);
    if (given->samples != pass.samples || (pass.samples > 0 && given->spatial != pass.spatial))
      throw Error(
          Errc::invalid_argument,
          fmt::format("{}: {} has {} samples of {} positions, the forward pass had {} of {}", who(),
                      which, given->samples, given->spatial, pass.samples, pass.spatial));
    check_layout(*given, pass.layout, which);
  }
  // On a GPU nothing is known of x without waiting.
  if (gpu_ == nullptr && fingerprint(x.data, bytes_of(x)) != pass.x_fingerprint)
    throw Error(
        Errc::invalid_argument,
        fmt::format("{}: x is not what {} was given{}", who(), origin_of(pass),
                    pass.in_place
                        ? ": that pass wrote its output over it; give forward another y where "
                          "backward follows"
                        : "; keep x unchanged until backward"));
}

void Layer::check_output(const Activations& in, const Activations& out, const char* what) const {
  check_input(out, what);
  if (out.samples != in.samples || (out.samples > 0 && out.spatial != in.spatial))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} has {} samples of {} positions, the input has {} of {}", who(),
                            what, out.samples, out.spatial, in.samples, in.spatial));
  check_layout(out, layout_of(in), what);
  if (overlap_in_part(in.data, out.data, bytes_of(in)))
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "{}: {} overlaps the input in part: give it the same memory or memory of its own",
            who(), what));
}

void Layer::check_output(const Activations& out, Pass pass) const {
  check_output(x_, out, pass == Pass::forward ? "y" : "dx");
  if (pass == Pass::backward) check_output(dy_, out, "dx");
}

void Layer::check_bound(const char* what, const Buffer& buffer, bool exists) const {
  if (!exists && buffer.count > 0)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} must be empty, because the layer has {}", who(), what,
                            options_.affine ? "no bias" : "no gamma and beta (affine is false)"));
  if (!exists) return;
  const bool elsewhere = gpu_ == nullptr ? buffer.device >= 0 : buffer.device != options_.device;
  if (buffer.count != channels_ || !is_float_of_layer(buffer.type) || buffer.data == nullptr ||
      elsewhere)
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "{}: {} must be {} f64, f32, f16 or bf16 in {}, not {} {}{}", who(), what, channels_,
            gpu_ == nullptr ? "host memory" : fmt::format("memory of GPU {}", options_.device),
            buffer.count, name_of(buffer.type),
            buffer.data == nullptr ? " at null"
            : !elsewhere           ? ""
            : gpu_ == nullptr      ? " of a GPU"
            : buffer.device >= 0   ? " of another GPU"
                                   : " in host memory"));
  check_memory(buffer.data, buffer.count * size_of(buffer.type), what);
}

void Layer::check_gradients(const BatchNormGradients& gradients) const {
  if (gradients.gamma.count > 0) check_bound("the gradient of gamma", gradients.gamma, has_gamma());
  if (gradients.beta.count > 0) check_bound("the gradient of beta", gradients.beta, has_beta());
}

}  // namespace rondo::bn
