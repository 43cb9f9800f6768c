// SPDX-License-Identifier: Apache-2.0
//
// Writes whole texts. Each function returns 0, or the error number. Reentrant.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace rondo::base {

int write_all(int file, std::string_view text) noexcept;
// Writes `fresh`, a name in the same folder that nobody else uses, and renames it to `path`. So a
// file there stays until the new one is whole. mode: whatever the umask.
int replace_file(const std::string& path, const std::string& fresh, std::string_view text,
                 mode_t mode) noexcept;

}  // namespace rondo::base
