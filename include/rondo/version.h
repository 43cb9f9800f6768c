// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <rondo/export.h>

namespace rondo {

// "0.1.0"
RONDO_API std::string_view version() noexcept;

}  // namespace rondo
