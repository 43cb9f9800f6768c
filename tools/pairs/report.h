// SPDX-License-Identifier: Apache-2.0
//
// The output of rank 0 for pairs: names of hosts and links, sentences about them, tables, the
// record, a heat map.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tools/pairs/judge.h"
#include "tools/pairs/schedule.h"
#include "tools/pairs/survey.h"
#include "tools/records/hosts.h"
#include "tools/records/record_file.h"

namespace rondo::tools {

// The hosts and ends outlive the object.
class Words {
 public:
  Words(std::span<const HostRecord> hosts, std::span<const End> ends, bool every_rank)
      : hosts_(hosts), ends_(ends), every_rank_(every_rank) {}

  // "c (rank 2)"; with every rank "rank 5 (host c)"
  std::string end(std::size_t end) const;
  // "c (rank 2) -> e (rank 4)"; of a latency "c (rank 2) - e (rank 4)"
  std::string link(Quantity quantity, std::size_t from, std::size_t to) const;
  // The name of the host, for rows of tables.
  const std::string& host_of(std::size_t end) const { return hosts_[ends_[end].host].name; }
  // "host c (rank 2): 0.19 GB/s to and from every other host, others 0.96 GB/s"
  std::string sentence(const Finding& finding) const;

 private:
  std::string about_link(const Finding& finding) const;
  std::string about_group(const Finding& finding) const;
  std::string others(const Finding& finding, const Finding::Side& side) const;

  const std::span<const HostRecord> hosts_;
  const std::span<const End> ends_;
  const bool every_rank_;
};

// "between hosts"
std::string_view name_of(Where where) noexcept;
std::string_view name_of(Quantity quantity) noexcept;
// "0.19 GB/s", "2.1 ms", "1.2 % of segments"
std::string value_of(Quantity quantity, double value);

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
