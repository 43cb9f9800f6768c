// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "catch.h"
#include "conformance.h"
#include "support/wrapped_transport.h"
#include "transports/rdma/fake_verbs.h"
#include "transports/rdma/rdma.h"

namespace rondo::testing {

inline std::span<std::byte> all_memory() {
  return {reinterpret_cast<std::byte*>(std::uintptr_t{1} << 12), std::size_t{1} << 47};
}

// Shows the text if it lacks the part.
inline bool contains(const std::string& text, const std::string& part) {
  INFO(text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

struct FabricKept {
  const std::shared_ptr<FakeFabric> fabric;
};

// A transport that keeps its fabric alive: the fabric ends after the last one. So it is a base,
// which ends after the transport.
class OnFabric final : private FabricKept, public WrappedTransport {
 public:
  // all_registered: as if the program had registered all its memory, which the fake allows.
  OnFabric(std::shared_ptr<FakeFabric> on, std::unique_ptr<transports::Transport> inner,
           bool all_registered)
      : FabricKept{std::move(on)}, WrappedTransport(std::move(inner)) {
    if (all_registered) registration_ = register_memory(all_memory());
  }
  void start(std::vector<transports::Blob>, std::uint64_t) override {}

 private:
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

// Does the same for each host of the fabric.
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
