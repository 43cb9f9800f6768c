// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/launch.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// Launchers set these variables for each process: some that the library does not know by name, and
// known ones that leave out the rank or the number of ranks.
constexpr std::array foreign{
    "RANK",         "LOCAL_RANK",          "OMPI_COMM_WORLD_RANK", "PMI_RANK",       "PMI_ID",
    "SLURM_PROCID", "MV2_COMM_WORLD_RANK", "ALPS_APP_PE",          "MPI_LOCALRANKID"};

// Slurm sets SLURM_PROCID to 0 in a batch script too, which is one process.
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
        fmt::format("{}={} is set, so a launcher seems to have started this process, but its "
                    "variables do not give both the rank and the number of ranks; set RONDO_RANK, "
                    "RONDO_SIZE and RONDO_RENDEZVOUS, or unset {} to start ranks from here",
                    name, value, name));
  }
  return {};
}

}  // namespace rondo::tools
