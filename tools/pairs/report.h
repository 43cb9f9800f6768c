// SPDX-License-Identifier: Apache-2.0
//
// What rank 0 says of the pairs: tables, the record, a heat map.
#pragma once

#include <string>
#include <vector>

#include "tools/pairs/survey.h"
#include "tools/pairs/words.h"
#include "tools/shared/json.h"

namespace rondo::tools {

// Prints the matrices, or quantiles when there are more ends than a line has room for, then the
// medians and the findings. Throws OutputLost.
void print_survey(const Survey& survey, const Words& words);

// The worst link of a kind, in words.
std::string worst_link(const Survey& survey, const Words& words,
                       const Survey::Judgement& judgement);

// One result of the record: a direction of a pair, measured in a round.
struct Measured {
  std::size_t from = 0, to = 0;
  std::size_t again = 0;                             // 0: the first measurement
  std::size_t round = 0;                             // from 1
  double bandwidth = 0, latency_us = 0, resent = 0;  // 0, 0, NaN: not measured
  bool is_lost = false;                              // the link lost everything
};
// Its outlier is what of the link is out after this measurement. When all pairs are measured for
// the first time, nothing is known to be out.
Json row_of(const Measured& measured, const Survey& survey, const Words& words);
std::vector<std::string> columns_of_pairs();
// The members after the results: what values were compared with, and findings so far.
Json tail_of(const Survey& survey, const Words& words);

std::string heat_maps_of(const Survey& survey, const Words& words, const std::string& title);

}  // namespace rondo::tools
