// SPDX-License-Identifier: Apache-2.0
// One rank of Gloo over TCP. Usage: peer_gloo CONTROL RANK SIZE STORE INTERFACE
// STORE is an empty folder that all ranks share.
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <iostream>
#include <stdexcept>

#include "library.h"

namespace {

using Function = std::function<void()>;

class Gloo final : public rondo::compare::Library {
 public:
  Gloo(int rank, int size, const std::string& store_path, const std::string& interface)
      : context_(std::make_shared<gloo::rendezvous::Context>(rank, size)) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = interface;
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(store_path);
    context_->connectFullMesh(store, device);
    barrier_ = std::make_unique<gloo::BarrierOptions>(context_);
  }

  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  std::vector<std::string> algorithms() const override {
    return {"ring", "bcube", "halving_doubling", "ring_chunked"};
  }
  bool in_place(std::string_view algorithm) const override {
    return algorithm == "halving_doubling" || algorithm == "ring_chunked";
  }

  void prepare(std::string_view algorithm, std::span<float> input, std::span<float> output) override {
    // An algorithm object may only go when no rank works with it any more.
    barrier();
    run_ = nullptr;
    barrier();
    const std::vector<float*> pointers{output.data()};
    const int count = static_cast<int>(output.size());
    if (algorithm == "ring") {
      run_ = with_options(gloo::AllreduceOptions::Algorithm::RING, input, output);
    } else if (algorithm == "bcube") {
      run_ = with_options(gloo::AllreduceOptions::Algorithm::BCUBE, input, output);
    } else if (algorithm == "halving_doubling") {
      run_ = running(std::make_shared<gloo::AllreduceHalvingDoubling<float>>(context_, pointers, count));
    } else if (algorithm == "ring_chunked") {
      run_ = running(std::make_shared<gloo::AllreduceRingChunked<float>>(context_, pointers, count));
    } else {
      throw std::invalid_argument("Gloo has no algorithm " + std::string(algorithm));
    }
    barrier();
  }

  void all_reduce() override { run_(); }
  void barrier() override { gloo::barrier(*barrier_); }
  void progress() override {}  // its own thread sees to that

 private:
  Function with_options(gloo::AllreduceOptions::Algorithm algorithm, std::span<float> input,
                        std::span<float> output) const {
    auto options = std::make_shared<gloo::AllreduceOptions>(context_);
    options->setAlgorithm(algorithm);
    options->setInput(input.data(), input.size());
    options->setOutput(output.data(), output.size());
    options->setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
    return [options] { gloo::allreduce(*options); };
  }

  static Function running(std::shared_ptr<gloo::Algorithm> algorithm) {
    return [algorithm] { algorithm->run(); };
  }

  std::shared_ptr<gloo::rendezvous::Context> context_;
  std::unique_ptr<gloo::BarrierOptions> barrier_;
  Function run_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: " << argv[0]
              << " CONTROL RANK SIZE STORE INTERFACE (started by bench/peers/compare.py)\n";
    return 2;
  }
  return rondo::compare::run_rank(argv[1], [argv] {
    return std::make_unique<Gloo>(std::stoi(argv[2]), std::stoi(argv[3]), argv[4], argv[5]);
  });
}
