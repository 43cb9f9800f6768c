// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "conformance.h"
#include "transports/rdma/fake_verbs.h"
#include "transports/rdma/rdma.h"

namespace rondo::testing {

inline std::span<std::byte> all_memory() {
  return {reinterpret_cast<std::byte*>(std::uintptr_t{1} << 12), std::size_t{1} << 47};
}

// A transport that keeps its fabric alive: the fabric ends after the last one.
class OnFabric final : public transports::Transport {
 public:
  // all_registered: as if the program had registered all its memory, which the fake allows.
  OnFabric(std::shared_ptr<FakeFabric> fabric, std::unique_ptr<transports::Transport> inner,
           bool all_registered)
      : fabric_(std::move(fabric)), inner_(std::move(inner)) {
    if (all_registered) registration_ = inner_->register_memory(all_memory());
  }
  std::string_view name() const noexcept override { return inner_->name(); }
  transports::Blob address() const override { return inner_->address(); }
  std::string describe() const override { return inner_->describe(); }
  transports::Reach reach(int peer, std::span<const std::byte> address) const override {
    return inner_->reach(peer, address);
  }
  void start(std::vector<transports::Blob>, std::uint64_t) override {}
  void halt() noexcept override { inner_->halt(); }
  void finish_sending(base::TimePoint until) override { inner_->finish_sending(until); }
  transports::Link& link(int peer, transports::Lane lane) override {
    return inner_->link(peer, lane);
  }
  std::unique_ptr<transports::Registration> register_memory(std::span<std::byte> memory) override {
    return inner_->register_memory(memory);
  }
  bool progress(transports::Sink& sink) override { return inner_->progress(sink); }
  int wait_descriptor() const noexcept override { return inner_->wait_descriptor(); }
  bool prepare_sleep() override { return inner_->prepare_sleep(); }

 private:
  const std::shared_ptr<FakeFabric> fabric_;
  const std::unique_ptr<transports::Transport> inner_;
  std::unique_ptr<transports::Registration> registration_;
};

// Changes each rank's options before its transport is made.
using EditRdma = std::function<void(rdma::Options&)>;

// Makes and starts a transport for each rank, on these verbs.
inline std::vector<std::unique_ptr<transports::Transport>> rdma_transports(
    int size, const std::function<std::shared_ptr<rdma::Verbs>(int rank)>& verbs,
    const EditRdma& edit = {}) {
  std::vector<std::unique_ptr<transports::Transport>> transports;
  std::vector<transports::Blob> addresses;
  for (int rank = 0; rank < size; ++rank) {
    rdma::Options options;
    options.rank = rank;
    options.size = size;
    options.host = "one host";
    if (edit) edit(options);
    const rdma::Shared shared(options, verbs(rank));
    transports.push_back(rdma::make_rdma(options, shared));
    addresses.push_back(transports.back()->address());
  }
  for (auto& transport : transports) transport->start(addresses, 0x1234567890abcdefu);
  return transports;
}

// The same for each host of the fabric.
inline std::vector<std::unique_ptr<transports::Transport>> rdma_transports(
    FakeFabric& fabric, int size, const EditRdma& edit = {}) {
  return rdma_transports(
      size, [&](int rank) { return fabric.verbs(rank); }, edit);
}

// Turns all ranks until `done`, for at most 5 s.
template <class Done>
bool turn_until(std::deque<Node>& nodes, Done done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    for (Node& node : nodes) node.turn();
  }
  return true;
}

}  // namespace rondo::testing
