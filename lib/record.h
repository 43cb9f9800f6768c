// SPDX-License-Identifier: Apache-2.0
//
// Lists what every rank tells all others when it joins. Every rank has all records, so all ranks
// draw the same conclusions. Thread-safe.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include <rondo/options.h>

#include "collectives/plan/planner.h"
#include "collectives/schedules/hosts.h"
#include "lib/connect.h"
#include "lib/core_share.h"
#include "lib/settings/settings.h"

namespace rondo::lib {

// Where the planner's constants come from.
enum class CostSource : std::uint8_t { defaults, given, measured, measured_between_hosts };

struct Record {
  std::string host;  // ranks with the same text share a host
  std::string name;  // of the host, for people
  CoreShare cores;
  std::map<std::string, transports::Blob, std::less<>> addresses;
  settings::Settings settings;
  CostSource costs = CostSource::defaults;
  PlanConstants constants;
};

// `constants` are written if the source is `given`.
transports::Blob write_record(const Options& options, const CoreShare& cores,
                              const TransportList& transports, CostSource source,
                              const PlanConstants& constants);

// Reads the records, by rank. Throws Error(rendezvous) if one cannot be read, and Error(mismatch)
// if settings differ that all ranks must share.
std::vector<Record> read_records(std::span<const transports::Blob> blobs);

schedules::Hosts group_by_host(std::span<const Record> records);
HostCores cores_on(std::span<const Record> records, std::span<const int> ranks_of_one_host);
// The cores of the host with the most ranks; if several have as many, of the first.
int cores_of(std::span<const Record> records, const schedules::Hosts& hosts);

// Where the ranks run.
struct HostMap {
  schedules::Hosts hosts;
  std::vector<std::string> names;  // of their hosts, by rank, for people
  std::vector<int> local_ranks;    // on this rank's host
  HostCores cores;                 // of this rank's host
  bool first_crowded = false;      // the host of rank 0 is
  plan::Topology topology;
};
HostMap map_hosts(std::span<const Record> records, int rank);

}  // namespace rondo::lib
