// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "tools/ceilings/ceiling.h"
#include "tools/measure/conditions.h"
#include "tools/measure/gpu.h"

namespace rondo::tools {

// What a ceiling is chosen by. Everything outlives the ceiling.
struct CeilingNeeds {
  Communicator& communicator;
  const Options& options;
  const Conditions& conditions;
  const std::string& transport;  // that the ranks use, joined by +
  const BenchGpu* gpu = nullptr;
  std::span<std::byte> in, out;  // memory for copies, on the host
};

struct ChosenCeiling {
  std::unique_ptr<Ceiling> ceiling;  // null: none
  CeilingOf of = CeilingOf::none;
};

// The ceiling to compare rows of an operation with. All ranks call it together and choose the same.
// Where a better one cannot be measured, standard error says why.
ChosenCeiling choose_ceiling(const CeilingNeeds& needs, const Operation& operation);

}  // namespace rondo::tools
