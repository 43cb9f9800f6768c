// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <rondo/communicator.h>

#include "device/gpus.h"
#include "lib/rendezvous/rendezvous.h"
#include "transports/gpu_windows.h"
#include "transports/some_windows.h"
#include "transports/transport.h"

namespace rondo::lib {

// In order of preference. A peer is reached by the nearest transport that reaches it; of equally
// near ones, by the first.
using TransportList = std::vector<std::unique_ptr<transports::Transport>>;
using TransportFactory = std::function<TransportList(const rendezvous::Place&, const Options&)>;

// Communicator::connect with the transports injected: tests pass the mem transport here.
Communicator connect_with(const Options& options, const TransportFactory& transports);

// The only place that names concrete transports. The result throws Error(invalid_argument) for an
// unknown name in options.transports.
// Each communicator takes its own; those that are split from it share its devices.
TransportFactory default_transports();

// The functions below ask for what one transport alone can do.
//
// Makes a start() that waits for other ranks end with Error(rendezvous) and this text. Thread-safe.
void interrupt_start(transports::Transport& transport, std::string_view why) noexcept;
// See EngineOptions::shares_core. The transports outlive the result.
std::function<std::optional<bool>(int, std::uint64_t)> core_check(const TransportList& transports);
// Adds the TCP segments that the open connections have sent. Thread-safe.
void add_segments(Statistics& statistics, const TransportList& transports);
// Windows on memory of GPUs, above those of a transport, which outlive them. Null where too many
// ranks share these, or where these pass no descriptors.
std::unique_ptr<transports::GpuWindows> make_gpu_windows(int rank, transports::SomeWindows& windows,
                                                         std::shared_ptr<device::Gpus> gpus);

}  // namespace rondo::lib
