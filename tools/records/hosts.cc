// SPDX-License-Identifier: Apache-2.0
#include "tools/records/hosts.h"

#include <sys/utsname.h>

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <numeric>

#include "base/text.h"
#include "tools/records/read.h"
#include "tools/shared/agree.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// A host describes itself in less; longer descriptions of other ranks are not read.
constexpr std::size_t most_description = 16384, most_text = 200, most_interfaces = 32;

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name") || line.starts_with("Processor") ||
        line.starts_with("CPU part"))
      if (const auto colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return {};
}

int speed_of(const std::string& interface) {
  std::ifstream file("/sys/class/net/" + interface + "/speed");
  int mbit = 0;
  return file >> mbit && mbit > 0 ? mbit : 0;
}

// Another rank may send anything: an invalid description becomes a host without a name.
HostRecord host_from(std::string_view text) {
  HostRecord host;
  try {
    host = parse_host(std::string(text));
  } catch (const UsageError&) {
    return {};
  }
  for (std::string* const one : {&host.name, &host.kernel, &host.processor})
    *one = base::printable(one->substr(0, most_text));
  host.interfaces.resize(std::min(host.interfaces.size(), most_interfaces));
  for (InterfaceRecord& interface : host.interfaces)
    for (std::string* const one : {&interface.name, &interface.address})
      *one = base::printable(one->substr(0, most_text));
  host.ranks.clear();
  return host;
}

}  // namespace

Json json_of(const HostRecord& host) {
  Json interfaces = Json::array();
  for (const InterfaceRecord& interface : host.interfaces) {
    Json json{{"name", interface.name}, {"address", interface.address}};
    if (interface.mbit > 0) json["mbit"] = static_cast<unsigned>(interface.mbit);
    interfaces.push_back(std::move(json));
  }
  return {{"name", host.name},
          {"ranks", host.ranks},
          {"kernel", host.kernel},
          {"processor", host.processor},
          {"cores", host.cores},
          {"memory_bytes", host.memory_bytes},
          {"interfaces", std::move(interfaces)}};
}

HostRecord describe_host(const SystemInfo& info) {
  HostRecord host;
  host.name = info.host;
  utsname system{};
  if (::uname(&system) == 0) host.kernel = fmt::format("{} {}", system.sysname, system.release);
  host.processor = processor_name();
  host.cores = info.cores;
  host.memory_bytes = info.memory_bytes;
  for (const InterfaceInfo& interface : info.interfaces)
    if (interface.chosen && host.interfaces.size() < most_interfaces)
      host.interfaces.push_back({interface.name, interface.address, speed_of(interface.name)});
  return host;
}

std::vector<HostRecord> gather_hosts(Communicator& communicator, const HostRecord& own) {
  const auto size = static_cast<std::size_t>(communicator.size());
  const auto local = communicator.local_ranks();
  const int first = local.empty() ? communicator.rank() : *std::ranges::min_element(local);
  // Only the first rank of a host describes it.
  std::string mine = first == communicator.rank() ? write_line(json_of(own)) : "";
  if (mine.size() > most_description) mine.clear();
  const auto lengths = gather_from_ranks(communicator, mine.size());
  const auto leaders = gather_from_ranks(communicator, static_cast<std::size_t>(first));
  std::vector<std::size_t> counts(size);
  for (std::size_t rank = 0; rank < size; ++rank)
    counts[rank] = std::min<std::size_t>(lengths[rank], most_description);
  std::string all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), ' ');
  communicator
      .all_gather_v(Buffer{mine.data(), mine.size(), DType::u8},
                    Buffer{all.data(), all.size(), DType::u8}, counts)
      .wait();
  std::vector<HostRecord> hosts;
  std::vector<std::size_t> place(size, 0);
  for (std::size_t rank = 0, at = 0; rank < size; at += counts[rank], ++rank) {
    if (leaders[rank] == rank) {
      place[rank] = hosts.size();
      hosts.push_back(host_from(std::string_view(all).substr(at, counts[rank])));
    }
    const std::size_t leading = leaders[rank] <= rank ? leaders[rank] : rank;
    if (!hosts.empty())
      hosts[std::min(place[leading], hosts.size() - 1)].ranks.push_back(static_cast<int>(rank));
  }
  return hosts;
}

std::string ranks_of(const HostRecord& host) {
  std::string text;
  for (std::size_t i = 0, end; i < host.ranks.size(); i = end) {
    for (end = i + 1; end < host.ranks.size() && host.ranks[end] == host.ranks[end - 1] + 1;) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", host.ranks[i]);
    if (end - i > 1) text += fmt::format(" to {}", host.ranks[end - 1]);
  }
  return text;
}

}  // namespace rondo::tools
