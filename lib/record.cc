// SPDX-License-Identifier: Apache-2.0
//
// record := host:string name:string share transports:u8 {name:string address:string}* settings
// costs:u8
//           constants?
// share: lib/core_share.h. settings: lib/settings/settings.h. costs: a CostSource; with `given`,
// seven f64 follow. Ranks other than 0 write costs too, but nobody uses theirs.
#include "lib/record.h"

#include <fmt/format.h>

#include <rondo/error.h>

#include "base/bytes.h"
#include "base/process.h"
#include "base/text.h"
#include "lib/wire/constants.h"

namespace rondo::lib {
namespace {

constexpr std::size_t longest_name = 64, longest_address = 16384;

Record read_record(int rank, const transports::Blob& bytes) {
  base::Reader reader(bytes);
  Record record;
  record.host = reader.get_string(longest_address);
  record.name = base::printable(reader.get_string(longest_name));
  record.cores = get_core_share(reader);
  const int count = reader.get<std::uint8_t>();
  for (int i = 0; i < count && reader.ok(); ++i) {
    std::string name = reader.get_string(longest_name);
    const std::string address = reader.get_string(longest_address);
    const auto span = std::as_bytes(std::span(address.data(), address.size()));
    record.addresses.emplace(std::move(name), transports::Blob(span.begin(), span.end()));
  }
  record.settings = settings::get_settings(reader);
  const auto costs = reader.get<std::uint8_t>();
  record.costs = static_cast<CostSource>(costs);
  if (record.costs == CostSource::given) record.constants = wire::get_constants(reader);
  if (!reader.ok() || reader.left() != 0 ||
      costs > static_cast<int>(CostSource::measured_between_hosts) ||
      !wire::is_sane(record.constants))
    throw Error(
        Errc::rendezvous,
        fmt::format(
            "the record of rank {} cannot be read: run the same version of Rondo on all ranks",
            rank));
  return record;
}

}  // namespace

transports::Blob write_record(const Options& options, const CoreShare& cores,
                              const TransportList& transports, CostSource source,
                              const PlanConstants& constants) {
  base::Writer writer;
  writer.put_string(options.host.empty() ? base::host_identity() : options.host);
  writer.put_string(base::first_bytes(base::host_name(), longest_name));
  put_core_share(writer, cores);
  writer.put(static_cast<std::uint8_t>(transports.size()));
  for (const auto& t : transports) {
    const transports::Blob address = t->address();
    writer.put_string(t->name());
    writer.put_string({reinterpret_cast<const char*>(address.data()), address.size()});
  }
  settings::put_settings(writer, settings::shared_settings(options));
  writer.put(static_cast<std::uint8_t>(source));
  if (source == CostSource::given) wire::put_constants(writer, constants);
  return writer.take();
}

std::vector<Record> read_records(std::span<const transports::Blob> blobs) {
  std::vector<Record> records;
  std::vector<settings::Settings> settings;
  for (const transports::Blob& blob : blobs) {
    records.push_back(read_record(static_cast<int>(records.size()), blob));
    settings.push_back(records.back().settings);
  }
  settings::compare_settings(settings);
  return records;
}

schedules::Hosts group_by_host(std::span<const Record> records) {
  std::map<std::string_view, int> numbers;
  std::vector<int> host_of_rank;
  for (const Record& r : records)
    host_of_rank.push_back(
        numbers.try_emplace(r.host, static_cast<int>(numbers.size())).first->second);
  return schedules::Hosts(host_of_rank);
}

HostCores cores_on(std::span<const Record> records, std::span<const int> ranks_of_one_host) {
  std::vector<CoreShare> shares;
  for (const int rank : ranks_of_one_host)
    shares.push_back(records[static_cast<std::size_t>(rank)].cores);
  return cores_of_host(shares);
}

int cores_of(std::span<const Record> records, const schedules::Hosts& hosts) {
  for (int host = 0; host < hosts.count(); ++host)
    if (const auto on = hosts.on(host); static_cast<int>(on.size()) == hosts.most_on_a_host())
      return cores_on(records, on).cores;
  return 1;
}

HostMap map_hosts(std::span<const Record> records, int rank) {
  HostMap map;
  map.hosts = group_by_host(records);
  for (const Record& one : records) map.names.push_back(one.name);
  const std::span<const int> local = map.hosts.on(map.hosts.host(rank));
  map.local_ranks.assign(local.begin(), local.end());
  map.cores = cores_on(records, local);
  map.first_crowded = cores_on(records, map.hosts.on(0)).crowded();
  map.topology =
      plan::topology_of(map.hosts, static_cast<int>(records.size()), cores_of(records, map.hosts));
  return map;
}

}  // namespace rondo::lib
