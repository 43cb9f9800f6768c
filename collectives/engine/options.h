// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "collectives/engine/waiting.h"
#include "collectives/schedules/hosts.h"

namespace rondo::engine {

struct Snapshot;

struct EngineOptions {
  int rank = 0;
  int size = 1;
  int ranks_per_core = 1;  // of this host, rounded up
  WaitMode wait = WaitMode::automatic;
  bool checksum = false;      // of every payload
  bool reproducible = false;  // direct algorithms round as a chain of ranks does
  std::size_t device_chunk_bytes = std::size_t{32} << 20;  // see direct::DirectOptions
  std::string transport = "self";                          // for messages: "tcp"
  schedules::Hosts hosts = {};  // which ranks share a host; the same on all ranks
  bool counts_tags = false;     // Engine::tag_counts() has values
  nanoseconds warn_after{};  // how long an operation waits before EngineObserver::slow(); 0: never
  std::size_t recorded = 0;  // how many operations are kept for the dump
  // The communicator has failed, and nothing has ended yet. Called once, under the engine's lock,
  // which it must not take. Must not throw. Returns what the error of every operation says besides.
  std::function<std::string(const Snapshot&)> on_failure = {};
  // Publishes the core on which this rank waits, and tells whether another one of these ranks, that
  // is awake, waits there too. ranks: a bit for each (transports::wake_bit()). Empty, or no value:
  // nobody can tell.
  std::function<std::optional<bool>(int core, std::uint64_t ranks)> shares_core = {};
};

}  // namespace rondo::engine
