// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace train {

// Throws std::runtime_error, with the reason, unless path + suffix can be written and then renamed
// to path, which must be a file if it is there: a device or a folder would be gone. Leaves nothing
// behind.
void check_replaceable(const std::string& path, const std::string& suffix);

}  // namespace train
