// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include <rondo/parameters.h>

namespace rondo::training {

// Throws Error(invalid_argument) for names that appear twice, types that do not exist, and shapes
// that are too large.
void check_list(std::span<const Parameter> parameters);

// Collective. Runs `check`, which looks for a problem of this rank without communication, and
// compares the lists. If `check` throws an Error on any rank, every rank throws that Error with the
// name of the rank. If lists differ, every rank throws Error(mismatch), as check_parameters does.
void check_lists(Communicator& communicator, std::span<const Parameter> parameters,
                 const std::function<void()>& check);

}  // namespace rondo::training
