// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/fake_host.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <stdexcept>

namespace rondo::testing {
namespace {

FakeHost make_host(int number, int devices, const std::function<FakePort(int)>& port) {
  FakeHost host;
  for (int i = 0; i < devices; ++i) {
    FakeDevice device;
    device.name = fmt::format("mlx5_{}", i);
    device.node_guid = 0x0c42a10000000000u + static_cast<unsigned>(number * 256 + i);
    device.ports.push_back(port(i));
    host.devices.push_back(device);
  }
  return host;
}

}  // namespace

FakeGid fake_gid(const std::string& address, std::uint32_t type) {
  FakeGid gid;
  gid.type = type;
  if (::inet_pton(AF_INET, address.c_str(), gid.raw.data() + 12) == 1)
    gid.raw[10] = gid.raw[11] = 0xff;
  else if (::inet_pton(AF_INET6, address.c_str(), gid.raw.data()) != 1)
    throw std::invalid_argument("no address: " + address);
  return gid;
}

FakeHost roce_host(int number, int devices) {
  return make_host(number, devices, [&](int device) {
    FakePort port;
    const std::string local = fmt::format("fe80::{:x}:{:x}", number + 1, device + 1);
    const std::string routed = fmt::format("10.{}.{}.{}", device, number / 250, number % 250 + 1);
    for (const auto& address : {local, routed})
      for (const std::uint32_t type : {IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2})
        port.gids.push_back(fake_gid(address, type));
    return port;
  });
}

FakeHost infiniband_host(int number, int devices) {
  return make_host(number, devices, [&](int device) {
    FakePort port;
    port.link_layer = IBV_LINK_LAYER_INFINIBAND;
    port.lid = static_cast<std::uint16_t>(number * 16 + device + 1);
    port.gids = {
        fake_gid(fmt::format("fe80::c42:{:x}:{:x}", number + 1, device + 1), IBV_GID_TYPE_IB)};
    return port;
  });
}

std::vector<FakeHost> roce_hosts(int count, int devices) {
  std::vector<FakeHost> hosts;
  for (int i = 0; i < count; ++i) hosts.push_back(roce_host(i, devices));
  return hosts;
}

}  // namespace rondo::testing
