// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include <rondo/gradients.h>

namespace rondo {

// A line for each bucket and one for their sum.
std::string table_of(std::span<const BucketStatistics> statistics);

}  // namespace rondo
