// SPDX-License-Identifier: Apache-2.0
//
// What a layer does without the other ranks: evaluation, and backward passes without dx or where
// the statistics are not those of all ranks.
#include <algorithm>
#include <utility>

#include "base/default_floats.h"
#include "bn/layer.h"
#include "bn/values.h"

namespace rondo::bn {

void Layer::evaluate(const Activations& x, const Activations& y, const BatchNormFusion& fusion) {
  evaluate_with(evaluation_, x, y, fusion);
}

BatchNormPass Layer::evaluate_pass(const Activations& x, const Activations& y,
                                   const BatchNormFusion& fusion) {
  // Owned by a pass from the start: it goes back to the layer if the arguments are refused.
  std::unique_ptr<PassRecord> record = records_->take();
  PassRecord& pass = *record;
  BatchNormPass owner(records_, std::move(record));
  check_input(x, "x");
  note_input(pass, x);
  pass.in_place = x.samples > 0 && y.data == x.data;
  evaluate_with(pass, x, y, fusion);
  return owner;
}

void Layer::evaluate_with(PassRecord& pass, const Activations& x, const Activations& y,
                          const BatchNormFusion& fusion) {
  const base::DefaultFloats floats;
  check_input(x, "x");
  check_output(x, y, "y");
  check_forward_fusion(x, fusion);
  check_fused_output(y, fusion, Pass::forward);
  if (gpu_ != nullptr) {
    gpu_->set_stream(next_stream_);
    check_stream();
  }
  shared_->local_calls().evaluations.note(options_.name);
  pass.source = options_.track_running ? Source::running : Source::own_batch;
  pass.count = 0;
  pass.relu = fusion.relu;
  if (gpu_ != nullptr) return evaluate_on_gpu(pass, x, y, fusion);
  if (x.samples == 0) return;
  if (options_.track_running) {
    pass.count = 1;
    read_values(running_mean_, pass.mean);
    std::fill(pass.rest.begin(), pass.rest.end(), 0.0);
    read_values(running_variance_, pass.m2);
  } else {
    take_own_moments(pass, x);
  }
  read_gamma(pass);
  map_forward(pass, x, y.data);
}

void Layer::take_own_moments(PassRecord& pass, const Activations& x) {
  passes_.moments(x, evaluated_, {});
  pass.count = evaluated_.count;
  for (std::size_t c = 0; c < channels_; ++c) {
    // Knuth's two-sum: mean + rest is exact.
    const double point = evaluated_.point[c], offset = evaluated_.offset[c];
    const double mean = point + offset, moved = mean - point;
    pass.mean[c] = mean;
    pass.rest[c] = (point - (mean - moved)) + (offset - moved);
    pass.m2[c] = evaluated_.m2[c];
  }
}

void Layer::backward_alone(const PassRecord& pass, const Activations& x, const Activations& dy,
                           const Activations* dx, const BatchNormGradients& gradients,
                           const BatchNormFusion& fusion) {
  shared_->local_calls().local_backwards.note(options_.name);
  if (gpu_ != nullptr) return backward_alone_on_gpu(pass, x, dy, dx, gradients, fusion);
  // Where statistics do not depend on x, dx needs no sums.
  if (pass.source != Source::running || gradients.gamma.count > 0 || gradients.beta.count > 0) {
    take_local_sums(pass, x, dy);
    put_gradients(pass, gradients);
  }
  if (dx != nullptr && pass.count > 0) map_backward(pass, x, dy, dx->data, local_sums_);
}

}  // namespace rondo::bn
