// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "base/process.h"
#include "lib/connect.h"
#include "lib/device_stream.h"
#include "lib/settings/reachability.h"
#include "lib/settings/settings.h"
#include "transports/cuda_ipc/cuda_ipc.h"
#include "transports/host/passing.h"
#include "transports/rdma/rdma.h"
#include "transports/shm/segment.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

namespace rondo::lib {

namespace {

// In order of preference.
constexpr std::string_view known_names[] = {"shm", "rdma", "tcp"};

std::unique_ptr<transports::Transport> shm_transport(const rendezvous::Place& place) {
  shm::Options shm;
  shm.rank = place.rank;
  shm.size = place.size;
  shm.secret = place.secret;
  shm.host = base::host_identity();
  shm.deadline = place.deadline;
  shm.may_sleep_on_word = true;
  return shm::make_shm(shm);
}

unsigned connections_of(const Options& options) {
  if (options.connections < 1 || options.connections > static_cast<int>(connect::most_connections))
    throw Error(Errc::invalid_argument,
                fmt::format("connections is {}, it must be from 1 to {}", options.connections,
                            connect::most_connections));
  return static_cast<unsigned>(options.connections);
}

// Fills in how a rank connects and listens.
void fill_connect_options(connect::Options& to, const rendezvous::Place& place,
                          const Options& options) {
  to.rank = place.rank;
  to.size = place.size;
  to.secret = place.secret;
  to.this_host_only = place.this_host_only;
  to.between_hosts = place.between_hosts;
  if (place.protect_all) to.within_host = to.between_hosts;
  to.host = base::host_identity();
  to.interfaces = options.interfaces;
  to.port_first = options.port_first;
  to.port_last = options.port_last;
  to.connect_deadline = options.connect_deadline;
}

std::unique_ptr<transports::Transport> tcp_transport(const rendezvous::Place& place,
                                                     const Options& options) {
  tcp::Options tcp;
  fill_connect_options(tcp, place, options);
  tcp.connections = connections_of(options);
  return tcp::make_tcp(tcp);
}

// Returns what the options say of devices.
rdma::Options device_options(const Options& options) {
  rdma::Options rdma;
  rdma.connections = connections_of(options);
  rdma.devices = options.rdma_devices;
  rdma.gid_index = options.rdma_gid_index;
  rdma.grants = options.rdma_grants.value_or(true);
  rdma.deadline = options.deadline;
  rdma.traffic_class = std::max(0, options.rdma_traffic_class);
  rdma.service_level = std::max(0, options.rdma_service_level);
  return rdma;
}

rdma::Options rdma_options(const rendezvous::Place& place, const Options& options) {
  rdma::Options rdma = device_options(options);
  fill_connect_options(rdma, place, options);
  return rdma;
}

void check_names(const Options& options) {
  for (const std::string& name : options.transports)
    if (std::ranges::find(known_names, name) == std::end(known_names))
      throw Error(Errc::invalid_argument,
                  fmt::format("transport '{}' is unknown; this build has: shm, rdma, tcp", name));
}

}  // namespace

TransportFactory default_transports() {
  return [devices = std::make_shared<std::unique_ptr<rdma::Shared>>()](
             const rendezvous::Place& place, const Options& options) {
    check_names(options);
    TransportList list;
    if (settings::allows_transport(options, "shm")) list.push_back(shm_transport(place));
    if (settings::allows_transport(options, "rdma")) {
      const rdma::Options rdma = rdma_options(place, options);
      if (!*devices) *devices = std::make_unique<rdma::Shared>(rdma);
      list.push_back(rdma::make_rdma(rdma, **devices));
    }
    if (settings::allows_transport(options, "tcp")) list.push_back(tcp_transport(place, options));
    return list;
  };
}

void interrupt_start(transports::Transport& transport, std::string_view why) noexcept {
  shm::interrupt(transport, why);
}

std::function<std::optional<bool>(int, std::uint64_t)> core_check(const TransportList& transports) {
  for (const auto& transport : transports)
    if (auto check = shm::core_check(*transport)) return check;
  return {};
}

void add_segments(Statistics& statistics, const TransportList& transports) {
  for (const auto& transport : transports) {
    const connect::Segments segments = tcp::segments_of(*transport);
    statistics.segments_sent += segments.sent;
    statistics.segments_resent += segments.resent;
  }
}

std::unique_ptr<transports::GpuWindows> make_gpu_windows(int rank, transports::SomeWindows& windows,
                                                         std::shared_ptr<device::Gpus> gpus) {
  auto* const passing = dynamic_cast<host::DescriptorPassing*>(&windows.all());
  if (passing == nullptr || windows.ranks().size() > cuda_ipc::most_ranks) return nullptr;
  return std::make_unique<cuda_ipc::CudaWindows>(rank, windows, *passing, std::move(gpus));
}

std::unique_ptr<transports::Stream> open_device_stream(const Options& options) {
  const rdma::Options rdma = device_options(settings::with_environment(options));
  return rdma::make_stream(rdma, rdma::Shared(rdma));
}

}  // namespace rondo::lib

namespace rondo {

bool settings::allows_transport(const Options& options, std::string_view name) {
  const auto& allowed = options.transports;
  return allowed.empty() || std::ranges::find(allowed, name) != allowed.end();
}

bool settings::allows_all_transports(const Options& options) {
  return std::ranges::all_of(
      lib::known_names, [&](std::string_view name) { return allows_transport(options, name); });
}

std::vector<TransportInfo> settings::describe_transports(const std::string& rdma_obstacle) {
  const std::string obstacle = shm::obstacle();
  return {{"shm", obstacle.empty(), obstacle.empty() ? "between ranks of this host" : obstacle},
          {"rdma", rdma_obstacle.empty(),
           rdma_obstacle.empty() ? "between ranks that both have a usable device" : rdma_obstacle},
          {"tcp", true, "between any ranks"}};
}

settings::RdmaDescription settings::describe_rdma(const Options& options) {
  settings::RdmaDescription result;
  rdma::Report report;
  try {
    report = rdma::report(options.rdma_devices, options.rdma_gid_index);
    result.obstacle = report.obstacle;
  } catch (const Error& error) {
    result.filter_error = result.obstacle = error.what();
    report = rdma::report({}, options.rdma_gid_index);
    if (report.ports.empty()) result.obstacle += "; " + report.obstacle;
  }
  result.ports = std::move(report.ports);
  return result;
}

std::size_t settings::count_rdma_devices() {
  return rdma::count_devices();
}

std::size_t settings::shared_segment_bytes(int ranks_on_host) noexcept {
  return shm::SegmentLayout(static_cast<std::size_t>(ranks_on_host)).bytes();
}

std::vector<InterfaceInfo> settings::describe_interfaces(const std::vector<std::string>& filters) {
  return connect::list_interfaces(filters);
}

}  // namespace rondo
