// SPDX-License-Identifier: Apache-2.0
#include <rondo/info.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "base/text.h"
#include "tools/ranks/bind.h"
#include "tools/shared/commands.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

void line(std::string_view name, std::string_view value) {
  print("{:<18} {}\n", name, value);
}

std::string limit_text(const std::optional<std::uint64_t>& value) {
  return value ? std::to_string(*value) : "unlimited";
}

void print_place(const PlaceInfo& place) {
  if (!place.error.empty()) return line("place", place.error);
  if (place.source == "alone")
    return line("place", "alone: no launcher has given this process a rank");
  line("place", fmt::format("rank {} of {}, from {}{}", place.rank, place.size, place.source,
                            place.rendezvous.empty() ? "" : ", rendezvous " + place.rendezvous));
}

// "8 (16 in the affinity mask, quota 8.0 of /sys/fs/cgroup/job/cpu.max)".
void print_cores(const SystemInfo& info) {
  std::string cores = std::to_string(info.cores);
  if (info.quota_cores)
    cores += fmt::format(" ({} in the affinity mask, quota {:.1f} of {})", info.mask_cores,
                         *info.quota_cores, info.quota_file);
  line("cores", cores);
  const base::ProcessorSet mask = base::affinity_mask();
  try {
    line("binding", describe(classify(load_topology(), mask), mask));
  } catch (const std::system_error& error) {
    line("binding", fmt::format("hwloc cannot read this machine: {}", error.what()));
  }
  if (!info.quota_risk.empty()) line("warning", info.quota_risk);
}

std::string yes_unless(std::string_view why) {
  return why.empty() ? "yes" : fmt::format("no: {}", why);
}

// Which memory of the GPU ranks of this host load and store where it lies, by direct algorithms,
// and which ranks do not.
std::string windows_of(const GpuInfo& gpu, const std::vector<GpuInfo>& gpus) {
  std::vector<std::string> kinds, reach, others;
  if (gpu.why_no_descriptors.empty()) kinds.emplace_back("memory of allocate()");
  if (gpu.why_no_handles.empty()) kinds.emplace_back("registered memory");
  if (kinds.empty()) return "none, for either reason above: operations go through the host";
  for (const GpuInfo& other : gpus) {
    const bool reaches = other.device == gpu.device ||
                         std::ranges::find(other.peers, gpu.device) != other.peers.end();
    (reaches ? reach : others).push_back(std::to_string(other.device));
  }
  return fmt::format("{}, for ranks on GPU {}{}", join(kinds, " and "), join(reach),
                     others.empty() ? ""
                                    : fmt::format("; ranks on GPU {} have no peer access, so the "
                                                  "host carries what they share",
                                                  join(others)));
}

void print_gpu(const GpuInfo& gpu, const std::vector<GpuInfo>& gpus) {
  const std::string name = fmt::format("gpu {}", gpu.device);
  line(name, fmt::format("{}, {}, {}, {}, compute capability {}.{}", gpu.name, gpu.pci_address,
                         gpu.uuid, base::describe_bytes(gpu.memory_bytes), gpu.capability_major,
                         gpu.capability_minor));
  if (gpus.size() > 1) {
    std::vector<std::string> peers;
    for (const int peer : gpu.peers) peers.push_back(std::to_string(peer));
    line(name + " peers",
         peers.empty() ? "it reaches the memory of no other GPU directly"
                       : fmt::format("it reaches the memory of GPU {} directly", join(peers)));
  }
  line(name + " sharing",
       fmt::format("between processes as descriptors: {}; by legacy IPC handles: {}",
                   yes_unless(gpu.why_no_descriptors), yes_unless(gpu.why_no_handles)));
  line(name + " windows", windows_of(gpu, gpus));
  if (!gpu.why_exclusive.empty()) line(name + " processes", gpu.why_exclusive);
  if (!gpu.error.empty()) line(name + " error", gpu.error);
}

void print_gpus(const GpuReport& report) {
  if (!report.driver_version.empty()) line("cuda driver", "for CUDA " + report.driver_version);
  if (!report.why.empty()) line("gpus", "none: " + report.why);
  for (const GpuInfo& gpu : report.gpus) print_gpu(gpu, report.gpus);
  if (!report.gpus.empty())
    line("gpu kernels", report.why_no_kernels.empty()
                            ? "in this build"
                            : fmt::format("not in this build: {}; the processor combines buffers "
                                          "on GPUs",
                                          report.why_no_kernels));
}

void print_info(const SystemInfo& info) {
  line("version", info.version);
  line("host", info.host);
  line("host identity", info.host_identity);
  print_cores(info);
  line("memory", base::describe_bytes(info.memory_bytes));
  line("reduce kernels", info.reduce_kernels);
  for (const TransportInfo& transport : info.transports)
    line("transport " + transport.name,
         fmt::format("{}{}{}", transport.available ? "yes" : "no",
                     transport.why.empty() ? "" : ": ", transport.why));
  if (!info.interface_error.empty()) line("interfaces", info.interface_error);
  for (const InterfaceInfo& interface : info.interfaces)
    line("interface " + interface.name,
         fmt::format("{} {}{}{}", interface.address, interface.chosen ? "chosen" : "not chosen",
                     interface.why.empty() ? "" : ": ", interface.why));
  if (!info.rdma_error.empty()) line("rdma devices", info.rdma_error);
  for (const RdmaPortInfo& port : info.rdma_ports)
    line(fmt::format("rdma {}:{}", port.device, port.port),
         fmt::format("{}: {}", port.usable ? "usable" : "not used", port.text));
  print_gpus(gather_gpus());
  for (const LimitInfo& limit : info.limits)
    line("limit", fmt::format("{} {}, at most {}", limit.name, limit_text(limit.soft),
                              limit_text(limit.hard)));
  for (const VariableInfo& variable : info.variables)
    line("environment", fmt::format("{}={}", variable.name, variable.value));
  if (info.variables.empty()) line("environment", "no variables of Rondo or of a launcher");
  print_place(info.place);
}

// Prints what a communicator needs on rank 0, which needs most, and on the last rank.
void print_needs(int ranks, int on_host, const Options& options) {
  line("needs of", fmt::format("{} ranks, {} on a host", ranks, on_host));
  for (const int rank : {0, ranks - 1}) {
    const NeedsInfo needs = compute_needs(ranks, on_host, rank, options);
    line(fmt::format("rank {}", rank),
         fmt::format("open files: {} to connect, {} once connected, {} with every link in use; {} "
                     "threads; {} ports; staging: at most {}; shared memory: {}",
                     needs.descriptors_to_connect, needs.descriptors_idle, needs.descriptors_most,
                     needs.threads, needs.ports, base::describe_bytes(needs.staging_bytes),
                     base::describe_bytes(needs.shared_bytes)));
    if (ranks == 1) break;
  }
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "info",
      "Show what Rondo sees here: transports, interfaces, GPUs, limits, environment, its place");
  auto interfaces = std::make_shared<std::string>();
  command->add_option(
      "--interfaces", *interfaces,
      "Show what this filter chooses: eth0,10.0.0.0/8; ^docker0,lo: all but these; eth*,^eth3: all "
      "eth but eth3");
  auto ranks = std::make_shared<std::string>();
  auto on_host = std::make_shared<std::string>();
  command->add_option("--ranks", *ranks, "Compute what a communicator with this many ranks needs");
  command->add_option("--ranks-per-host", *on_host,
                      "With --ranks: the number of these on this host (default: all)");
  command->callback([interfaces, ranks, on_host, &exit_code] {
    Options options;
    std::string trouble;
    try {
      options = Options::from_environment();
      options.rank = -1;  // gather_info() reads both again, and then names what has set them
      options.size = 0;
    } catch (const std::exception& error) {
      trouble = error.what();
    }
    if (!interfaces->empty()) options.interfaces = {*interfaces};
    SystemInfo info = gather_info(options);
    if (!trouble.empty()) info.place.error = trouble;
    print_info(info);
    if (!ranks->empty()) {
      const int count = parse_int("--ranks", *ranks, 1, 1'000'000);
      const int here = on_host->empty() ? count : parse_int("--ranks-per-host", *on_host, 1, count);
      print_needs(count, here, options);
    }
    const bool valid = info.interface_error.empty() && info.rdma_error.empty() && trouble.empty();
    exit_code = valid ? exit_fine : exit_usage;
  });
}

}  // namespace rondo::tools
