// SPDX-License-Identifier: Apache-2.0
#include "collectives/proof/checker.h"

#include <fmt/format.h>

#include "collectives/proof/check.h"

namespace rondo::proof {

CheckReport check(const std::vector<schedules::Schedule>& schedules, Collective operation, int root,
                  const CheckOptions& options) {
  if (schedules.empty() || root < 0 || root >= static_cast<int>(schedules.size()) ||
      options.segments == 0) {
    CheckReport report;
    report.problem = fmt::format("nothing to check: {} ranks, root {}, {} segments",
                                 schedules.size(), root, options.segments);
    return report;
  }
  return Check<schedules::Progress>(schedules, options).run(operation, root);
}

}  // namespace rondo::proof
