// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include <rondo/error.h>
#include <rondo/parameters.h>

namespace rondo::training {

// A problem that a rank finds in its own list, without communication.
struct OwnProblem {
  Errc code = Errc::invalid_argument;
  std::string text;
};

// Finds names that appear twice, types that do not exist, and shapes that are too large.
std::optional<OwnProblem> problem_of(std::span<const Parameter> parameters);

// Collective. Throws Error on every rank. If a rank has a problem of its own, the error is that
// problem, with the name of the rank. Otherwise it is (mismatch), as in check_parameters.
void check_lists(Communicator& communicator, std::span<const Parameter> parameters,
                 const std::optional<OwnProblem>& problem);

}  // namespace rondo::training
