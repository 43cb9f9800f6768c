// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rondo::base {

// Names ranks in a message: "rank 3", "ranks 1, 2, 5", and three or more in a row as
// "ranks 1, 4-6". After 16 such parts it ends with the number of ranks left: " and 40 more". Order
// and repetition of `ranks` do not matter.
std::string list_of_ranks(std::vector<int> ranks);

}  // namespace rondo::base
