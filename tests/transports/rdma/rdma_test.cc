// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/rdma.h"

#include "catch.h"
#include "conformance.h"
#include "rdma_helpers.h"
#include "support/effort.h"

namespace rondo::testing {
namespace {

struct Setting {
  FakeFaults faults{};
  int devices = 1;
  bool registered = false;
  EditRdma edit{};
};

std::vector<std::unique_ptr<transports::Transport>> on_fabric(int size, const Setting& setting) {
  const auto fabric =
      std::make_shared<FakeFabric>(roce_hosts(size, setting.devices), setting.faults, 1);
  auto made = rdma_transports(*fabric, size, setting.edit);
  for (auto& one : made)
    one = std::make_unique<OnFabric>(fabric, std::move(one), setting.registered);
  return made;
}

void conform(const Setting& setting) {
  for (const Check& check : conformance()) DYNAMIC_SECTION(check.name) {
      check.run([&](int size) { return on_fabric(size, setting); });
    }
}

}  // namespace

TEST_CASE("rdma does what every transport must do") {
  if (few_cases()) return;  // the cases below go the same ways and more

  conform({});
}

TEST_CASE("rdma with grants does too") {
  conform({.registered = true});
}

TEST_CASE("rdma from registered memory to slots does too") {
  if (few_cases()) return;

  conform({.registered = true, .edit = [](rdma::Options& options) { options.grants = false; }});
}

TEST_CASE("rdma over several devices and queue pairs does too") {
  const bool registered = GENERATE(true, false);
  if (few_cases() && !registered) return;
  conform({.faults = {.delay = 4, .late_completions = 4},
           .devices = 2,
           .registered = registered,
           .edit = [](rdma::Options& options) { options.connections = 2; }});
}

TEST_CASE("rdma with late writes and completions does too") {
  const bool registered = GENERATE(true, false);
  if (few_cases() && !registered) return;
  conform(
      {.faults = {.delay = 3, .late_writes = 5, .late_completions = 5, .stale_completions = true},
       .registered = registered});
}

}  // namespace rondo::testing
