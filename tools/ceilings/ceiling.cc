// SPDX-License-Identifier: Apache-2.0
#include "tools/ceilings/ceiling.h"

#include <utility>

#include "tools/shared/output.h"

namespace rondo::tools {
namespace {

// Null where the bare all-reduce is no comparison: memory from allocate is read where it is, and
// calls in a row overlap.
std::unique_ptr<Ceiling> choose_cores(const CeilingNeeds& needs, const Operation& operation) {
  const Conditions& conditions = needs.conditions;
  if (operation != Collective::all_reduce || conditions.allocate || conditions.in_a_row != 1)
    return {};
  auto cores = make_core_ceiling(needs.communicator, needs.in, needs.out, conditions.writes_anew());
  if (cores->usable()) return cores;
  if (!cores->trouble().empty())
    say("rondo bench: rank {}: cannot measure the ceiling between the cores, so memcpy is the "
        "ceiling: {}\n",
        needs.communicator.rank(), cores->trouble());
  return {};
}

// Null where devices cannot be measured.
std::unique_ptr<Ceiling> choose_device(const CeilingNeeds& needs, const Operation& operation) {
  auto device = make_device_ceiling(needs.communicator, needs.options, operation);
  if (device->usable()) return device;
  say("rondo bench: rank {}: cannot measure the ceiling of the devices, so plain sockets are the "
      "ceiling: {}\n",
      needs.communicator.rank(), device->trouble());
  return {};
}

}  // namespace

ChosenCeiling choose_ceiling(const CeilingNeeds& needs, const Operation& operation) {
  if (!operation.has_bandwidth() || needs.communicator.size() < 2 || needs.conditions.largest == 0)
    return {};
  if (needs.gpu != nullptr)
    return {make_gpu_ceiling(needs.communicator,
                             needs.gpu->measures ? needs.gpu->stream.get() : nullptr,
                             needs.gpu->copy_bytes()),
            CeilingOf::gpu};
  // Where some ranks share memory, writes around the ring of all ranks would load other links.
  if (needs.transport == "rdma")
    if (auto device = choose_device(needs, operation))
      return {std::move(device), CeilingOf::device};
  if (needs.transport != "shm")
    return {make_socket_ceiling(needs.communicator, needs.options, operation), CeilingOf::sockets};
  if (auto cores = choose_cores(needs, operation)) return {std::move(cores), CeilingOf::cores};
  return {make_copy_ceiling(needs.communicator, needs.in, needs.out), CeilingOf::memcpy};
}

}  // namespace rondo::tools
