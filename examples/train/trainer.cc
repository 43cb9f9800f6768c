// SPDX-License-Identifier: Apache-2.0
#include "examples/train/trainer.h"

#include <array>

namespace train {
namespace {

// Where batch norm takes its statistics over all ranks, the gradient of a sample depends on the
// samples of other ranks. So every rank must scale its loss by the number of samples of the whole
// batch, and the buckets sum the gradients. Otherwise each rank takes the mean over its own
// samples, and the buckets weigh those means. Both give the mean over the whole batch.
rondo::Averaging averaging(NormMode norms) {
  return norms == NormMode::sync ? rondo::Averaging::sum : rondo::Averaging::weighted;
}

rondo::GradientOptions gradient_options(const TrainerOptions& options) {
  rondo::GradientOptions result;
  result.averaging = averaging(options.network.norms);
  result.first_bucket_bytes = result.bucket_bytes = options.bucket_bytes;
  result.wire = options.wire;
  return result;
}

}  // namespace

template <class T>
Trainer<T>::Trainer(rondo::Communicator& communicator, const TrainerOptions& options)
    : communicator_(communicator),
      options_(options),
      network_(communicator, options.network),
      buckets_(communicator, network_.parameters(), gradient_options(options)),
      optimizer_(network_.parameters(), options.momentum) {
  rondo::broadcast_parameters(communicator_, network_.parameters());
}

template <class T>
Result Trainer<T>::step(const Batch<T>& batch, std::size_t global_samples, double rate) {
  const auto own = static_cast<double>(batch.samples());
  // A number that encodes how this rank runs the step. The buckets check that all ranks have the
  // same.
  const auto mode = static_cast<std::uint64_t>(options_.network.norms) + 16 * global_samples;
  buckets_.begin_step({.weight = own, .unused = {}, .check = mode});
  buckets_.zero();
  const Result result = network_.forward(batch, true);
  const bool together = averaging(options_.network.norms) == rondo::Averaging::sum;
  const double divisor = together ? static_cast<double>(global_samples) : own;
  network_.backward(batch, divisor > 0 ? 1 / divisor : 0, buckets_);
  buckets_.finish();
  const rondo::StepStatistics took = buckets_.step_statistics();
  overlap_.step_us += took.step_us;
  overlap_.exposed_us += took.exposed_us;
  optimizer_.step(buckets_, rate, options_.clip > 0 ? buckets_.clip_factor(options_.clip) : 1);
  return reduced(result);
}

template <class T>
Result Trainer<T>::evaluate(const Digits& digits) {
  // Where each rank has its own statistics, those of rank 0 count, as in checkpoints.
  if (options_.network.norms == NormMode::local)
    rondo::broadcast_parameters(communicator_, network_.buffers());
  rondo::ShardedSampler sampler(digits.count(), communicator_, {.shuffle = false});
  Result result;
  Batch<T> batch;
  while (sampler.remaining() > 0) {
    batch.clear();
    for (const rondo::Sample& sample : sampler.next(32)) {
      batch.add(digits, sample.index);
      batch.weights.push_back(
          sample.weight);  // 0 for padding of the sampler, so that the mean stays exact
    }
    const Result part = network_.forward(batch, false);
    result.loss.sum += part.loss.sum;
    result.loss.weight += part.loss.weight;
    result.right.sum += part.right.sum;
    result.right.weight += part.right.weight;
  }
  return reduced(result);
}

template <class T>
Result Trainer<T>::reduced(Result result) {
  std::array<rondo::WeightedMean, 2> both = {result.loss, result.right};
  rondo::reduce_metrics(communicator_, both);
  return {both[0], both[1]};
}

template <class T>
std::vector<rondo::Parameter> Trainer<T>::state() {
  std::vector<rondo::Parameter> all = network_.parameters();
  for (auto&& more : {network_.buffers(), optimizer_.state()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

template class Trainer<float>;
template class Trainer<double>;

}  // namespace train
