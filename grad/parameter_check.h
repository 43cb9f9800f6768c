// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include <rondo/error.h>
#include <rondo/parameters.h>

namespace rondo::grad {

// What a rank finds wrong with its own list, without asking anybody.
struct OwnProblem {
  Errc code = Errc::invalid_argument;
  std::string text;
};

// Names that are given twice, types that do not exist, shapes too large.
std::optional<OwnProblem> problem_of(std::span<const Parameter> parameters);

// Collective. Throws Error on every rank: where a rank has a problem of its own, that one, naming
// the rank; else (mismatch), as check_parameters.
void check_lists(Communicator& communicator, std::span<const Parameter> parameters,
                 const std::optional<OwnProblem>& problem);

}  // namespace rondo::grad
