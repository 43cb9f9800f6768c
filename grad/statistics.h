// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include <rondo/gradients.h>

namespace rondo::grad {

// A line for each bucket, one for their sum, and one for the step.
std::string table_of(std::span<const BucketStatistics> statistics, const StepStatistics& step);

}  // namespace rondo::grad
