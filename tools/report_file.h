// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace rondo::tools {

// Writes the text to the file, or to the standard output for "-". Throws UsageError when it cannot.
void write_report(const std::string& path, std::string_view text);

}  // namespace rondo::tools
