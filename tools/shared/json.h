// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace rondo::tools {

// Members stay in the order in which they were written.
using Json = nlohmann::ordered_json;

}  // namespace rondo::tools
