// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "tools/ceilings/ceiling.h"
#include "tools/ceilings/rounds.h"

namespace rondo::transports {
class Stream;
}

namespace rondo::tools {

// The ceiling for bus bandwidth over RDMA: what the devices of these ranks write at once without
// Rondo, over the links that the operation loads. After a failure of a device, measure()
// returns 0 for good.
class DeviceCeiling final : public Ceiling {
 public:
  // Connects the ring. All ranks call it together. Does not throw when that fails: trouble()
  // says why.
  DeviceCeiling(Communicator& communicator, const Options& options, Operation operation);
  DeviceCeiling(const DeviceCeiling&) = delete;
  DeviceCeiling& operator=(const DeviceCeiling&) = delete;
  ~DeviceCeiling() override;
  // The same on all ranks.
  bool usable() const noexcept { return usable_; }

  // Returns the rate in one direction, of messages between pairs that of all their streams, in
  // rounds that are timed like a row: after a barrier, at the slowest rank.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  template <class Step>
  bool together(Step step);
  void connect(const Options& options);
  double round(std::size_t bytes);

  Communicator& communicator_;
  const Operation operation_;
  const Directions directions_;
  const std::chrono::nanoseconds patience_;
  std::unique_ptr<transports::Stream> stream_;
  Rounds rounds_;
  bool usable_ = false;
  std::string trouble_;
};

}  // namespace rondo::tools
