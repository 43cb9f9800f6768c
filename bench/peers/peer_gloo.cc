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
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>

#include "library.h"

namespace {

using Function = std::function<void()>;

// An algorithm and the connections that it has for itself.
struct Running {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::unique_ptr<gloo::BarrierOptions> barrier;
  Function run;
};

class Gloo final : public rondo::compare::Library {
 public:
  Gloo(int rank, int size, const std::string& store_path, const std::string& interface)
      : rank_(rank), size_(size), store_(store_path) {
    gloo::transport::tcp::attr attributes;
    attributes.iface = interface;
    device_ = gloo::transport::tcp::CreateDevice(attributes);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<std::string> algorithms() const override {
    return {"ring", "bcube", "halving_doubling", "ring_chunked"};
  }
  bool in_place(std::string_view algorithm) const override {
    return algorithm == "halving_doubling" || algorithm == "ring_chunked";
  }
  std::span<float> allocate(std::string_view, std::size_t) override { return {}; }

  // Every algorithm gets connections of its own for every size: the older ones shrink the send buffers of theirs to what they
  // need, and whatever uses the same connections afterwards waits for an acknowledgement every 64 KiB.
  void prepare(std::string_view algorithm, std::span<float> input, std::span<float> output) override {
    std::map<std::string, Running, std::less<>> old;
    if (output.data() != output_ || output.size() != count_) old.swap(running_);
    output_ = output.data();
    count_ = output.size();
    auto place = running_.find(algorithm);
    if (place == running_.end()) place = running_.emplace(algorithm, connect(algorithm, input, output)).first;
    current_ = &place->second;
    barrier();  // everybody has come here, so nobody works with the old ones any more
  }

  void all_reduce() override { current_->run(); }
  void barrier() override { gloo::barrier(*current_->barrier); }
  void progress() override {}  // its own thread sees to that

 private:
  Running connect(std::string_view algorithm, std::span<float> input, std::span<float> output) {
    Running made;
    made.context = std::make_shared<gloo::rendezvous::Context>(rank_, size_);
    gloo::rendezvous::PrefixStore store("context " + std::to_string(++contexts_), store_);
    made.context->connectFullMesh(store, device_);
    made.barrier = std::make_unique<gloo::BarrierOptions>(made.context);
    const std::vector<float*> pointers{output.data()};
    const int count = static_cast<int>(output.size());
    if (algorithm == "ring") {
      made.run = with_options(made.context, gloo::AllreduceOptions::Algorithm::RING, input, output);
    } else if (algorithm == "bcube") {
      made.run = with_options(made.context, gloo::AllreduceOptions::Algorithm::BCUBE, input, output);
    } else if (algorithm == "halving_doubling") {
      made.run =
          running(std::make_shared<gloo::AllreduceHalvingDoubling<float>>(made.context, pointers, count));
    } else if (algorithm == "ring_chunked") {
      made.run = running(std::make_shared<gloo::AllreduceRingChunked<float>>(made.context, pointers, count));
    } else {
      throw std::invalid_argument("Gloo has no algorithm " + std::string(algorithm));
    }
    return made;
  }

  static Function with_options(const std::shared_ptr<gloo::rendezvous::Context>& context,
                               gloo::AllreduceOptions::Algorithm algorithm, std::span<float> input,
                               std::span<float> output) {
    auto options = std::make_shared<gloo::AllreduceOptions>(context);
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

  int rank_;
  int size_;
  gloo::rendezvous::FileStore store_;
  std::shared_ptr<gloo::transport::Device> device_;
  int contexts_ = 0;
  const float* output_ = nullptr;
  std::size_t count_ = 0;
  std::map<std::string, Running, std::less<>> running_;
  Running* current_ = nullptr;
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
