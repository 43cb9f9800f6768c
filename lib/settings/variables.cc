// SPDX-License-Identifier: Apache-2.0
#include "lib/settings/variables.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <vector>

#include "base/edit_distance.h"
#include "base/log.h"
#include "lib/settings/environment.h"
#include "lib/settings/settings.h"

namespace rondo::settings {
namespace {

constexpr std::string_view prefix = "RONDO_", for_tests = "RONDO_TEST_";

// Variables that are not in the table of settings.
constexpr std::string_view others[] = {
    "RONDO_RANK",       "RONDO_SIZE",   "RONDO_LOCAL_RANK",  "RONDO_LOCAL_SIZE",
    "RONDO_RENDEZVOUS", "RONDO_SECRET", "RONDO_SECRET_FILE", "RONDO_WARN_AFTER",
    "RONDO_INTEGRITY",  "RONDO_LOG",    "RONDO_WAIT",        "RONDO_ISA",
    "RONDO_RECORDER",   "RONDO_DUMP",   "RONDO_DUMP_SIGNAL"};

std::vector<std::string_view> all_variables() {
  std::vector<std::string_view> names = variables_of_settings();
  names.insert(names.end(), std::begin(others), std::end(others));
  return names;
}

void warn_about_all() {
  if (!base::log_enabled(base::LogLevel::warning) || is_not_first_here()) return;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('=')).substr(0, 100);
    if (!name.starts_with(prefix) || name.starts_with(for_tests) || is_variable(name)) continue;
    const std::string meant = nearest_variable(name);
    base::log_line(base::LogLevel::warning,
                   fmt::format("Rondo has no variable {}{}", name,
                               meant.empty() ? "; docs/reference/environment.md lists them"
                                             : "; did you mean " + meant + "?"));
  }
}

}  // namespace

bool is_variable(std::string_view name) {
  const auto names = all_variables();
  return std::ranges::find(names, name) != names.end();
}

std::string nearest_variable(std::string_view name) {
  if (name.size() > 64 || is_variable(name)) return {};
  std::string_view best;
  // With more than three changes, or more changes than half of its letters, it is another word.
  std::size_t least = 4;
  for (const std::string_view one : all_variables())
    if (const std::size_t changes = base::edit_distance(name, one);
        changes < least && 2 * changes <= one.size() - prefix.size()) {
      least = changes;
      best = one;
    }
  return std::string(best);
}

bool is_not_first_here() {
  for (const char* name : {"RONDO_LOCAL_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                           "MPI_LOCALRANKID", "SLURM_LOCALID"})
    if (const auto value = variable(name)) return *value != "0";
  return false;
}

void warn_about_variables() {
  static std::once_flag told;
  std::call_once(told, warn_about_all);
}

}  // namespace rondo::settings
