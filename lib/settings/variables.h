// SPDX-License-Identifier: Apache-2.0
//
// The names of all variables of Rondo, and warnings about RONDO_ names that do not exist.
// Thread-safe as long as nobody changes the environment.
#pragma once

#include <string>
#include <string_view>

namespace rondo::settings {

// Returns Rondo's variable that is most like `name`; empty if `name` is one, or is like none.
std::string nearest_variable(std::string_view name);
bool is_variable(std::string_view name);

// Warns once in a process about every RONDO_ name in the environment that Rondo does not read. If
// the launcher says that several ranks are on this host, only the first of them warns. Names that
// begin with RONDO_TEST_ are for tests.
void warn_about_variables();

// True when a variable of rondo run or of a launcher says that this is not the first rank of its
// host.
bool is_not_first_here();

}  // namespace rondo::settings
