// SPDX-License-Identifier: Apache-2.0
//
// What `rondo bench pairs` calls hosts and links, and the sentences about them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tools/pairs/judge.h"
#include "tools/pairs/schedule.h"
#include "tools/records/hosts.h"

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

}  // namespace rondo::tools
