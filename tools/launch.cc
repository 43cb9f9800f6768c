// SPDX-License-Identifier: Apache-2.0
#include "tools/launch.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "tools/text.h"

namespace rondo::tools {
namespace {

// Set for each process by launchers that the library does not know, or by known ones that do not
// say all.
constexpr std::array foreign{
    "RANK",           "LOCAL_RANK",         "OMPI_COMM_WORLD_RANK", "PMI_RANK",    "PMIX_RANK",
    "PMI_ID",         "SLURM_PROCID",       "MV2_COMM_WORLD_RANK",  "PALS_RANKID", "ALPS_APP_PE",
    "FLUX_TASK_RANK", "JSM_NAMESPACE_RANK", "MPI_LOCALRANKID"};

// In a batch script, which is one process, Slurm has set it to 0.
bool is_batch_script(std::string_view name, std::string_view value) {
  return name == "SLURM_PROCID" && value == "0";
}

}  // namespace

std::optional<PlaceInfo> find_launch(const Options& options) {
  PlaceInfo place = gather_place(options);
  if (!place.error.empty()) throw UsageError(place.error);
  if (place.source != "alone") return place;
  for (const char* name : foreign) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0' || is_batch_script(name, value)) continue;
    throw UsageError(
        fmt::format("{}={} is set, so a launcher seems to have started this process, but not so "
                    "that rank and number of "
                    "ranks are "
                    "known; set RONDO_RANK, RONDO_SIZE and RONDO_RENDEZVOUS, or unset {} to start "
                    "ranks from here",
                    name, value, name));
  }
  return {};
}

}  // namespace rondo::tools
