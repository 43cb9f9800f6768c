// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rondo::tools {

// The command that starts this process again: its arguments, with the path of its executable in
// front. Works without /proc. Call it before the working directory changes.
std::vector<std::string> own_command_line(int argc, char** argv);

}  // namespace rondo::tools
