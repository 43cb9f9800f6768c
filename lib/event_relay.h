// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <optional>
#include <vector>

#include "collectives/engine/engine.h"
#include "lib/control/control.h"
#include "lib/routes.h"

namespace rondo::lib {

// Passes events between the engine and the control plane. The control thread runs before the engine
// exists. Events that come before it are kept; a failure also ends a transport's start() that waits
// for other ranks.
//
// Threads: listen() and begin() are for the thread that connects; the control thread and threads
// that use the engine call the rest. Locks: mutex_ for events that come before the engine. Nothing
// fails.
class EventRelay final : public engine::EngineObserver, public control::ControlClient {
 public:
  // All of them outlive the relay.
  EventRelay(const rendezvous::Place& place, const HostMap& hosts, Routes& routes) noexcept
      : place_(place), hosts_(hosts), routes_(routes) {}

  void listen(control::Control& control);
  void begin(engine::Engine& engine);

  void failure(const operation::Failure& failure) override;
  void stalled(Priority lane, std::uint64_t number) override;
  void slow(Priority lane, std::uint64_t number, nanoseconds waited) override;
  void late(const operation::LateReport& report) override;
  void deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                const std::string& view) override;
  operation::RankStatus status() override;
  void failed(const operation::Failure& failure) override;
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]) override;

 private:
  struct Departure {
    int rank = 0;
    std::uint64_t finished[lane_count] = {};
  };

  const rendezvous::Place& place_;
  const HostMap& hosts_;
  Routes& routes_;
  control::Control* control_ = nullptr;
  std::mutex mutex_;
  engine::Engine* engine_ = nullptr;  // set when work begins
  std::optional<operation::Failure> early_failure_;
  std::vector<Departure> early_departures_;
};

}  // namespace rondo::lib
