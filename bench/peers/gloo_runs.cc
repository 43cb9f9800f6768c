// SPDX-License-Identifier: Apache-2.0
#include "gloo_runs.h"

#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/prefix_store.h>

#include <stdexcept>

namespace rondo::compare {
namespace {

using Function = std::function<void()>;

Function with_options(const std::shared_ptr<gloo::rendezvous::Context>& context,
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

Function running(std::shared_ptr<gloo::Algorithm> algorithm) {
  return [algorithm] { algorithm->run(); };
}

}  // namespace

GlooRuns::GlooRuns(int rank, int size, const std::string& store_path, const std::string& interface)
    : rank_(rank), size_(size), store_(store_path) {
  gloo::transport::tcp::attr attributes;
  attributes.iface = interface;
  device_ = gloo::transport::tcp::CreateDevice(attributes);
}

std::vector<std::string> GlooRuns::algorithms() {
  return {"ring", "bcube", "halving_doubling", "ring_chunked"};
}

bool GlooRuns::in_place(std::string_view algorithm) {
  return algorithm == "halving_doubling" || algorithm == "ring_chunked";
}

GlooRun GlooRuns::make(std::string_view algorithm, std::span<float> input,
                       std::span<float> output) {
  GlooRun made;
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
    made.run = running(
        std::make_shared<gloo::AllreduceHalvingDoubling<float>>(made.context, pointers, count));
  } else if (algorithm == "ring_chunked") {
    made.run =
        running(std::make_shared<gloo::AllreduceRingChunked<float>>(made.context, pointers, count));
  } else {
    throw std::invalid_argument("Gloo has no algorithm " + std::string(algorithm));
  }
  return made;
}

}  // namespace rondo::compare
