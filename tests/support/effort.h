// SPDX-License-Identifier: Apache-2.0
//
// Which cases of a large table this run has. RONDO_TEST_CASES chooses the set: "change" (the
// default), "all", or "few" in builds with a sanitizer. RONDO_TEST_SEED draws the cases of the two
// smaller sets. Runs with successive seeds have different cases, and together all of them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/mix.h"

namespace rondo::testing {

inline std::string_view case_set() {
  if (const char* text = std::getenv("RONDO_TEST_CASES")) return text;
  return RONDO_SANITIZED ? "few" : "change";
}
inline bool few_cases() {
  return case_set() == "few";
}
inline bool all_cases() {
  return case_set() == "all";
}
// 1 where none is given.
inline std::uint64_t test_seed() {
  const char* text = std::getenv("RONDO_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}
// The percentage of their cases that large tests run.
inline int effort() {
  return all_cases() ? 100 : few_cases() ? 2 : 10;
}
// Whether this run has case `number` of a table, of which it has `percent` percent: each number is
// in one of 100 / percent runs with successive seeds.
inline bool drawn(std::uint64_t number, int percent = effort()) {
  if (percent >= 100) return true;
  const auto runs = static_cast<std::uint64_t>(100 / percent);
  return base::mix_hash(runs, number) % runs == test_seed() % runs;
}

}  // namespace rondo::testing
