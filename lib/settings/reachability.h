// SPDX-License-Identifier: Apache-2.0
//
// Describes the transports, interfaces and devices over which this machine can be reached, before
// anything is connected. The transports answer, and lib/transports.cc, which alone names them, asks
// them. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/info.h>

namespace rondo::settings {

// Whether options.transports has the name, or is empty, which allows all.
bool allows_transport(const Options& options, std::string_view name);
// Whether options.transports leaves none out.
bool allows_all_transports(const Options& options);

// rdma_obstacle: why a rank of this machine cannot use RDMA; empty when it can.
std::vector<TransportInfo> describe_transports(const std::string& rdma_obstacle);
// Throws Error(invalid_argument) for a filter that names an interface that does not exist.
std::vector<InterfaceInfo> describe_interfaces(const std::vector<std::string>& filters);

struct RdmaDescription {
  std::vector<RdmaPortInfo> ports;
  std::string obstacle;      // why a rank cannot use them; empty when it can
  std::string filter_error;  // the filter of devices is malformed or matches nothing
};
RdmaDescription describe_rdma(const Options& options);
// Counts the RDMA devices that the kernel lists, at most 4; opens none. A rank may be able to use
// fewer.
std::size_t count_rdma_devices();

// Bytes of shared memory that each of `ranks_on_host` ranks makes.
std::size_t shared_segment_bytes(int ranks_on_host) noexcept;

}  // namespace rondo::settings
