// SPDX-License-Identifier: Apache-2.0
//
// Which variables Rondo has, and what is said about those that nobody reads.
#pragma once

#include <string>
#include <string_view>

namespace rondo {

// The variable of Rondo that `name` was probably meant to be; nothing when it is one, or is like none.
std::string nearest_variable(std::string_view name);
bool is_variable(std::string_view name);

// Warns about every RONDO_ name in the environment that Rondo does not read, once in a process, and where the launcher says that several
// ranks are on this host in the first of them alone. Names that begin with RONDO_TEST_ are for tests. Thread-safe.
void warn_about_variables();

// Whether a variable of rondo run or of a launcher says that this is not the first rank of its host.
bool is_not_first_here();

}  // namespace rondo
