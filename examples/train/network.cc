// SPDX-License-Identifier: Apache-2.0
#include "examples/train/network.h"

#include <array>
#include <string>

namespace train {

template <class T>
void Batch<T>::add(const Digits& digits, std::size_t index) {
  std::array<std::uint8_t, image_pixels> drawn;
  labels.push_back(digits.draw(index, drawn));
  for (const std::uint8_t value : drawn) pixels.push_back((static_cast<T>(value) - 128) / 64);
}

template <class T>
Network<T>::Network(rondo::Communicator& communicator, const NetworkShape& shape) {
  rondo::Communicator* norms = shape.norms == NormMode::none ? nullptr : &communicator;
  if (shape.norms == NormMode::local)
    norms = &alone_.emplace(*communicator.split(communicator.rank(), 0));
  Random random(shape.seed);
  std::size_t side = image_side, channels = 1, first = 0;
  stages_.reserve(shape.channels.size());
  for (const std::size_t next : shape.channels) {
    const StageShape stage{std::to_string(stages_.size() + 1), side, channels, next,
                           stages_.empty() ? 1u : 2u};
    stages_.emplace_back(stage, norms, random);
    stages_.back().set_first(first);
    first += stages_.back().parameters().size();
    side = stages_.back().convolution().out_side();
    channels = next;
  }
  head_.emplace(side * side, channels, class_count, random);
  head_->set_first(first);
  inputs_.resize(stages_.size());
  passed_.resize(stages_.size());
}

template <class T>
std::vector<rondo::Parameter> Network<T>::parameters() {
  std::vector<rondo::Parameter> all;
  for (Stage<T>& stage : stages_)
    for (rondo::Parameter& parameter : stage.parameters()) all.push_back(std::move(parameter));
  for (rondo::Parameter& parameter : head_->parameters()) all.push_back(std::move(parameter));
  return all;
}

template <class T>
std::vector<rondo::Parameter> Network<T>::buffers() {
  std::vector<rondo::Parameter> all;
  for (Stage<T>& stage : stages_) {
    if (!stage.norm()) continue;
    const std::string& name = stage.norm()->options().name;
    for (const auto& [suffix, values] :
         {std::pair{".running_mean", stage.norm()->buffers().running_mean},
          std::pair{".running_var", stage.norm()->buffers().running_variance},
          std::pair{".point", stage.norm()->buffers().point}})
      all.push_back({name + suffix, {values.count}, values.type, -1, values.data});
  }
  return all;
}

template <class T>
std::vector<std::uint64_t> Network<T>::norm_batches() {
  std::vector<std::uint64_t> all;
  for (Stage<T>& stage : stages_) all.push_back(stage.norm() ? stage.norm()->batches() : 0);
  return all;
}

template <class T>
void Network<T>::set_norm_batches(const std::vector<std::uint64_t>& batches) {
  for (std::size_t i = 0; i < stages_.size() && i < batches.size(); ++i)
    if (stages_[i].norm()) stages_[i].norm()->set_batches(batches[i]);
}

template <class T>
Result Network<T>::forward(const Batch<T>& batch, bool training) {
  const T* x = batch.pixels.data();
  const std::vector<T>* out = &batch.pixels;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    inputs_[i] = x;
    out = &stages_[i].forward(x, batch.samples(), training);
    x = out->data();
  }
  return head_->forward(*out, batch.labels, batch.weights);
}

template <class T>
void Network<T>::backward(const Batch<T>& batch, double scale, rondo::GradientBuckets& buckets) {
  head_->backward(batch.labels, scale, buckets, passed_.back());
  for (std::size_t i = stages_.size(); i-- > 0;) {
    T* below = nullptr;
    if (i > 0) {
      passed_[i - 1].resize(batch.samples() * stages_[i].convolution().in_count());
      below = passed_[i - 1].data();
    }
    stages_[i].backward(inputs_[i], passed_[i], batch.samples(), buckets, below);
  }
}

template struct Batch<float>;
template struct Batch<double>;
template class Network<float>;
template class Network<double>;

}  // namespace train
