// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace train {

// Checks that path + suffix can be written and then renamed to path. An existing path must be a
// regular file, because the rename would replace a device. Throws std::runtime_error with the
// cause. Leaves nothing behind.
void check_replaceable(const std::string& path, const std::string& suffix);

}  // namespace train
