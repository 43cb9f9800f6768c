// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/own_descriptors.h"
#include "transports/rdma/verbs.h"

namespace rondo::rdma {

// The most devices that a rank uses.
inline constexpr std::size_t most_devices = 4;

using Gid = std::array<std::byte, 16>;
// In the order of preference.
enum class GidKind : std::uint8_t { roce_v2_ipv4, roce_v2_ipv6, roce_v2_link_local, roce_v1, ib };
std::string_view name_of(GidKind kind) noexcept;
// "10.0.0.7" for a mapped IPv4 address, else as IPv6: "fe80::1".
std::string to_text(const Gid& gid);

// A port that can be used: it is active and has a GID.
struct Port {
  std::string device;            // "mlx5_0"
  std::size_t device_index = 0;  // in Devices::all()
  std::uint8_t number = 1;
  GidKind kind = GidKind::ib;
  Gid gid{};
  std::uint8_t gid_index = 0;
  std::string interface;  // behind a RoCE port; may be empty
  std::uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;  // the active one
};
// "mlx5_0:1"
std::string name_of(const Port& port);

// Describes one port of this machine for people, usable or not.
struct PortReport {
  std::string device;
  unsigned port = 1;
  bool usable = false;
  // "RoCE v2 (IPv4), GID 1 10.0.0.7 on eth2, MTU 4096, 100 Gbit/s", or why it is not usable.
  std::string text;
};

// The user's choice of devices.
struct DeviceChoice {
  // Lists separated by commas: "mlx5_0", "mlx5_0:1", "mlx5*"; ^ before an item, or before the list,
  // excludes. Empty: all.
  std::vector<std::string> filters;
  int gid_index = -1;  // -1: the best one
};

// An open device: its context and protection domain. A forked child closes its copies of the
// descriptors, because the queue pairs live as long as a process has them open. There the
// destructor does nothing.
class Device {
 public:
  // Throws Error(system).
  Device(std::shared_ptr<Verbs> verbs, ibv_device* device, std::string name);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Verbs& verbs() const noexcept { return *verbs_; }
  const std::string& name() const noexcept { return name_; }
  ibv_context* context() const noexcept { return context_; }
  ibv_pd* domain() const noexcept { return domain_; }
  const ibv_device_attr& limits() const noexcept { return limits_; }

 private:
  const std::shared_ptr<Verbs> verbs_;
  const std::string name_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_device_attr limits_{};
  const unsigned generation_ = base::process_generation();
};

// The devices and ports of this machine that the choice allows, in the order of their names: the
// same order on every rank. Thread-safe once made.
class Devices {
 public:
  // Opens the devices. Throws Error(invalid_argument) for a filter that is malformed or matches
  // nothing. A device that fails is left out, and reports() says why.
  Devices(std::shared_ptr<Verbs> verbs, const DeviceChoice& choice);
  const std::vector<std::unique_ptr<Device>>& all() const noexcept { return devices_; }
  const std::vector<Port>& ports() const noexcept { return ports_; }
  const std::vector<PortReport>& reports() const noexcept { return reports_; }
  // Why there is no port; empty when there is one.
  std::string obstacle() const;

 private:
  class Filter;
  void look_at(ibv_device* device, Filter& filter, const DeviceChoice& choice);
  bool look_at_port(const Device& device, std::uint8_t number, const DeviceChoice& choice);

  const std::shared_ptr<Verbs> verbs_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<Port> ports_;
  std::vector<PortReport> reports_;
};

}  // namespace rondo::rdma
