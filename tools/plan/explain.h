// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/plan.h>

namespace rondo::tools {

// `rondo plan --explain`: prints a table of the candidates and, when `json` is not empty, writes
// that file. "-" writes only the JSON, to standard output.
void explain(const PlanQuery& query, const std::string& json);

}  // namespace rondo::tools
