// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "transports/transport.h"

namespace rondo::rdma {

// The transport of a rank that cannot use RDMA: it has no address, and says why. Thread-safe.
class Absent final : public transports::Transport {
 public:
  explicit Absent(std::string why) : why_(std::move(why)) {}
  transports::Identity identity() const override { return {"rdma", {}, "no RDMA"}; }
  transports::Reach reach(int, std::span<const std::byte>) const override { return {{}, why_}; }
  void start(std::vector<transports::Blob>, std::uint64_t) override {}
  void halt() noexcept override {}
  transports::Link& link(int peer, transports::Lane) override {
    throw Error(Errc::unsupported, fmt::format("rank {} is not reached over rdma: {}", peer, why_));
  }
  bool progress() override { return false; }
  transports::WakeSource wake_source() const noexcept override { return {}; }
  bool prepare_sleep() override { return true; }

 private:
  const std::string why_;
};

}  // namespace rondo::rdma
