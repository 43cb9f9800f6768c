// SPDX-License-Identifier: Apache-2.0
// One rank of a job that trains: gradient buckets in the bulk lane, and urgent all-reduces during
// the backward pass, as batch norm makes them. It checks every sum. Its rank comes from the
// environment. It prints "right" at the end.
#include <rondo/communicator.h>
#include <rondo/gradients.h>

#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using rondo::buffer_of;

constexpr std::size_t layers = 12, channels = 256;
constexpr int steps = 4;

// Small integers, so that their sums are exact.
float gradient_of(int rank, std::size_t layer, std::size_t element, int step) {
  return static_cast<float>((element * 3 + layer * 7) % 31 +
                            static_cast<std::size_t>(rank * 5 + step));
}

// Calls what() only for a wrong value: building the text takes longer than the comparison.
template <class What>
void expect(double got, double wanted, What what) {
  if (got != wanted)
    throw std::runtime_error(what() + " is " + std::to_string(got) + " instead of " +
                             std::to_string(wanted));
}

std::vector<rondo::Parameter> parameters() {
  std::vector<rondo::Parameter> list(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    list[i].name = "layer " + std::to_string(i);
    list[i].shape = {i % 3 == 0 ? 300'007u
                                : 40'001u};  // some are larger than a bucket, others share one
  }
  return list;
}

class Training {
 public:
  Training() : buckets_(communicator_, parameters(), options()) {}

  void step(int number) {
    buckets_.begin_step();
    for (std::size_t layer = layers; layer-- > 0;) {
      const auto gradient = view(layer);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        gradient[i] = gradient_of(communicator_.rank(), layer, i, number);
      buckets_.ready(layer);
      normalize(layer);
    }
    buckets_.finish();
    for (std::size_t layer = 0; layer < layers; ++layer) check(layer, number);
  }

 private:
  static rondo::GradientOptions options() {
    rondo::GradientOptions options;
    options.averaging = rondo::Averaging::sum;
    options.first_bucket_bytes = 64 << 10;
    options.bucket_bytes = 1 << 20;
    return options;
  }

  std::span<float> view(std::size_t layer) {
    const rondo::Buffer buffer = buckets_.gradient(layer);
    return {static_cast<float*>(buffer.data), buffer.count};
  }

  void normalize(std::size_t layer) {
    std::vector<double> sums(2 * channels);
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = static_cast<double>(i + layer) * (communicator_.rank() + 1);
    rondo::OpOptions urgent;
    urgent.priority = rondo::Priority::urgent;
    communicator_
        .all_reduce(buffer_of(std::span(sums)), buffer_of(std::span(sums)), rondo::ReduceOp::sum,
                    urgent)
        .wait();
    const int size = communicator_.size();
    for (std::size_t i = 0; i < sums.size(); ++i)
      expect(sums[i], static_cast<double>(i + layer) * size * (size + 1) / 2,
             [&] { return "a sum of layer " + std::to_string(layer); });
  }

  void check(std::size_t layer, int number) {
    const auto gradient = view(layer);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      float wanted = 0;
      for (int rank = 0; rank < communicator_.size(); ++rank)
        wanted += gradient_of(rank, layer, i, number);
      expect(gradient[i], wanted, [&] {
        return "gradient " + std::to_string(i) + " of layer " + std::to_string(layer);
      });
    }
  }

  rondo::Communicator communicator_ = rondo::Communicator::connect();
  rondo::GradientBuckets buckets_;
};

}  // namespace

int main() {
  try {
    Training training;
    for (int i = 0; i < steps; ++i) training.step(i);
    std::cout << "right" << std::endl;
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
