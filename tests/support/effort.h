// SPDX-License-Identifier: Apache-2.0
//
// Decides which cases of a large table a run has. RONDO_TEST_CASES names the set: "change" (the
// default) or "all", and in builds with a sanitizer "few" or "all few". RONDO_TEST_SEED draws the
// cases. Successive seeds draw different cases, and together all of them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "base/mix.h"

namespace rondo::testing {

inline std::string_view case_set() {
  if (const char* text = std::getenv("RONDO_TEST_CASES")) return text;
  return RONDO_SANITIZED ? "few" : "change";
}
// Whether the run has only small cases, and few of them, because a sanitizer makes each slow.
inline bool few_cases() {
  return case_set().ends_with("few");
}
inline bool whole_set() {
  return case_set().starts_with("all");
}
// Returns RONDO_TEST_SEED, or 1 if it is not set.
inline std::uint64_t test_seed() {
  const char* text = std::getenv("RONDO_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}
// Returns the percentage of their cases that large tests run.
inline int effort() {
  return few_cases() ? 2 : whole_set() ? 100 : 20;
}
// How many runs with successive seeds have all cases of a table of which each has `percent`
// percent.
inline std::uint64_t runs_of(int percent) {
  return percent >= 100 ? 1 : static_cast<std::uint64_t>(100 / percent);
}
// Whether this run has case `number` of such a table. Exactly one of those runs has it.
inline bool drawn(std::uint64_t number, int percent = effort()) {
  const std::uint64_t runs = runs_of(percent);
  return base::mix_hash(runs, number) % runs == test_seed() % runs;
}
// Returns all choices in the whole set. Otherwise returns one of them, which depends on the row of
// the table, and stays until successive seeds have drawn all cases of which each run has `percent`
// percent: so every choice meets every case.
template <class T>
std::vector<T> in_turn(const std::vector<T>& choices, std::uint64_t row = 0,
                       int percent = effort()) {
  if (whole_set()) return choices;
  return {choices[(test_seed() / runs_of(percent) + row) % choices.size()]};
}

}  // namespace rondo::testing
