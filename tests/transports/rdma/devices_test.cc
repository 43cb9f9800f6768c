// SPDX-License-Identifier: Apache-2.0
//
// Devices, ports and memory that cannot be used: what a rank says before any link is made.
#include <rondo/error.h>

#include <algorithm>

#include "base/file_descriptor.h"
#include "catch.h"
#include "rdma_helpers.h"
#include "transports/rdma/address.h"
#include "transports/rdma/context.h"
#include "transports/rdma/devices.h"

namespace rondo::testing {
namespace {

std::string obstacle(FakeHost host, const EditRdma& edit = {}) {
  FakeFabric fabric({std::move(host)});
  rdma::Options options;
  if (edit) edit(options);
  return rdma::Shared(options, fabric.verbs(0)).obstacle();
}

}  // namespace

TEST_CASE("rdma: a machine says why no device can be used") {
  CHECK(obstacle(FakeHost{}) == "this machine has no RDMA device");
  FakeHost host = roce_host(1);
  host.devices[0].transport = IBV_TRANSPORT_IWARP;
  contains(obstacle(host), "mlx5_0:1: iWARP has no write with immediate data");
  host = roce_host(1);
  host.devices[0].name = "efa_0";
  contains(obstacle(host), "EFA has no reliable connections");
  host = roce_host(1);
  host.devices[0].ports[0].state = IBV_PORT_DOWN;
  contains(obstacle(host), "the port is down");
  host = roce_host(1);
  for (FakeGid& gid : host.devices[0].ports[0].gids) gid.readable = false;
  contains(obstacle(host), "there is no GID");
  contains(obstacle(roce_host(1), [](auto& options) { options.gid_index = 77; }),
           "there is no GID with index 77");
  contains(obstacle(roce_host(1), [](auto& options) { options.devices = {"^mlx5_*"}; }),
           "left out by the filter");
  CHECK(obstacle(roce_host(1)).empty());
}

TEST_CASE("rdma: a filter that matches nothing names what there is") {
  for (const char* const filter : {"mlx5_9", "mlx5_0:2"}) {
    try {
      obstacle(roce_host(1, 2), [&](auto& options) { options.devices = {filter}; });
      FAIL("the filter was taken");
    } catch (const Error& error) {
      CHECK(error.code() == Errc::invalid_argument);
      contains(error.what(), std::string("nothing matches '") + filter + "'");
      contains(error.what(), "mlx5_0:1, mlx5_1:1");
    }
  }
}

TEST_CASE("rdma: the best GID of a port is chosen, holes in its table are skipped") {
  FakeHost host = roce_host(7);
  auto& gids = host.devices[0].ports[0].gids;
  const auto chosen = [&] {
    FakeFabric fabric({host});
    const rdma::Devices devices(fabric.verbs(0), {});
    REQUIRE(devices.ports().size() == 1);
    return devices.ports().front();
  };
  CHECK(chosen().kind == rdma::GidKind::roce_v2_ipv4);
  gids = {fake_gid("fe80::1", IBV_GID_TYPE_ROCE_V1), fake_gid("fe80::1")};
  CHECK(chosen().kind == rdma::GidKind::roce_v2_link_local);
  gids = {fake_gid("fe80::1"), fake_gid("fd00::1"), fake_gid("10.0.0.1")};
  gids[2].readable = false;
  CHECK(chosen().kind == rdma::GidKind::roce_v2_ipv6);
  CHECK(chosen().gid_index == 1);
}

TEST_CASE("rdma: a GID that a port lacks is named with those it has") {
  FakeFabric fabric({roce_host(7)});
  const rdma::Devices devices(fabric.verbs(0), {.filters = {}, .gid_index = 200});
  REQUIRE(devices.reports().size() == 1);
  contains(devices.reports()[0].text, "no GID with index 200 (RONDO_RDMA_GID_INDEX); there are: ");
  contains(devices.reports()[0].text, "3 (RoCE v2 (IPv4) 10.0.0.8)");
}

TEST_CASE("rdma: a port is described with its rate") {
  FakeFabric fabric({roce_host(7)});
  const rdma::Devices devices(fabric.verbs(0), {});
  contains(devices.reports().at(0).text, "GID 3 10.0.0.8, MTU 4096, 100 Gbit/s");
}

TEST_CASE("rdma: a rank that may not lock memory has no address and says why") {
  FakeFabric fabric(roce_hosts(1));
  fabric.fail(0, "reg_mr", ENOMEM, 0, -1);
  rdma::Options options;
  options.size = 2;
  const rdma::Shared shared(options, fabric.verbs(0));
  const auto transport = rdma::make_rdma(options, shared);
  CHECK(transport->address().empty());
  contains(transport->reach(1, {}).why, "registering");
  CHECK_FALSE(transport->reach(1, {}).distance);
}

TEST_CASE("rdma: bytes are found in registered memory when all of them lie there") {
  FakeFabric fabric(roce_hosts(1));
  const rdma::Shared shared({}, fabric.verbs(0));
  std::array<std::byte, 300> memory{};
  const std::span registered = std::span(memory).subspan(100, 100);
  rdma::Regions regions;
  rdma::RegionCache cache(regions);
  CHECK(cache.empty());
  const rdma::MemoryRegion region(shared.context()->devices, registered, IBV_ACCESS_LOCAL_WRITE);
  regions.add(region);
  for (const std::size_t first : {0u, 99u, 100u, 101u, 199u, 200u})
    for (const std::size_t bytes : {1u, 2u, 99u, 100u, 101u}) {
      INFO(first << " " << bytes);
      const bool inside = first >= 100 && first + bytes <= 200;
      CHECK((cache.find(memory.data() + first, bytes) != nullptr) == inside);
    }
  regions.remove(region);
  CHECK(cache.find(registered.data(), 1) == nullptr);
  CHECK(cache.empty());
}

}  // namespace rondo::testing
