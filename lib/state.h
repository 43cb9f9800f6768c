// SPDX-License-Identifier: Apache-2.0
//
// Owns all parts of a communicator, in the order of construction: transports, the control plane,
// the engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <rondo/communicator.h>

#include "base/own_descriptors.h"
#include "collectives/engine/engine.h"
#include "lib/calls.h"
#include "lib/connect.h"
#include "lib/event_relay.h"
#include "lib/gpu_lanes.h"
#include "lib/metrics/file.h"
#include "lib/own_rooms.h"
#include "lib/plans.h"
#include "lib/point.h"
#include "lib/recorder/dump.h"
#include "lib/recorder/signal.h"
#include "lib/rendezvous/rendezvous.h"
#include "lib/routes.h"

namespace rondo::lib {

// Threads: as Communicator says. Locks: those of its parts. A failure ends every operation with one
// cause on all ranks.
class CommunicatorState final {
 public:
  // Finds the place of this rank, joins the others and chooses the transport to each. Throws Error:
  // see Communicator::connect().
  CommunicatorState(const Options& options, const TransportFactory& factory);
  CommunicatorState(const Options& options, const rendezvous::Place& place,
                    const TransportFactory& factory);
  ~CommunicatorState();

  int rank() const noexcept { return place_.rank; }
  int size() const noexcept { return place_.size; }
  const Options& options() const noexcept { return options_; }
  const rendezvous::Place& place() const noexcept { return place_; }
  const TransportFactory& factory() const noexcept { return factory_; }
  std::uint64_t next_split() noexcept { return ++splits_; }
  const HostCores& host_cores() const noexcept { return hosts_.cores; }
  std::span<const int> local_ranks() const noexcept { return hosts_.local_ranks; }
  const Routes& routes() const noexcept { return routes_; }
  const PlanConstants& constants() const noexcept { return plans_.constants(); }
  BulkOrder& bulk_order() noexcept { return bulk_order_; }
  Statistics statistics();
  Attachments& attachments() noexcept { return attachments_; }

  bool in_other_process() const noexcept { return generation_ != base::process_generation(); }
  // Throws Error(unsupported) in a forked child, where the engine has no threads and its lock may
  // be held for ever. So do the next four.
  void refuse_child() const {
    if (in_other_process()) throw Error(Errc::unsupported, std::string(base::used_in_child));
  }
  engine::Engine& engine() {
    refuse_child();
    return *engine_;
  }
  CollectiveCalls& collectives() {
    refuse_child();
    return *collectives_;
  }
  MessageCalls& messages() {
    refuse_child();
    return *messages_;
  }
  Plans& plans() {
    refuse_child();
    return plans_;
  }

  void abort(std::error_code why, std::string_view text) noexcept;
  // See Communicator::dump().
  std::string dump(std::string_view path, recorder::Why why = recorder::Why::call);
  // Takes memory from the first transport that shares memory between ranks; else maps memory of
  // this process alone. Registers it with every transport. device: a GPU, or negative.
  Memory allocate(std::size_t bytes, int device);
  Registration register_memory(void* data, std::size_t bytes, int device);

 private:
  transports::Blob prepare();
  void connect_all();
  void share_memory_of_gpus();
  void begin_metrics();
  void list_for_signal();
  recorder::Job describe_job() const;
  std::function<std::string(const engine::Snapshot&)> on_failure();
  recorder::Heard heard() const { return relay_ ? relay_->heard() : recorder::Heard(); }

  const unsigned generation_ = base::process_generation();
  Options options_;  // constant after the constructor, as is place_
  rendezvous::Place place_;
  const TransportFactory factory_;
  std::uint64_t splits_ = 0;
  HostMap hosts_;
  Routes routes_{place_};
  Plans plans_{place_, options_};
  ConnectingClient connecting_{routes_};
  std::optional<EventRelay> relay_;
  rendezvous::Joined joined_;  // its thread uses the two members above
  BulkOrder bulk_order_;
  // They may own memory that operations use, so they are destroyed after the engine.
  Attachments attachments_;
  GpuLanes gpu_lanes_;
  std::optional<recorder::Dumps> dumps_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<CollectiveCalls> collectives_;
  std::optional<MessageCalls> messages_;
  std::optional<metrics::Listing> listing_;
  std::optional<recorder::SignalListing> signal_;
};

}  // namespace rondo::lib
