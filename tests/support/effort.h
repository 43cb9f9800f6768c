// SPDX-License-Identifier: Apache-2.0
//
// Which cases of a large table this run has. RONDO_TEST_CASES is the set: "change" (the default),
// "all", or in builds with a sanitizer "few" and "all few". RONDO_TEST_SEED draws cases. Runs with
// successive seeds have different cases, and together all of them.
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
// Small cases, and few of them: a sanitizer makes each slow.
inline bool few_cases() {
  return case_set().ends_with("few");
}
inline bool whole_set() {
  return case_set().starts_with("all");
}
// 1 where none is given.
inline std::uint64_t test_seed() {
  const char* text = std::getenv("RONDO_TEST_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}
// The percentage of their cases that large tests run.
inline int effort() {
  return few_cases() ? 2 : whole_set() ? 100 : 20;
}
// Whether this run has case `number` of a table, of which it has `percent` percent: each number is
// in one of 100 / percent runs with successive seeds.
inline bool drawn(std::uint64_t number, int percent = effort()) {
  if (percent >= 100) return true;
  const auto runs = static_cast<std::uint64_t>(100 / percent);
  return base::mix_hash(runs, number) % runs == test_seed() % runs;
}
// All of the choices, or the one whose turn it is in this run. Rows of a table differ in whose turn
// it is.
template <class T>
std::vector<T> in_turn(const std::vector<T>& choices, std::uint64_t row = 0) {
  if (whole_set()) return choices;
  return {choices[(test_seed() + row) % choices.size()]};
}

}  // namespace rondo::testing
