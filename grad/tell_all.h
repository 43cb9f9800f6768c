// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/communicator.h>

namespace rondo::grad {

// Ends what is pending on every rank, and all that comes after it, with this text as the cause; the
// first cause of all stays. For what one rank alone has found out.
void tell_all(Communicator& communicator, const std::string& text) noexcept;

}  // namespace rondo::grad
