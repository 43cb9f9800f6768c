// SPDX-License-Identifier: Apache-2.0
//
// Finds what a process sees of the RDMA devices of its machine, before it has peers.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <rondo/error.h>

#include "transports/rdma/context.h"
#include "transports/rdma/devices.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/sizes.h"

namespace rondo::rdma {
namespace {

std::vector<std::string> devices_of_kernel() {
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator one("/sys/class/infiniband", error);
  for (; !error && one != std::filesystem::directory_iterator(); one.increment(error))
    names.push_back(one->path().filename());
  std::ranges::sort(names);
  return names;
}

// Says more where the kernel has devices that this process does not see. without_library: what is
// wrong with libibverbs, if anything is.
std::string with_hidden_devices(const std::string& obstacle, const std::string& without_library) {
  std::string names;
  for (const std::string& one : devices_of_kernel()) names += (names.empty() ? "" : ", ") + one;
  if (names.empty()) return obstacle;
  if (!without_library.empty())
    return fmt::format("the kernel has {}, but {}", names, without_library);
  return fmt::format(
      "the kernel has {}, but libibverbs shows none of them: let this process open /dev/infiniband "
      "(containers: --device=/dev/infiniband) and install the devices' library (Debian: "
      "ibverbs-providers)",
      names);
}

}  // namespace

Shared::Shared(const Options& options) {
  LoadedVerbs loaded = load_verbs();
  obstacle_ = loaded.obstacle;
  if (loaded.verbs) open(options, std::move(loaded.verbs));
  if (!has_device_) obstacle_ = with_hidden_devices(obstacle_, loaded.obstacle);
}

Shared::Shared(const Options& options, std::shared_ptr<Verbs> verbs) {
  open(options, std::move(verbs));
}

Shared::~Shared() = default;

void Shared::open(const Options& options, std::shared_ptr<Verbs> verbs) {
  verbs->fork_init();
  context_ = std::make_shared<Context>(std::make_shared<Devices>(
      std::move(verbs), DeviceChoice{options.devices, options.gid_index}));
  obstacle_ = context_->devices->obstacle();
  has_device_ = !context_->devices->reports().empty();
}

std::size_t count_devices() {
  return std::min(most_devices, devices_of_kernel().size());
}

Report report(const std::vector<std::string>& filters, int gid_index) {
  Report result;
  LoadedVerbs loaded = load_verbs();
  if (!loaded.verbs) {
    result.obstacle = with_hidden_devices(loaded.obstacle, loaded.obstacle);
    return result;
  }
  const Devices devices(std::move(loaded.verbs), DeviceChoice{filters, gid_index});
  for (const PortReport& one : devices.reports())
    result.ports.push_back({one.device, one.port, one.usable, one.text});
  result.obstacle = devices.obstacle();
  if (result.ports.empty()) result.obstacle = with_hidden_devices(result.obstacle, {});
  if (!result.obstacle.empty()) return result;
  try {
    fitting_slot_bytes(2, devices.all().size());
  } catch (const Error& error) {
    result.obstacle = error.what();
  }
  return result;
}

}  // namespace rondo::rdma
