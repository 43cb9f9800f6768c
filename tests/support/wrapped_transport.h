// SPDX-License-Identifier: Apache-2.0
//
// A transport that hands every call to another one. Tests derive from it, and change what they are
// about.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transports/transport.h"

namespace rondo::testing {

class WrappedTransport : public transports::Transport {
 public:
  explicit WrappedTransport(std::unique_ptr<transports::Transport> inner)
      : inner_(std::move(inner)) {}
  transports::Identity identity() const override { return inner_->identity(); }
  transports::Reach reach(int peer, std::span<const std::byte> address) const override {
    return inner_->reach(peer, address);
  }
  void start(std::vector<transports::Blob> addresses, std::uint64_t job) override {
    inner_->start(std::move(addresses), job);
  }
  void halt() noexcept override { inner_->halt(); }
  void finish_sending(base::TimePoint until) override { inner_->finish_sending(until); }
  void open(const transports::Sinks& sinks) override { inner_->open(sinks); }
  transports::Link& link(int peer, transports::Lane lane) override {
    return inner_->link(peer, lane);
  }
  transports::Windows* windows() noexcept override { return inner_->windows(); }
  std::unique_ptr<transports::Allocation> allocate(std::size_t bytes) override {
    return inner_->allocate(bytes);
  }
  std::unique_ptr<transports::Registration> register_memory(std::span<std::byte> memory) override {
    return inner_->register_memory(memory);
  }
  bool progress() override { return inner_->progress(); }
  transports::WakeSource wake_source() const noexcept override { return inner_->wake_source(); }
  bool prepare_sleep() override { return inner_->prepare_sleep(); }

 private:
  const std::unique_ptr<transports::Transport> inner_;
};

}  // namespace rondo::testing
