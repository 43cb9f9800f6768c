// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/gradients.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace train {

// The learning rate rises linearly to `highest` during the warm-up, then falls linearly towards 0,
// which it reaches after the last step. It is the same on every machine.
struct Schedule {
  double highest = 0.1;
  std::size_t warm_up = 0;
  std::size_t steps = 1;

  double rate(std::size_t step) const noexcept {
    if (step < warm_up)
      return highest * static_cast<double>(step + 1) / static_cast<double>(warm_up);
    if (step >= steps) return 0;
    return highest * static_cast<double>(steps - step) / static_cast<double>(steps - warm_up);
  }
};

// Stochastic gradient descent with momentum: v = momentum * v + gradient, value -= rate * v.
template <class T>
class Sgd {
 public:
  Sgd(std::vector<rondo::Parameter> parameters, double momentum)
      : parameters_(std::move(parameters)), momentum_(static_cast<T>(momentum)) {
    for (const rondo::Parameter& parameter : parameters_)
      velocities_.emplace_back(element_count(parameter));
  }

  // Each gradient is first multiplied by gradient_factor.
  void step(const rondo::GradientBuckets& buckets, double rate, double gradient_factor) {
    const T factor = static_cast<T>(gradient_factor), by = static_cast<T>(rate);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const T* const gradient = static_cast<const T*>(buckets.gradient(i).data);
      T* const value = static_cast<T*>(parameters_[i].value);
      T* const velocity = velocities_[i].data();
      for (std::size_t k = 0; k < velocities_[i].size(); ++k) {
        velocity[k] = momentum_ * velocity[k] + factor * gradient[k];
        value[k] -= by * velocity[k];
      }
    }
  }

  // The velocities, named after the parameters.
  std::vector<rondo::Parameter> state() {
    std::vector<rondo::Parameter> all = parameters_;
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].name += ".velocity";
      all[i].value = velocities_[i].data();
    }
    return all;
  }

 private:
  std::vector<rondo::Parameter> parameters_;
  std::vector<std::vector<T>> velocities_;
  T momentum_;
};

}  // namespace train
