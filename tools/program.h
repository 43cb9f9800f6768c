// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace rondo::tools {

// How this process can be started once more: its arguments, with the path of its executable in front. Works without /proc.
// To be called before the working directory changes.
std::vector<std::string> own_command_line(int argc, char** argv);

}  // namespace rondo::tools
