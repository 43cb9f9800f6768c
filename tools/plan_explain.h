// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/plan.h>

namespace rondo::tools {

// `rondo plan --explain`: a table of the candidates and, where json is not empty, a file ("-": only
// that, on the standard output).
void explain(const PlanQuery& query, const std::string& json);

}  // namespace rondo::tools
