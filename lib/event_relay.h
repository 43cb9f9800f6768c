// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "collectives/engine/engine.h"
#include "lib/control/control.h"
#include "lib/recorder/dump.h"
#include "lib/routes.h"

namespace rondo::lib {

// The client of the control plane while ranks connect: a failure ends a transport's start() that
// waits for other ranks. The control plane keeps all events for the next client.
class ConnectingClient final : public control::ControlClient {
 public:
  explicit ConnectingClient(Routes& routes) noexcept : routes_(routes) {}

  operation::RankStatus status() override { return {}; }
  void failed(const operation::Failure& failure, const control::Heard&) override {
    routes_.interrupt(failure.cause);
  }
  void peer_left(int, const std::uint64_t (&)[lane_count]) override {}

 private:
  Routes& routes_;
};

// Passes events between the engine and the control plane. Threads: begin() is for the thread that
// connects; the control thread and threads that use the engine call the rest. Locks: its mutex, for
// heard(). Nothing fails.
class EventRelay final : public engine::EngineObserver, public control::ControlClient {
 public:
  // All of them outlive the relay, except `control`, which ends after the engine has stopped.
  EventRelay(const rendezvous::Place& place, const HostMap& hosts,
             control::Control& control) noexcept
      : place_(place), hosts_(hosts), control_(control) {}

  // From now on the engine gets the events of the control plane, first those that came before.
  void begin(engine::Engine& engine, recorder::Dumps& dumps);

  void failure(const operation::Failure& failure) override;
  void stalled(Priority lane, std::uint64_t number) override;
  void slow(Priority lane, std::uint64_t number, nanoseconds waited) override;
  void late(const operation::LateReport& report) override;
  void deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                const std::string& view) override;
  operation::RankStatus status() override;
  void failed(const operation::Failure& failure, const control::Heard& heard) override;
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]) override;

  // Returns what rank 0 had heard when the communicator failed: known before the engine fails. Any
  // thread may call it, also with the engine's lock.
  control::Heard heard() const;

 private:
  const rendezvous::Place& place_;
  const HostMap& hosts_;
  control::Control& control_;
  // Set when work begins.
  engine::Engine* engine_ = nullptr;
  recorder::Dumps* dumps_ = nullptr;
  mutable std::mutex mutex_;
  control::Heard heard_;
};

}  // namespace rondo::lib
