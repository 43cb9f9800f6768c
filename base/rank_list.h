// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rondo::base {

// Ranks in a message: "rank 3", "ranks 1, 2, 5", and three and more in a row as "ranks 1, 4-6". Of
// more than 16 such parts it names the first 16: "... and 40 more". Order and repetition of `ranks`
// do not matter.
std::string list_of_ranks(std::vector<int> ranks);

}  // namespace rondo::base
