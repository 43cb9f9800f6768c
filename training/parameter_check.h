// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>

#include <rondo/parameters.h>

namespace rondo::training {

// Throws Error(invalid_argument) for names that appear twice, types that do not exist, and shapes
// that are too large.
void check_list(std::span<const Parameter> parameters);

// Collective. Throws Error on every rank. If `check` throws an Error on a rank, which finds a
// problem of its own without communication, it is that one, with the name of the rank. Otherwise it
// is (mismatch), as in check_parameters.
void check_lists(Communicator& communicator, std::span<const Parameter> parameters,
                 const std::function<void()>& check);

}  // namespace rondo::training
