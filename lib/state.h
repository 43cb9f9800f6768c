// SPDX-License-Identifier: Apache-2.0
//
// Owns all parts of a communicator, in the order of construction: transports, the control plane,
// the engine.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <rondo/communicator.h>

#include "base/own_descriptors.h"
#include "collectives/engine/engine.h"
#include "collectives/plan/planner.h"
#include "lib/arguments.h"
#include "lib/connect.h"
#include "lib/gpu_lanes.h"
#include "lib/known_calls.h"
#include "lib/message_memory.h"
#include "lib/metrics/file.h"
#include "lib/needs.h"
#include "lib/own_rooms.h"
#include "lib/record.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::lib {

// Threads: as Communicator says. The control thread and the thread that drives the engine call the
// observer functions. Locks: plans_mutex_ for plans_, and starting_mutex_ for
// events that come before the engine; the engine has its own. A failure ends
// every operation with one cause on all ranks.
class CommunicatorState final : private engine::EngineObserver, private control::ControlClient {
 public:
  // Finds the place of this rank, joins the others and chooses the transport to each. Throws Error:
  // see Communicator::connect().
  CommunicatorState(const Options& options, const TransportFactory& factory);
  CommunicatorState(const Options& options, const rendezvous::Place& place,
                    const TransportFactory& factory);
  ~CommunicatorState() override;

  int rank() const noexcept { return place_.rank; }
  int size() const noexcept { return place_.size; }
  const Options& options() const noexcept { return options_; }
  const rendezvous::Place& place() const noexcept { return place_; }
  const TransportFactory& factory() const noexcept { return factory_; }
  std::uint64_t next_split() noexcept { return ++splits_; }
  std::string address() const;
  std::string describe_peer(int peer) const;
  const HostCores& host_cores() const noexcept { return host_cores_; }
  std::span<const int> local_ranks() const noexcept { return local_ranks_; }
  BulkOrder& bulk_order() noexcept { return bulk_order_; }
  Statistics statistics();
  Attachments& attachments() noexcept { return attachments_; }
  // Throws Error(unsupported) in a forked child, where the engine has no threads and its lock may
  // be held for ever.
  engine::Engine& engine() {
    refuse_child();
    return *engine_;
  }
  bool in_other_process() const noexcept { return generation_ != base::process_generation(); }
  void refuse_child() const {
    if (in_other_process()) throw Error(Errc::unsupported, std::string(base::used_in_child));
  }
  const std::string& transport_name() const noexcept { return transport_name_; }

  Work start(const Arguments& arguments);
  Work start_transfer(bool sending, const Buffer& buffer, int peer, std::uint32_t tag,
                      const OpOptions& options);
  Work start_receive_any(const Buffer& out, std::uint32_t tag, const OpOptions& options);
  Work start_batch(std::span<const Transfer> batch, const OpOptions& options);
  Work start_all_to_all_v(const Buffer& in, std::span<const std::size_t> send_counts,
                          const Buffer& out, std::span<const std::size_t> receive_counts,
                          const OpOptions& options);
  // staged: of a call whose buffers are on a GPU.
  plan::Plan plan(Collective operation, std::size_t count, DType type, bool staged = false);
  const PlanConstants& constants() const noexcept { return constants_; }
  void abort(std::error_code why, std::string_view text) noexcept;
  // Takes memory from the first transport that shares memory between ranks; else maps memory of
  // this process alone. Registers it with every transport. device: a GPU, or negative.
  Memory allocate(std::size_t bytes, int device);
  Registration register_memory(void* data, std::size_t bytes, int device);

 private:
  static constexpr milliseconds longest_deadline = std::chrono::hours{24 * 365};

  void check_options() const;
  schedules::Call find_call(const Arguments& arguments);
  schedules::Call make_call(const Arguments& arguments);
  // A call whose buffers are on a GPU.
  Work start_on_gpu(const Arguments& arguments, const schedules::Call& call);
  Registration register_with_all(void* data, std::size_t bytes) const;
  void connect_all();
  bool wants_gpus_inside() const noexcept;
  void share_memory_of_gpus();
  operation::GpuInside movers_inside(int device, const schedules::Call& call);
  GpuLanes::Needs gpu_needs();
  Work start_transfers(const MessageMemory& memory, const point::PointShape& shape,
                       const OpOptions& options);
  CostSource find_cost_source();
  std::string constants_source() const;                         // in words, for rank 0's log
  using Plans = std::unordered_map<std::uint64_t, plan::Plan>;  // by bytes
  const plan::Plan& remember(Plans& plans, Collective operation, std::uint64_t bytes,
                             const plan::Plan& plan);
  transports::Blob make_record();
  void settle_constants(const std::vector<transports::Transport*>& routes);
  std::vector<transports::Transport*> connect_transports();
  void keep_room_for_links();
  void linger(bool warns, base::TimePoint until) noexcept;
  void drop_idle_transports(const std::vector<transports::Transport*>& routes);
  std::uint64_t plan_hash(const schedules::Call& call, std::uint64_t counts) const noexcept;

  void failure(const operation::Failure& failure) override;
  void stalled(Priority lane, std::uint64_t number) override;
  void slow(Priority lane, std::uint64_t number, nanoseconds waited) override;
  void late(const operation::LateReport& report) override;
  void deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                const std::string& view) override;
  operation::RankStatus status() override;
  void failed(const operation::Failure& failure) override;
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]) override;

  // Ends the phase in which events of the control plane are kept: gives these to the engine.
  void begin_work();
  void begin_metrics();

  const unsigned generation_ = base::process_generation();
  Options options_;  // constant after the constructor, as is place_
  rendezvous::Place place_;
  CostSource cost_source_ = CostSource::defaults;  // once joined: rank 0's
  const TransportFactory factory_;
  std::uint64_t splits_ = 0;
  TransportList transports_;
  std::vector<const transports::Transport*> routes_;  // by rank; null for this one
  std::vector<std::string> passed_over_;  // by rank: why nearer transports do not reach it
  LaterDescriptors later_descriptors_;    // those of links, once connected
  std::vector<std::string> host_names_;   // by rank
  std::string address_;                   // of the last transport, for people
  // A rank that left before the engine was there.
  struct Departure {
    int rank = 0;
    std::uint64_t finished[lane_count] = {};
  };
  std::mutex starting_mutex_;  // also for transports_ until then: the control thread reads it
  bool working_ = false;
  std::optional<operation::Failure> early_failure_;
  std::vector<Departure> early_departures_;
  rendezvous::Joined joined_;  // its thread uses the members above
  std::string transport_name_ = "self";
  schedules::Hosts hosts_;
  std::vector<int> local_ranks_;
  plan::Topology topology_;
  HostCores host_cores_;             // of this rank's host
  bool first_host_crowded_ = false;  // the host of rank 0 is
  PlanConstants constants_;
  plan::PlanOptions plan_options_;
  std::mutex plans_mutex_;  // different threads may start operations of different lanes
  Plans plans_[collective_count], staged_plans_[collective_count];
  std::array<KnownCalls, lane_count> known_calls_;
  std::vector<point::PointTransfer> transfers_;  // of the call that is starting
  BulkOrder bulk_order_;
  // They may own memory that operations use, so they are destroyed after the engine.
  Attachments attachments_;
  GpuLanes gpu_lanes_;
  std::unique_ptr<engine::Engine> engine_;
  std::optional<metrics::Listing> listing_;
};

}  // namespace rondo::lib
