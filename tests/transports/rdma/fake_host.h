// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace rondo::testing {

// An entry of a port's GID table.
struct FakeGid {
  std::array<std::uint8_t, 16> raw{};
  std::uint32_t type = IBV_GID_TYPE_ROCE_V2;
  unsigned interface = 0;  // index of the network interface
  bool readable = true;    // false: query_gid gives ENODATA, as for a hole in the table
};
// "10.0.0.7" (mapped into IPv6) or "fe80::1".
FakeGid fake_gid(const std::string& address, std::uint32_t type = IBV_GID_TYPE_ROCE_V2);

struct FakePort {
  std::uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  ibv_port_state state = IBV_PORT_ACTIVE;
  ibv_mtu active_mtu = IBV_MTU_4096;
  std::uint16_t lid = 0;  // of an InfiniBand port; packets find it by this or by its GID
  std::vector<FakeGid> gids;
  int network = 0;  // ports of different networks do not reach each other
  std::uint32_t max_message_bytes = 1u << 30;
};

struct FakeDevice {
  std::string name = "mlx5_0";
  ibv_transport_type transport = IBV_TRANSPORT_IB;
  std::uint64_t node_guid = 0;
  std::vector<FakePort> ports;
  std::uint32_t max_inline = 256;
  int max_qp = 4096, max_qp_wr = 4096, max_sge = 16, max_cqe = 65536, max_mr = 65536;
};

struct FakeHost {
  std::vector<FakeDevice> devices;
};

// Hosts with devices mlx5_0, mlx5_1, ... of one active port each. Every number gives other
// addresses. A RoCE port has the table of a ConnectX: link-local v1 and v2, IPv4 v1 and v2.
FakeHost roce_host(int number, int devices = 1);
FakeHost infiniband_host(int number, int devices = 1);
std::vector<FakeHost> roce_hosts(int count, int devices = 1);

}  // namespace rondo::testing
