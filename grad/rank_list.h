// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rondo::grad {

// "rank 2", "ranks 0, 1, 3"; eight and more in a row as "ranks 0-255". Ranks rise.
std::string list_of_ranks(const std::vector<int>& ranks);

}  // namespace rondo::grad
