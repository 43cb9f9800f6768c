// SPDX-License-Identifier: Apache-2.0
//
// One rank of Rondo's gradient buckets, which takes its settings from the environment.
//
//   overlap_rondo CONTROL
#include <rondo/communicator.h>
#include <rondo/gradients.h>

#include <algorithm>
#include <iostream>
#include <optional>

#include "trainer.h"

namespace {

class Rondo final : public rondo::overlap::Trainer {
 public:
  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  std::vector<std::string> algorithms() const override { return {"default"}; }

  void prepare(std::string_view, std::span<const std::size_t> counts,
               std::size_t bucket_bytes) override {
    std::vector<rondo::Parameter> parameters(counts.size());
    for (std::size_t i = 0; i < counts.size(); ++i) {
      parameters[i].name = "tensor " + std::to_string(i);
      parameters[i].shape = {counts[i]};
    }
    rondo::GradientOptions options;
    options.averaging = rondo::Averaging::sum;
    options.bucket_bytes = bucket_bytes;
    options.first_bucket_bytes = std::min(bucket_bytes, rondo::overlap::first_bucket_bytes);
    buckets_.reset();
    buckets_.emplace(communicator_, std::move(parameters), options);
  }

  std::span<float> gradient(std::size_t tensor) override {
    const rondo::Buffer buffer = buckets_->gradient(tensor);
    return {static_cast<float*>(buffer.data), buffer.count};
  }
  void begin_step() override { buckets_->begin_step(); }
  void ready(std::size_t tensor) override { buckets_->ready(tensor); }
  void finish() override { buckets_->finish(); }
  void barrier() override { communicator_.barrier().wait(); }

 private:
  rondo::Communicator communicator_ = rondo::Communicator::connect();
  std::optional<rondo::GradientBuckets> buckets_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " CONTROL (started by bench/hosts/overlap.py)\n";
    return 2;
  }
  return rondo::overlap::run_rank(argv[1], [] { return std::make_unique<Rondo>(); });
}
