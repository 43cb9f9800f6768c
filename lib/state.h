// SPDX-License-Identifier: Apache-2.0
//
// What a communicator owns, in the order of construction: transports, the control plane, the engine.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <rondo/communicator.h>

#include "collectives/engine.h"
#include "collectives/planner.h"
#include "lib/arguments.h"
#include "lib/connect.h"
#include "lib/rendezvous.h"

namespace rondo {

class CommunicatorState final : private EngineObserver, private ControlClient {
 public:
  // Takes its place, joins the others and chooses the transport to each.
  CommunicatorState(const Options& options, const TransportFactory& factory);
  ~CommunicatorState() override;

  int rank() const noexcept { return place_.rank; }
  int size() const noexcept { return place_.size; }
  std::string address() const;
  Engine& engine() noexcept { return *engine_; }
  const std::string& transport_name() const noexcept { return transport_name_; }

  Work start(const Arguments& arguments);
  const Plan& plan(Collective operation, std::size_t count, DType type);
  void abort(std::error_code why) noexcept;

 private:
  Blob make_record() const;
  std::vector<Transport*> connect_transports();
  std::uint32_t plan_hash(const Call& call) const noexcept;

  void failure(const Failure& failure) override;
  void stalled(Priority lane, std::uint64_t number) override;
  void deadline(Priority lane, std::uint64_t number, nanoseconds limit, const std::string& view) override;
  RankStatus status() override;
  void failed(const Failure& failure) override;
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]) override;

  const Options options_;
  const Place place_;
  TransportList transports_;
  Joined joined_;
  std::string transport_name_ = "self";
  Topology topology_;
  PlanOptions plan_options_;
  std::unordered_map<std::uint64_t, Plan> plans_[collective_count];  // by bytes
  std::unique_ptr<Engine> engine_;
};

}  // namespace rondo
